"""Random recipes, as data: whatever the language can say."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from hypothesis import strategies as st

from growc.grammar.parser import keywords, later_words
from growc.recipe import expression as ex
from growc.recipe import syntax_tree as rc
from growc.recipe.expression import spell
from growc.recipe.fills import FILLS, LAYER_FILLS
from growc.recipe.layer_orders import DEEPER, SHALLOWER
from growc.recipe.option_rules import GROWING, SHRINKING
from growc.recipe.ranking_rules import RANKINGS
from growc.recipe.versions import FIRST_WORDS, VERSIONS
from growc.recipe.words import FILE, Word

RESERVED = {*FIRST_WORDS, *rc.ROLES}
LATER = sorted(keywords()[name] for name in later_words())

strings = st.text(st.characters(exclude_characters='"\r\n', exclude_categories=("Cs",)), max_size=12)
texts = st.builds(rc.Text, strings)
let_names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True).filter(lambda n: n not in RESERVED)
let_names |= st.sampled_from(LATER)
scales = st.floats(0, 1e30, allow_nan=False, allow_infinity=False)


def names_of(words: Mapping[str, Word], *taken: str) -> st.SearchStrategy[str]:
    """The words that take one of these."""
    return st.sampled_from([name for name, word in words.items() if word.takes in taken])


tensor_axes = st.builds(ex.TensorAxis, st.integers(0, 9), strings)
atoms = st.one_of(
    st.builds(ex.Int, st.integers(0, 10**17)),
    st.builds(ex.Name, let_names | st.sampled_from([*rc.ROLES, "parameters"])),
    tensor_axes,
)
expressions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.builds(ex.Neg, inner),
        st.builds(ex.Binary, st.sampled_from("+-*/"), inner, inner),
        st.builds(ex.MinMax, st.sampled_from(["min", "max"]), inner, inner),
    ),
    max_leaves=12,
)

axes = st.builds(rc.NamedAxis, st.sampled_from(rc.ROLES)) | tensor_axes
named = st.builds(rc.NamedAxis, st.sampled_from([r for r in rc.ROLES if r != "layers"]))
width_axes = named | tensor_axes
ranges = st.builds(rc.LayerNumber, expressions) | st.builds(
    rc.LayerSlice, expressions, st.none() | expressions
)
scopes = st.one_of(
    st.builds(rc.RoleScope, st.sampled_from(["encoder", "decoder"])),
    st.builds(rc.LayerScope, ranges),
    st.builds(rc.GlobScope, strings),
)
fills = st.builds(rc.Fill, st.sampled_from(list(FILLS)))
layer_fills = st.none() | st.builds(
    rc.LayerFill, st.sampled_from(list(LAYER_FILLS)), st.none() | expressions, st.none() | scales
)
options = st.one_of(
    st.builds(rc.Option, names_of(GROWING, "")),
    st.builds(rc.Option, names_of(GROWING, "S", "P"), number=scales),
    st.builds(rc.Option, names_of(GROWING, "N", "EXPR"), expr=expressions),
)
rescalings = st.builds(rc.Option, names_of(SHRINKING, ""))
rankings = st.one_of(
    st.builds(rc.Ranking, names_of(RANKINGS, "").filter(lambda name: not RANKINGS[name].seeded)),
    st.builds(rc.Ranking, st.just("random"), seed=st.none() | expressions),
    st.builds(rc.Ranking, names_of(RANKINGS, FILE), file=texts),
)
share_numbers = st.integers(0, 10**17)
shares = st.lists(st.builds(rc.AxisShare, share_numbers, share_numbers), max_size=3).map(tuple)
tops = st.builds(rc.LayerOrder, st.just("top"), expressions)
deeper = st.builds(rc.LayerOrder, names_of(DEEPER, "")) | tops
shallower = st.builds(rc.LayerOrder, names_of(SHALLOWER, "")) | st.builds(
    rc.LayerOrder, names_of(SHALLOWER, FILE), file=texts
)
conditions = st.one_of(
    st.just(rc.Exact()),
    st.builds(rc.Preserved, scales),
    st.builds(
        rc.SizeCondition,
        axes | st.just(rc.Parameters()),
        st.sampled_from(["==", "!=", "<=", ">=", "<", ">"]),
        expressions,
    ),
)
matches = st.builds(
    lambda file, fill, options, depth, smaller: rc.Match(file, fill, options, *depth, smaller),
    texts,
    fills,
    st.lists(options, max_size=3).map(tuple),
    st.just((None, None, False)) | st.tuples(deeper | shallower, layer_fills, st.booleans()),
    st.none() | rankings,
)
quantities = st.sampled_from(["parameters", "active_parameters", "flops", "memory"])
relations = st.sampled_from(["==", "!=", "<=", ">=", "<", ">"])
sequences = st.none() | st.builds(rc.Sequences, expressions, expressions)
limits = st.builds(rc.QuantityLimit, quantities, relations, expressions, sequences)
several = st.lists(axes, min_size=1, max_size=3).map(tuple)
budgets = st.builds(
    rc.Budget,
    limits,
    several,
    rankings,
    st.lists(rescalings, max_size=2).map(tuple),
    st.none() | shallower,
    st.none() | expressions,
    st.none() | expressions,
)
proportions = st.builds(
    lambda limit, over, fill, options, depth, multiples: rc.Proportion(
        limit, over, fill, options, *depth, multiples
    ),
    limits,
    several,
    fills,
    st.lists(options, max_size=3).map(tuple),
    st.just((None, None, False)) | st.tuples(deeper, layer_fills, st.booleans()),
    st.none() | expressions,
)
totals = st.builds(
    rc.SubcloneTotal, width_axes, expressions, rankings, st.lists(rescalings, max_size=2).map(tuple)
).filter(lambda one: not spell(one.size).startswith("-"))
every_statement = st.one_of(
    budgets,
    proportions,
    totals,
    st.builds(rc.Let, st.builds(ex.Name, let_names), expressions),
    st.builds(rc.Widen, axes, expressions, fills, st.lists(options, max_size=3).map(tuple)),
    st.builds(rc.Subclone, width_axes, expressions, rankings, st.lists(rescalings, max_size=2).map(tuple)),
    st.builds(rc.Reorder, axes, rankings),
    st.builds(rc.Merge, width_axes, expressions),
    st.builds(rc.MergeLayers, ranges),
    st.builds(rc.Stack, expressions, deeper, layer_fills, st.booleans()),
    st.builds(rc.StackFrom, expressions, texts, layer_fills, st.booleans()),
    st.builds(rc.SubcloneLayers, expressions, shallower),
    st.builds(rc.Arrange, st.lists(ranges, min_size=1, max_size=4).map(tuple), layer_fills, st.booleans()),
    st.builds(rc.Drop, ranges),
    st.builds(rc.Measure, texts, st.none() | expressions),
    matches,
    st.just(rc.Untie()),
    st.builds(
        rc.Upcycle,
        named,
        named,
        expressions,
        expressions,
        fills,
        scales,
        scales,
        st.none() | expressions,
        st.none() | expressions,
    ),
    st.builds(rc.Include, texts),
    st.builds(rc.Expect, conditions),
    st.builds(rc.Nest, st.lists(axes, min_size=1, max_size=3).map(tuple), rankings, shares),
)
statements = st.deferred(lambda: every_statement)  # whose representation is short
comments = st.builds(rc.Comment, strings.map(str.rstrip), st.booleans())


def tidy(items: list[rc.Item]) -> tuple[rc.Item, ...]:
    """A body as it can stand in a text: single blank lines inside, trailing comments behind something."""
    body: list[rc.Item] = [rc.Blank()]
    for item in items:
        if isinstance(item, rc.Blank) and body[-1] == item:
            continue
        if isinstance(item, rc.Comment) and item.trailing and isinstance(body[-1], rc.Comment | rc.Blank):
            continue
        body.append(item)
    while body and isinstance(body[-1], rc.Blank):
        body.pop()
    assert not any(a == b == rc.Blank() for a, b in pairwise(body))
    return tuple(body[1:])


bodies = st.recursive(
    st.lists(st.one_of(statements, comments, st.just(rc.Blank())), max_size=6).map(tidy),
    lambda inner: st.lists(
        st.one_of(st.builds(rc.Scoped, scopes, inner), statements, comments, st.just(rc.Blank())), max_size=5
    ).map(tidy),
    max_leaves=4,
)
heads = st.just(()) | st.builds(rc.Language, st.sampled_from(VERSIONS)).map(lambda said: (said,))
recipes = st.builds(lambda head, body: rc.RecipeTree(head + body), heads, bodies)
