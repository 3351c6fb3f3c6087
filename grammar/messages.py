"""Descriptions of parse failures: the word found, the words expected, and the nearest expected word.

One mechanism handles every mistake. The set of terminals that the parser would have accepted is folded into
*kinds* (a fill, an option, an expression, …). A word that is close to an accepted one is taken for it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from lark import Token

from growc.errors.diagnostic import Diagnostic, nearest
from growc.errors.source import SourceText, Span
from growc.grammar.tree_to_ast import parse_integer
from growc.recipe.fills import FILLS
from growc.recipe.layer_orders import DEEPER, SHALLOWER
from growc.recipe.option_rules import GROWING, SHRINKING
from growc.recipe.ranking_rules import RANKINGS
from growc.recipe.syntax_tree import ROLES
from growc.recipe.versions import LATEST
from growc.recipe.words import Word

MAX_DIGITS = 18
"""The most digits of a number. No size is longer, and Python refuses to read very long numbers."""

LOOKALIKES = {
    **dict.fromkeys("“”„‟″'‘’`«»", '"'),
    **dict.fromkeys("‐‑‒–—−", "-"),
    **dict.fromkeys("×·⋅∗", "*"),
    **dict.fromkeys("÷∕⁄", "/"),
    "…": "..",
    "≤": "<=",
    "≥": ">=",
    "≠": "!=",
    "\u00a0": " ",
}
"""Characters that appear when text is copied, and their replacements."""

REMEDIES = {
    ";": "each statement stands on a line of its own",
    ":": "leave it out",
    "%": "a share is a fraction, as in `3 * ffn / 2`",
}
"""Remedies for characters that other languages use."""

MEANT = {
    "grow": "widen",
    "expand": "widen",
    "shrink": "subclone",
    "prune": "subclone",
    "narrow": "subclone",
    "deepen": "stack",
    "remove": "drop",
    "average": "merge",
    "depth": "layers",
    "width": "hidden",
    "d_model": "hidden",
    "hidden_size": "hidden",
    "mlp": "ffn",
    "intermediate_size": "ffn",
}
"""Words that people write, each with the word of the language that they mean."""

FORMS = {
    "let": "let NAME = EXPR",
    "widen": "widen AXIS to SIZE with FILL [OPTION…]",
    "subclone": "subclone AXIS to SIZE by RANKING [OPTION…]",
    "reorder": "reorder AXIS by RANKING",
    "stack": "stack layers to N by ORDER [with random fill] [with zero outputs]",
    "arrange": "arrange layers as RANGE, RANGE, … [with random fill] [with zero outputs]",
    "drop": "drop layers RANGE",
    "merge": "merge layers RANGE by mean | merge experts to N by mean",
    "measure": 'measure importance on "FILE" [samples N]',
    "match": 'match "FILE" with FILL [OPTION…] [layers by ORDER [with random fill] [with zero outputs]] '
    "[smaller by RANKING]",
    "untie": "untie head",
    "upcycle": "upcycle ffn to experts N top K with FILL [noise S] [reset P] [in M parts] [seed N]",
    "include": 'include "FILE"',
    "expect": "expect exact | preserved within X | AXIS == EXPR",
    "in": "in SCOPE { … }",
    "nest": "nest AXIS, AXIS… by RANKING [at 1/2, 1/4…]",
    "language": f"language {LATEST}",
}
"""The syntax of each statement, by its verb."""

BUDGET_FORMS = {
    "subclone": "subclone to QUANTITY <= EXPR over AXIS, AXIS… by RANKING [layers by ORDER] [candidates N]",
    "widen": "widen to QUANTITY >= EXPR over AXIS, AXIS… in proportion with FILL [layers by ORDER]",
}
"""The syntax of the statements that find sizes for a budget, by their verbs. `to` is their second word."""


@dataclass(frozen=True)
class SyntaxKind:
    """Terminals with which one kind of syntax begins.

    words: whether all of them are words of the language, so that another word is a misspelling. choices: all
    possibilities, as they are written.
    """

    name: str
    terminals: frozenset[str]
    words: bool = True
    choices: tuple[str, ...] = ()

    @property
    def phrase(self) -> str:
        """The kind's name with its article."""
        return f"an {self.name}" if self.name[0] in "aeiou" else f"a {self.name}"


def _kind(name: str, terminals: str, words: bool = True, choices: Iterable[str] = ()) -> SyntaxKind:
    return SyntaxKind(name, frozenset(terminals.split()), words, tuple(choices))


def _words(name: str, words: Mapping[str, Word]) -> SyntaxKind:
    """A kind that begins with one of some words."""
    terminals = (word.split()[0].upper() for word in words)
    return _kind(name, " ".join(terminals), choices=(word.spelling for word in words.values()))


_AXIS = "ROLE LAYERS AXIS"
KINDS = (
    _kind("statement", " ".join(FORMS).upper(), choices=FORMS),
    _kind("expression", f"{_AXIS} INT NAME LPAR MINUS MIN MAX PARAMETERS", words=False),
    _kind(
        "condition",
        f"{_AXIS} EXACT PRESERVED PARAMETERS",
        choices=["exact", "preserved within X", "AXIS == EXPR"],
    ),
    _words("fill", FILLS),
    _words("option", GROWING),
    _words("option", SHRINKING),
    _words("order", {**DEEPER, **SHALLOWER}),
    _words("order", DEEPER),
    _words("order", SHALLOWER),
    _words("ranking", RANKINGS),
    _kind("scope", "ENCODER DECODER LAYERS STRING", choices=["encoder", "decoder", "layers RANGE", '"GLOB"']),
    _kind("axis", _AXIS, choices=[*ROLES, 'axis NUMBER of "PARAMETER"']),
    _kind("axis", "ROLE AXIS", choices=[*(r for r in ROLES if r != "layers"), 'axis NUMBER of "PARAMETER"']),
    _kind("number", "INT FLOAT MINUS", words=False),
    _kind("number", "INT FLOAT", words=False),
    _kind("operator", "PLUS MINUS STAR SLASH", words=False),
)
"""The kinds, those that contain others first."""

NAMED = {
    "ROLE": "an axis",
    "NAME": "a name",
    "INT": "an integer",
    "STRING": "a string",
    "RELATION": "`==`, `!=`, `<=`, `>=`, `<` or `>`",
    "$END": "the end of the line",
}
"""Descriptions of terminals that are no fixed text."""


def at(source: SourceText, token: Token) -> Span:
    """The span of a token."""
    assert token.start_pos is not None
    assert token.end_pos is not None
    return Span(source, token.start_pos, token.end_pos)


def listed(words: Iterable[str], last: str = "or") -> str:
    """Words as a list in a sentence: `a`, `b` or `c`."""
    *rest, final = words
    return f"{', '.join(rest)} {last} {final}" if rest else final


def malformed(source: SourceText, token: Token) -> Iterator[Diagnostic]:
    """Mistakes in a token itself, independent of its place."""
    match token.type:
        case "STRAY":
            instead = "".join(LOOKALIKES.get(character, "") for character in token)
            remedy = f"write `{instead}`" if instead.strip() else "write a space" if instead else ""
            remedy = remedy or REMEDIES.get(token[0], "")
            yield Diagnostic("G101", f"unexpected {_shown(token)}", at(source, token), help=remedy)
        case "OPEN_STRING":
            remedy = 'end it with `"` on the same line'
            yield Diagnostic("G102", "this string is never closed", at(source, token), help=remedy)
        case "BAD_NUMBER":
            instead = token.replace("_", "")
            instead = instead[:-1] + instead[-1].upper()
            remedy = f"write `{instead}`" if re.fullmatch(r"[0-9]+(\.[0-9]+)?[KMB]?", instead) else ""
            remedy = remedy or "a number is written like `1024`, `355M` or `0.01`"
            yield Diagnostic("G106", f"`{token}` is not a number", at(source, token), help=remedy)
        case "INT" if len(token) > MAX_DIGITS:
            yield Diagnostic(
                "G106", "this number is too large", at(source, token), f"more than {MAX_DIGITS} digits"
            )
        case "INT" if parse_integer(token) % 1:
            yield Diagnostic("G106", f"`{token}` is not a whole number", at(source, token))
        case "FLOAT" if len(token) > 2 * MAX_DIGITS or float(token) > 1e30:
            yield Diagnostic("G106", "this number is too large", at(source, token))


def _shown(text: str) -> str:
    if text.isprintable() and not text.isspace():
        return f"`{text}`"
    return " ".join(f"{unicodedata.name(c, 'control character').lower()} (U+{ord(c):04X})" for c in text)


def folded(expected: Iterable[str]) -> tuple[list[SyntaxKind], list[str]]:
    """Terminals as kinds, and the terminals of no kind. Operators are given only if there is nothing else."""
    rest = set(expected)
    kinds = []
    for kind in KINDS:
        if kind.terminals <= rest:
            kinds.append(kind)
            rest -= kind.terminals
    if len(kinds) + len(rest) > 1:
        kinds = [kind for kind in kinds if kind.name != "operator"]
    return kinds, sorted(rest)


@dataclass(frozen=True)
class Mistake:
    """A token that cannot be at its place.

    expected: the terminals that can. keywords: the text of terminals with a fixed one. before: the tokens of
    the line up to here, as they were understood.
    """

    source: SourceText
    token: Token
    expected: frozenset[str]
    keywords: Mapping[str, str]
    before: Sequence[Token]

    def diagnostic(self) -> Diagnostic:
        """The mistake as a diagnostic."""
        token, span = self.token, at(self.source, self.token)
        if self.expected == {"NAME"} and self.is_word:
            message = f"`{token}` is a word of the language and cannot be the name of a `let`"
            return Diagnostic("G202", message, span, help=f"choose another name: `new_{token}`")
        if token.type == "RPAR" and not self.open_brackets:
            return Diagnostic("G105", "this `)` closes nothing", span)
        if "$END" in self.expected and token in FORMS and self.before:
            return Diagnostic("G104", "a statement starts on a line of its own", span, "after this one ends")
        if token.type == "FLOAT" and "INT" in self.expected:
            message = f"expected {self.wanted}, found `{token}`"
            return Diagnostic("G104", message, span, help=self.fraction)
        kind = next(iter(self.kinds), None)
        near = self.near
        notes: tuple[str, ...] = ()
        if kind and kind.choices and (not near or kind.name == "axis"):
            notes = (f"the {self.plural(kind)} are {listed([f'`{word}`' for word in kind.choices], 'and')}",)
        if self.is_word and kind and kind.words:
            message = f"`{token}` is no {kind.name}"
            if kind.name == "option":
                message += f" of `{self.verb}`"
        else:
            message = f"expected {self.wanted}, found {self.found}"
        if near == token.lower():
            message += ": keywords are lower case"
        remedy = f"did you mean `{near}`?" if near else "" if notes else self.form
        code = "G103" if self.is_word and (near or (kind and kind.words)) else "G104"
        return Diagnostic(code, message, span, notes=notes, help=remedy)

    def repair(self) -> list[Token]:
        """Tokens to read in place of this one, so that the rest of the line can be checked; empty if
        unclear.
        """
        token = self.token
        if near := self.near:
            terminal = next((name for name in self.expected if self.keywords.get(name) == near), "ROLE")
            return [Token.new_borrow_pos(terminal, near, token)]
        if self.expected == {"NAME"} and self.is_word:
            return [Token.new_borrow_pos("NAME", str(token), token)]
        missing = [self.keywords.get(name, "") for name in self.leftover]
        if len(missing) == 1 and missing[0] and not self.kinds and token.type != "$END":
            return [Token.new_borrow_pos(self.leftover[0], missing[0], token), token]
        return []

    @property
    def is_word(self) -> bool:
        """Whether the token is a name, a keyword or an axis."""
        return self.token.type in ("NAME", "ROLE") or self.keywords.get(self.token.type, "").isidentifier()

    @property
    def kinds(self) -> list[SyntaxKind]:
        """The kinds that can be here; operators only if there is nothing else."""
        return folded(self.expected)[0]

    @property
    def leftover(self) -> list[str]:
        """The terminals that can be here and belong to none of these kinds."""
        return folded(self.expected)[1]

    @property
    def near(self) -> str | None:
        """The word of the language that was probably meant here; None if there is none."""
        if not self.is_word:
            return None
        candidates = {self.keywords.get(name, "") for name in self.expected}
        candidates = {text for text in candidates if text.isidentifier()}
        could_be_let = self.token.type == "NAME" and "NAME" in self.expected
        if "ROLE" in self.expected and not could_be_let:
            candidates.update(ROLES)
        meant = MEANT.get(self.token.lower())
        return meant if meant in candidates else nearest(self.token, candidates)

    @property
    def wanted(self) -> str:
        """A list of all that can be here."""
        words = [NAMED.get(name) or f"`{self.keywords[name]}`" for name in self.leftover]
        return listed(dict.fromkeys([*(kind.phrase for kind in self.kinds), *words]))

    @property
    def found(self) -> str:
        """A description of the token."""
        return NAMED["$END"] if self.token.type == "$END" else f"`{self.token}`"

    @property
    def fraction(self) -> str:
        """The correct spelling of a number that is not whole."""
        share = Fraction(str(self.token)).limit_denominator(1000)
        if share.denominator == 1:
            return f"write `{share.numerator}`"
        if self.verb == "nest":
            return f"write `{share.numerator}/{share.denominator}`"
        factor = re.match(r"\s*\*\s*([A-Za-z_]\w*)", self.source.text[at(self.source, self.token).end :])
        return f"write `{share.numerator} * {factor[1] if factor else 'ffn'} / {share.denominator}`"

    @property
    def verb(self) -> str:
        """The first word of the line."""
        return str(self.before[0]) if self.before else ""

    @property
    def form(self) -> str:
        """The syntax of the statement, as a remedy."""
        is_budget = [str(token) for token in self.before[1:2]] == ["to"]
        form = (BUDGET_FORMS if is_budget else FORMS).get(self.verb)
        return f"write `{form}`" if form else ""

    @property
    def open_brackets(self) -> bool:
        """Whether a bracket is open at the token."""
        before = [token.type for token in self.before]
        return before.count("LPAR") > before.count("RPAR")

    def plural(self, kind: SyntaxKind) -> str:
        """The plural of a kind's name; for options, with the verb that they belong to."""
        plural = "axes" if kind.name == "axis" else f"{kind.name}s"
        return f"{plural} of `{self.verb}`" if kind.name == "option" else plural
