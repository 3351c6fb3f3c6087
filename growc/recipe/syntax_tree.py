"""The meaning of a recipe, as data: statements, axes, scopes, fills, options, rankings, depth orders.

Two recipes are equal if they say the same; places and spellings do not count. Comments and blank lines are
items of a body like statements, so that a formatted recipe loses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from growc.recipe.expression import Expr, Name, SyntaxNode, TensorAxis

AXES = {
    "hidden": "the residual stream",
    "heads": "the heads of attention that make queries",
    "kv_heads": "the heads that make keys and values; equal to `heads` where there are no groups",
    "head_dim": "the units of one head",
    "ffn": "the inner units of feed-forward networks",
    "layers": "the equal parts of a stream, one behind the other",
    "vocab": "the tokens that the model knows",
    "positions": "the places that a token can stand in",
    "experts": "the networks that a router chooses from",
    "channels": "the channels of convolutions that are not tied to inputs or outputs",
}
"""The axes that have a name in every architecture, each with its meaning."""

ROLES = tuple(AXES)


# Axes and scopes ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NamedAxis(SyntaxNode):
    """An axis by its role: `hidden`, `heads`, …"""

    name: str


AxisRef = NamedAxis | TensorAxis
"""The axis that a statement resizes."""


@dataclass(frozen=True)
class Text(SyntaxNode):
    """A string: a path, relative to its recipe. found: the file's place, if it lies elsewhere."""

    value: str
    found: Path | None = field(default=None, compare=False, repr=False, kw_only=True)

    @property
    def path(self) -> Path:
        """The file that the text names."""
        return self.span.source.folder / self.value if self.found is None else self.found


@dataclass(frozen=True)
class LayerNumber(SyntaxNode):
    """One layer, by its number; negative numbers count from the end."""

    number: Expr


@dataclass(frozen=True)
class LayerSlice(SyntaxNode):
    """`START..STOP`, half-open as Python's range, or `START..`, to the end."""

    start: Expr
    stop: Expr | None = None


LayerRange = LayerNumber | LayerSlice


@dataclass(frozen=True)
class RoleScope(SyntaxNode):
    """`in encoder` or `in decoder`."""

    role: Literal["encoder", "decoder"]


@dataclass(frozen=True)
class LayerScope(SyntaxNode):
    """`in layers RANGE`."""

    layers: LayerRange


@dataclass(frozen=True)
class GlobScope(SyntaxNode):
    """`in "GLOB"`: the parts whose nodes or parameters have matching names."""

    pattern: str


Scope = RoleScope | LayerScope | GlobScope


# Fills, options, rankings, orders -------------------------------------------------------------------------


@dataclass(frozen=True)
class Fill(SyntaxNode):
    """The rule for new units: one of growc.recipe.fills.FILLS."""

    name: str


@dataclass(frozen=True)
class LayerFill(SyntaxNode):
    """The content of new layers, if not copies: a fill that makes layers, and its seed.

    std: the standard deviation of the draws, if not that of the source tensors.
    """

    name: str
    seed: Expr | None = None
    std: float | None = None


@dataclass(frozen=True)
class Option(SyntaxNode):
    """One of growc.recipe.option_rules.OPTIONS, with its number or expression."""

    name: str
    number: float = 0.0
    expr: Expr | None = None


@dataclass(frozen=True)
class Ranking(SyntaxNode):
    """The rule that ranks units: one of growc.recipe.ranking_rules.RANKINGS, with its argument."""

    name: str
    seed: Expr | None = None
    file: Text | None = None


@dataclass(frozen=True)
class LayerOrder(SyntaxNode):
    """The order of layers: a row of growc.recipe.layer_orders, with its argument.

    Some take a number of layers, or a file of scores.
    """

    name: str
    count: Expr | None = None
    file: Text | None = None


# Statements -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Let(SyntaxNode):
    """`let NAME = VALUE`: a parameter with a default."""

    target: Name
    value: Expr

    @property
    def name(self) -> str:
        """The name of the parameter."""
        return self.target.name


@dataclass(frozen=True)
class Widen(SyntaxNode):
    """`widen AXIS to SIZE with FILL [OPTION…]`: the axis grows."""

    axis: AxisRef
    size: Expr
    fill: Fill
    options: tuple[Option, ...] = ()


@dataclass(frozen=True)
class Subclone(SyntaxNode):
    """`subclone AXIS to SIZE by RANKING [OPTION…]`: the units that rank highest stay, in their old order."""

    axis: AxisRef
    size: Expr
    ranking: Ranking
    options: tuple[Option, ...] = ()


Quantity = Literal["parameters", "active_parameters", "flops", "memory"]

QUANTITIES: tuple[Quantity, ...] = ("parameters", "active_parameters", "flops", "memory")
"""The quantities of budgets. The expression of a budget may mention all of them except memory."""

Relation = Literal["==", "!=", "<=", ">=", "<", ">"]


@dataclass(frozen=True)
class Sequences(SyntaxNode):
    """`at batch BATCH length LENGTH`: the sequences whose keys and values, or states, count as memory."""

    batch: Expr
    length: Expr


@dataclass(frozen=True)
class QuantityLimit(SyntaxNode):
    """`QUANTITY <= VALUE [at batch BATCH length LENGTH]`."""

    quantity: Quantity
    relation: Relation
    value: Expr
    sequences: Sequences | None = None


@dataclass(frozen=True)
class Budget(SyntaxNode):
    """`subclone to QUANTITY <= VALUE over AXIS, … by RANKING [OPTION…] [layers by ORDER]
    [multiples of EXPR] [candidates N]`: sizes that meet a budget and lose least.
    """

    limit: QuantityLimit
    axes: tuple[AxisRef, ...]
    ranking: Ranking
    options: tuple[Option, ...] = ()
    order: LayerOrder | None = None
    multiples: Expr | None = None
    candidates: Expr | None = None


@dataclass(frozen=True)
class Proportion(SyntaxNode):
    """`widen to QUANTITY >= VALUE over AXIS, … in proportion with FILL [OPTION…]
    [layers by ORDER [with FILL] [with zero outputs]] [multiples of EXPR]`: all axes times one factor.
    """

    limit: QuantityLimit
    axes: tuple[AxisRef, ...]
    fill: Fill
    options: tuple[Option, ...] = ()
    order: LayerOrder | None = None
    layer_fill: LayerFill | None = None
    zero_outputs: bool = False
    multiples: Expr | None = None


@dataclass(frozen=True)
class SubcloneTotal(SyntaxNode):
    """`subclone AXIS to total LIMIT by RANKING [OPTION…]`: the units of all layers compete for a total."""

    axis: AxisRef
    size: Expr
    ranking: Ranking
    options: tuple[Option, ...] = ()


@dataclass(frozen=True)
class AxisShare(SyntaxNode):
    """`1 / 2`: a part of the units of an axis."""

    numerator: int
    denominator: int

    def __str__(self) -> str:
        return f"{self.numerator}/{self.denominator}"


@dataclass(frozen=True)
class Merge(SyntaxNode):
    """`merge AXIS to SIZE by mean`: the axis shrinks; each run of consecutive units becomes its mean."""

    axis: AxisRef
    size: Expr


@dataclass(frozen=True)
class Reorder(SyntaxNode):
    """`reorder AXIS by RANKING`: the same model with its units sorted, highest first.

    at: the shares of a `nest`; None where no `nest` sorts.
    """

    axis: AxisRef
    ranking: Ranking
    at: tuple[AxisShare, ...] | None = None


@dataclass(frozen=True)
class Nest(SyntaxNode):
    """`nest AXIS, AXIS… by RANKING [at SHARE, SHARE…]`: the same model with the units of all these axes
    sorted. The first units of each axis make a smaller model. The record keeps the shares.
    """

    axes: tuple[AxisRef, ...]
    ranking: Ranking
    at: tuple[AxisShare, ...] = ()


@dataclass(frozen=True)
class Stack(SyntaxNode):
    """`stack layers to SIZE by ORDER [with FILL] [with zero outputs]`: deeper."""

    size: Expr
    order: LayerOrder
    fill: LayerFill | None = None
    zero_outputs: bool = False


@dataclass(frozen=True)
class StackFrom(SyntaxNode):
    """`stack layers to SIZE from "FILE" [with FILL] [with zero outputs]`: a model without layers gets those
    of another one, its template.
    """

    size: Expr
    file: Text
    fill: LayerFill | None = None
    zero_outputs: bool = False


@dataclass(frozen=True)
class SubcloneLayers(SyntaxNode):
    """`subclone layers to SIZE by ORDER`: shallower."""

    size: Expr
    order: LayerOrder


@dataclass(frozen=True)
class Arrange(SyntaxNode):
    """`arrange layers as RANGE, RANGE, … [with FILL] [with zero outputs]`: the layer list spelled out."""

    layers: tuple[LayerRange, ...]
    fill: LayerFill | None = None
    zero_outputs: bool = False


@dataclass(frozen=True)
class Drop(SyntaxNode):
    """`drop layers RANGE`: these layers are removed."""

    layers: LayerRange


@dataclass(frozen=True)
class MergeLayers(SyntaxNode):
    """`merge layers RANGE by mean`: these layers become one, whose weights are the means of theirs."""

    layers: LayerRange


@dataclass(frozen=True)
class Measure(SyntaxNode):
    """`measure importance on "FILE" [samples N]`: scores for the rankings that follow."""

    file: Text
    samples: Expr | None = None


@dataclass(frozen=True)
class Match(SyntaxNode):
    """`match "FILE" with FILL [OPTION…] [layers by ORDER [with FILL] [with zero outputs]]
    [smaller by RANKING]`: the sizes of another model, or of a config.json.
    """

    file: Text
    fill: Fill
    options: tuple[Option, ...] = ()
    order: LayerOrder | None = None
    layer_fill: LayerFill | None = None
    zero_outputs: bool = False
    smaller: Ranking | None = None


@dataclass(frozen=True)
class Untie(SyntaxNode):
    """`untie head`: head and embedding become two weights."""


@dataclass(frozen=True)
class Upcycle(SyntaxNode):
    """`upcycle ffn to experts N top K with FILL [noise S] [reset P] [in M parts] [seed N]`: networks become
    mixtures of copies, or of parts of copies.
    """

    axis: NamedAxis
    into: NamedAxis
    count: Expr
    top: Expr
    fill: Fill
    noise: float = 0.0
    reset: float = 0.0
    parts: Expr | None = None
    seed: Expr | None = None


@dataclass(frozen=True)
class Include(SyntaxNode):
    """`include "FILE"`: the statements of another recipe."""

    file: Text


@dataclass(frozen=True)
class Exact(SyntaxNode):
    """`exact`: the compiler proved that the function is kept."""


@dataclass(frozen=True)
class Preserved(SyntaxNode):
    """`preserved within X`: the measured difference is at most X."""

    within: float


@dataclass(frozen=True)
class Parameters(SyntaxNode):
    """`parameters`: the number of stored float weight elements."""


@dataclass(frozen=True)
class SizeCondition(SyntaxNode):
    """A size of the final model against an expression, in every one of its sizes."""

    subject: AxisRef | Parameters
    relation: Relation
    value: Expr


Condition = Exact | Preserved | SizeCondition


@dataclass(frozen=True)
class Expect(SyntaxNode):
    """`expect CONDITION`: if it does not hold, nothing is written."""

    condition: Condition


@dataclass(frozen=True)
class Language(SyntaxNode):
    """`language VERSION`: the version of the language that the text is written in, its first statement."""

    version: str


@dataclass(frozen=True)
class Scoped(SyntaxNode):
    """`in SCOPE { … }`."""

    scope: Scope
    body: tuple[Item, ...]


Statement = (
    Let
    | Widen
    | Subclone
    | Budget
    | Proportion
    | SubcloneTotal
    | Merge
    | Reorder
    | Stack
    | SubcloneLayers
    | Arrange
    | Drop
    | MergeLayers
    | Measure
    | Match
    | Untie
    | Upcycle
    | Include
    | Expect
    | Language
    | Nest
    | StackFrom
)
"""A statement: everything except a scope, which has a body of statements."""

Undecided = Budget | Proportion | SubcloneTotal
"""A statement on a budget: it stands for plain statements that depend on the model's costs and scores."""


# Bodies ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comment(SyntaxNode):
    """`#TEXT`, on a line of its own or at the end of the line before; the text keeps its spaces."""

    text: str
    trailing: bool = False


@dataclass(frozen=True)
class Blank(SyntaxNode):
    """A blank line, or several."""


Item = Statement | Scoped | Comment | Blank
"""An item of a body. Items are in the order of reading."""


@dataclass(frozen=True)
class RecipeTree:
    """The recipe of one or several texts."""

    body: tuple[Item, ...] = ()

    def __add__(self, other: RecipeTree) -> RecipeTree:
        return RecipeTree(self.body + other.body)
