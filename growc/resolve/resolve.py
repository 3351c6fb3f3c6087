"""The flat list of a recipe's statements: includes are read, `let`s and `-p` put in, everything checked.

Needs: the recipes that growc.grammar reads. Gives: `Resolved`, whose statements mention only axes and
numbers. Checks that need a model are left to the passes.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from growc.errors.diagnostic import Diagnostic, GrowError, concealed, nearest
from growc.errors.regular_files import irregular
from growc.errors.source import RECIPE_SUFFIX, SourceText, Span
from growc.recipe.expression import (
    UNKNOWN,
    AnyNode,
    Binary,
    Expr,
    Int,
    Name,
    SizeName,
    TensorAxis,
    fold,
    names,
    parts_of,
    replaced,
)
from growc.recipe.layer_orders import statistic_of
from growc.recipe.syntax_tree import (
    QUANTITIES,
    ROLES,
    Blank,
    Budget,
    Comment,
    Expect,
    Include,
    Item,
    Language,
    LayerOrder,
    Let,
    Measure,
    Nest,
    Proportion,
    Ranking,
    RecipeTree,
    Reorder,
    Scope,
    Scoped,
    Statement,
    SubcloneTotal,
    Text,
    Undecided,
)
from growc.recipe.versions import LATEST, VERSIONS, newer, unknown
from growc.resolve.bound import Bound, Decision, Resolved
from growc.resolve.checks import check, nested
from growc.system.limits import beyond, most

MAX_INCLUDES = 50
"""The greatest depth of nested includes."""

MAX_NAMES = 200
"""The largest number of sizes in an expression after `let`s are put in, which could grow without bound."""

MAX_VALUE = 10**18
"""The largest value of a size."""


ReadText = Callable[[Path], str]
Included = tuple[SourceText, RecipeTree, Sequence[Diagnostic]]


def read_file(path: Path) -> str:
    """The text of an included recipe. Raises OSError and UnicodeDecodeError."""
    if kind := irregular(path):
        raise OSError(errno.EINVAL, f"it is {kind}")
    data = read_some(path)
    if len(data) > (bound := most("recipe_bytes")):
        raise OSError(errno.EFBIG, f"it has more than {bound:,} bytes")
    return as_text(data)


def read_some(path: Path) -> bytes:
    """The bytes of a recipe, at most one more than the limit `recipe_bytes`. Raises OSError."""
    with path.open("rb") as file:
        return file.read(most("recipe_bytes") + 1)


def as_text(data: bytes) -> str:
    """The text of a recipe. Raises UnicodeDecodeError.

    A text that is too long may end inside a character: that is ignored, since its reader refuses it.
    """
    return data.decode("utf-8", "strict" if len(data) <= most("recipe_bytes") else "ignore")


def load(
    sources: Sequence[SourceText],
    params: Mapping[str, str],
    read: ReadText = read_file,
    decided: Sequence[Decision] = (),
) -> Resolved:
    """The flat list of the statements of texts, with `params` in place of the defaults of `let`s.

    `read` reads included recipes. `decided`: the plain statements of budgets, in order. Raises GrowError
    (G1xx, G2xx) with all errors that can be found without a model.
    """
    resolved, problems = resolve(sources, params, read, decided)
    if problems:
        raise GrowError(*problems)
    return resolved


def resolve(
    sources: Sequence[SourceText],
    params: Mapping[str, str],
    read: ReadText = read_file,
    decided: Sequence[Decision] = (),
) -> tuple[Resolved, list[Diagnostic]]:
    """The flat list as in `load`, as far as texts are valid, and all errors in them."""
    from growc.grammar import read as read_text

    resolver = _Resolver(sources, params, read, decided)
    parts = [read_text(source) for source in sources]
    resolver.report(*(problem for _, problems in parts for problem in problems))
    return resolver.run([recipe for recipe, _ in parts]), resolver.in_order()


def included_at(span: Span) -> str:
    """The note on an error in a recipe that is included at a place."""
    return f"included at {span}"


class _TooManyError(Exception):
    """The recipe has more statements than the limit."""


class _Resolver:
    def __init__(
        self,
        sources: Sequence[SourceText],
        params: Mapping[str, str],
        read: ReadText,
        decided: Sequence[Decision],
    ) -> None:
        self.sources, self.read, self.decided = sources, read, tuple(decided)
        self.undecided = iter(self.decided)
        self.params = {name: SourceText("-p", f"{name}={text}") for name, text in params.items()}
        self.given: dict[str, Expr | None] = {}
        self.problems: dict[Diagnostic, None] = {}
        self.statements: list[Bound] = []
        self.defined: dict[str, Span] = {}
        self.values: dict[str, Expr] = {}
        self.included: list[SourceText] = []
        self.chain: list[Span] = []
        self.complete = True  # whether all was read, every included recipe too
        self.moment = 1  # the number of the next statement
        self.measured = False
        self.version = LATEST  # of the text that is being read
        self.versions: list[str] = []  # of all texts
        self.count = 0  # of statements
        self.read_before: dict[Path, Included] = {}

    def run(self, recipes: Sequence[RecipeTree]) -> Resolved:
        self.given = {name: self.parameter(name, source) for name, source in self.params.items()}
        lets: dict[str, Expr] = {}
        with contextlib.suppress(_TooManyError):
            for recipe in recipes:
                self.text(recipe, (), lets)
        for name, source in self.params.items():
            if name not in self.defined and self.complete:
                self.unknown_parameter(name, source)
        statements = tuple(_settled(bound, self.moment) for bound in self.statements)
        language = max(self.versions, key=VERSIONS.index, default=LATEST)
        sources = tuple(self.included)
        return Resolved(statements, self.values, sources, self.defined, language, self.decided)

    def in_order(self) -> list[Diagnostic]:
        """The errors in the order of reading: file by file, from the top; those of `-p` last."""
        order = [*self.sources, *self.included, *self.params.values()]

        def place(problem: Diagnostic) -> tuple[int, int]:
            return (order.index(problem.span.source), problem.span.start) if problem.span else (len(order), 0)

        return sorted(self.problems, key=place)

    def report(self, *problems: Diagnostic) -> None:
        """Report errors in the text that is being read, each once, with the chain of its includes."""
        if not problems:
            return
        include_notes = tuple(map(included_at, reversed(self.chain)))
        noted = (replace(p, notes=p.notes + include_notes) for p in map(concealed, problems))
        self.problems.update(dict.fromkeys(noted))

    # Names and values

    def parameter(self, name: str, source: SourceText) -> Expr | None:
        from growc.grammar import read_expression

        expr, problems = read_expression(source, len(name) + 1)
        self.problems.update(dict.fromkeys(problems))
        return expr

    def unknown_parameter(self, name: str, source: SourceText) -> None:
        near = nearest(name, self.defined)
        have = ", ".join(f"`{other}`" for other in self.defined)
        message = f"the recipe has no `let {name}`"
        notes = (f"its parameters are {have}" if have else "it has no parameters",)
        remedy = f"did you mean `{near}`?" if near else ""
        problem = Diagnostic("G203", message, Span(source, 0, len(name)), notes=notes, help=remedy)
        self.problems[problem] = None

    def value(
        self, expr: Expr, lets: Mapping[str, Expr], moment: int | None = None, *, budget: bool = False
    ) -> Expr:
        """The expression with values in place of names, and axes with their sizes at a moment.

        budget: whether quantities have values in it. An expression with the same value for every model
        becomes a number. A negative difference in a statement stays, since `check` judges it later. Reports
        unknown names and expressions without a value.
        """

        def named(node: SizeName) -> Expr:
            if isinstance(node, TensorAxis) or node.name in ROLES:
                return replace(node, moment=moment)
            if node == UNKNOWN:
                return node
            if node.name not in lets and budget and node.name in QUANTITIES:
                return node
            if node.name not in lets:
                self.unknown_name(node, lets)
                return UNKNOWN
            return lets[node.name]

        value = replaced(expr, SizeName, named)
        try:
            number = fold(value, lambda size: None)
        except GrowError as error:
            self.report(*error.diagnostics)
            return UNKNOWN
        if number is not None and abs(number) > MAX_VALUE:
            self.report(Diagnostic("G206", "this number is too large", expr.span))
            return UNKNOWN
        if len(mentioned := names(value)) > MAX_NAMES:
            self.report(Diagnostic("G107", f"an expression mentions at most {MAX_NAMES} sizes", expr.span))
            return UNKNOWN
        if UNKNOWN in mentioned:
            return UNKNOWN
        counts_back = moment is None and number is not None and number < 0 and isinstance(value, Binary)
        return value if number is None or counts_back else Int(number, span=expr.span)

    def unknown_name(self, node: Name, lets: Mapping[str, Expr]) -> None:
        near = nearest(node.name, [*lets, *ROLES])
        message = f"`{node.name}` is neither an axis nor a `let`"
        notes: tuple[str, ...] = ()
        if node.name in self.defined:
            message = f"`{node.name}` is not known here"
            notes = (f"`let {node.name}` stands in another block, at {self.defined[node.name]}",)
        elif lets:
            notes = (f"the `let`s above are {', '.join(f'`{name}`' for name in lets)}",)
        remedy = f"did you mean `{near}`?" if near else f"define it above: `let {node.name} = …`"
        if node.name in QUANTITIES:
            message = f"`{node.name}` has no value here"
            remedy = "it stands in a budget: `subclone to parameters <= parameters / 2 over …`"
        self.report(Diagnostic("G201", message, node.span, notes=notes, help=remedy))

    # Statements

    def text(self, recipe: RecipeTree, scopes: tuple[Scope, ...], lets: dict[str, Expr]) -> None:
        """Add the statements of one text, read in its version of the language."""
        outer_version = self.version
        versions = [item for item in recipe.body if isinstance(item, Language)]
        self.report(*(problem for item in versions for problem in unknown(item)))
        self.version = next((item.version for item in versions if item.version in VERSIONS), LATEST)
        self.versions.append(self.version)
        self.body(recipe.body, scopes, lets)
        self.version = outer_version

    def body(self, body: Iterable[Item], scopes: tuple[Scope, ...], lets: dict[str, Expr]) -> None:
        for item in body:
            self.counted(item)
            match item:
                case Comment() | Blank() | Language():
                    pass
                case Scoped():
                    self.body(item.body, (*scopes, self.bound(item.scope, lets)), dict(lets))
                case Let():
                    self.let(item, lets)
                case Include():
                    self.include(item, scopes, lets)
                case Nest():
                    self.nest(item, scopes, lets)
                case Budget() | Proportion() | SubcloneTotal() if decision := next(self.undecided, None):
                    self.body(decision.items, scopes, lets)
                case _:
                    self.statement(item, scopes, lets)

    def counted(self, item: Item) -> None:
        """Count a statement. Stops the reading where there are too many."""
        self.count += not isinstance(item, Comment | Blank)
        if problem := beyond(
            "statements", "with what it includes, a recipe has", self.count, item.span, "G107"
        ):
            self.report(problem)
            self.complete = False
            raise _TooManyError

    def let(self, let: Let, lets: dict[str, Expr]) -> None:
        if let.name in self.defined:
            message = f"there is another `let {let.name}`"
            earlier = ((self.defined[let.name], "the first one"),)
            self.report(Diagnostic("G202", message, let.target.span, related=earlier))
            return
        self.defined[let.name] = let.target.span
        value = self.value(self.given.get(let.name) or let.value, lets, self.moment)
        lets[let.name] = self.values[let.name] = value

    def statement(self, statement: Statement, scopes: tuple[Scope, ...], lets: Mapping[str, Expr]) -> None:
        statement = self.bound(statement, lets)
        self.statements.append(Bound(self.moment, scopes, statement))
        self.report(*check(statement, scopes), *self.unmeasured(statement), *_unreadable(statement))
        self.report(*newer(statement, self.version))
        self.moment += not isinstance(statement, Expect)

    def nest(self, nest: Nest, scopes: tuple[Scope, ...], lets: Mapping[str, Expr]) -> None:
        """Add a `reorder` for each axis of a `nest`, all under one number."""
        nest = self.bound(nest, lets)
        self.report(*nested(nest), *newer(nest, self.version), *_unreadable(nest))
        for axis in nest.axes:
            sort = Reorder(axis, nest.ranking, nest.at, span=nest.span)
            self.statements.append(Bound(self.moment, scopes, sort))
            self.report(*check(sort, scopes), *self.unmeasured(sort))
        self.moment += 1

    def bound(self, node: AnyNode, lets: Mapping[str, Expr]) -> AnyNode:
        """A statement or scope with values in place of the expressions in it."""
        budget = isinstance(node, Undecided)
        return replaced(node, Expr, lambda expr: self.value(expr, lets, budget=budget))

    def unmeasured(self, statement: Statement) -> Iterator[Diagnostic]:
        """Yield an error (G214) for each use of importance without a `measure importance` before it."""
        if isinstance(statement, Measure):
            self.measured = True
        if isinstance(statement, Budget) and statement.candidates is not None and not self.measured:
            remedy = 'write `measure importance on "FILE"` above it: they are measured on this file'
            message = "no inputs are known to measure candidates on"
            yield Diagnostic("G214", message, statement.span, help=remedy)
        for part in parts_of(statement):
            if isinstance(part, Ranking | LayerOrder) and statistic_of(part) and not self.measured:
                remedy = 'write `measure importance on "FILE"` above it'
                yield Diagnostic("G214", "no importance was measured before this", part.span, help=remedy)

    def include(self, include: Include, scopes: tuple[Scope, ...], lets: dict[str, Expr]) -> None:
        here = include.file.span
        path = os.path.normpath(include.file.path)
        files = [os.path.normpath(span.source.name) for span in (*self.chain, here)]
        if path in files:
            cycle = " includes ".join(f"`{name}`" for name in [*files[files.index(path) :], path])
            self.report(Diagnostic("G208", "this recipe includes itself", here, notes=(cycle,)))
        elif len(self.chain) == MAX_INCLUDES:
            self.report(Diagnostic("G107", f"includes nest at most {MAX_INCLUDES} deep", here))
        elif (included := self.read_include(Path(path), here)) is not None:
            source, recipe, problems = included
            self.included.append(source)
            self.chain.append(here)
            if source.private and problems:  # it is no recipe, so only the first error has a meaning
                self.report(problems[0])
                self.complete = False
            else:
                self.report(*problems)
                self.text(recipe, scopes, lets)
            self.chain.pop()

    def read_include(self, path: Path, span: Span) -> Included | None:
        """An included recipe, read once; None where it cannot be read, which is reported (G207)."""
        from growc.grammar import read as read_text

        if path in self.read_before:
            return self.read_before[path]
        try:
            text = self.read(path)
        except UnicodeDecodeError:
            problem = "is not text in UTF-8"
        except ValueError:
            why = ": there is a zero byte in it" if "\0" in str(path) else ""
            problem = f"is no path{why}"
        except OSError as error:
            problem = f"cannot be read: {(error.strerror or str(error)).lower()}"
        else:
            private = Path(os.path.realpath(path)).suffix != RECIPE_SUFFIX
            source = SourceText(path.as_posix(), text, private)
            self.read_before[path] = source, *read_text(source)
            return self.read_before[path]
        self.complete = False
        remedy = "paths are relative to the recipe that they stand in"
        self.report(Diagnostic("G207", f"`{path.as_posix()}` {problem}", span, help=remedy))
        return None


def _unreadable(statement: Statement) -> Iterator[Diagnostic]:
    """Yield an error (G101) for each text with a zero byte: it can be no path, and no name."""
    for part in parts_of(statement):
        if isinstance(part, Text) and "\0" in part.value:
            yield Diagnostic("G101", "unexpected zero byte in a string", part.span)


def _settled(bound: Bound, final: int) -> Bound:
    """The statement with its final number. Names with the moment of this statement lose their moment."""
    number = final if isinstance(bound.statement, Expect) else bound.number

    def settled(node: SizeName) -> SizeName:
        return replace(node, moment=None) if node.moment == number else node

    return replace(bound, number=number, statement=replaced(bound.statement, SizeName, settled))
