"""Parse one line at a time: tokens, the LALR parser, and the repair of misspelt or missing words.

If the repair of a line is clear (a word that is nearly right, a missing keyword), the line is repaired and
parsed further, so that its other mistakes are found too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

from lark import Lark, Token, Tree, UnexpectedToken
from lark.parsers.lalr_interactive_parser import InteractiveParser

from growc.errors.diagnostic import Diagnostic
from growc.errors.source import SourceText
from growc.grammar.messages import Mistake, at, malformed
from growc.grammar.tree_to_ast import build
from growc.recipe.fills import FILLS, LAYER_FILLS
from growc.recipe.layer_orders import DEEPER, SHALLOWER
from growc.recipe.option_rules import GROWING, SHRINKING
from growc.recipe.ranking_rules import RANKINGS
from growc.recipe.syntax_tree import ROLES
from growc.recipe.versions import FIRST_WORDS
from growc.recipe.words import FILE, Word

MAX_OPERATORS = 100
"""The most operators and brackets in one expression, so that code may recurse over expressions."""

MAX_IN_LINE = 20
"""The most mistakes reported in one line, which is parsed again after each."""

MAX_KNOWN = 2_000
"""The most lines whose trees are kept."""

END = "$END"

BEGIN_EXPRESSION = frozenset(["INT", "NAME", "ROLE", "LAYERS", "AXIS", "MIN", "MAX", "PARAMETERS", "LPAR"])
"""The tokens that begin an expression and cannot continue one."""

TAKEN = {FILE: "text", "EXPR": "_expr", "K": "_expr", "N": "_expr", "S": "_number", "P": "_number"}
"""The arguments of words, as symbols of the grammar."""


@cache
def grammar() -> Lark:
    """The compiled grow.lark, with the rules for words from the tables.

    Its tables are cached beside Python's bytecode: lark takes ten times as long to build them as to read
    them. It builds them anew if they do not fit.
    """
    table_cache = Path(cache_from_source(__file__)).with_suffix(".lark")
    return Lark(
        Path(__file__).with_name("grow.lark").read_text(encoding="utf-8") + rules(),
        start=["line", "expression", "between"],
        parser="lalr",
        lexer="basic",
        propagate_positions=True,
        maybe_placeholders=True,
        cache=False if sys.dont_write_bytecode else str(table_cache),
    )


@cache
def keywords() -> dict[str, str]:
    """The terminals with a fixed text, and that text: `widen`, `..`, …"""
    return {item.name: item.pattern.value for item in grammar().terminals if item.pattern.type == "str"}


@cache
def later_words() -> frozenset[str]:
    """The terminals of words that were added after version 1."""
    return frozenset(n for n, text in keywords().items() if text.isidentifier() and text not in FIRST_WORDS)


def rules() -> str:
    """The grammar rules for words, made from the tables that define their meaning."""
    return "\n".join(
        [
            f"ROLE.1: /({'|'.join(role for role in ROLES if role != 'layers')})(?!\\w)/",
            _rule("fill", FILLS),
            _rule("layer_fill", LAYER_FILLS, seeded=True),
            _rule("option", GROWING),
            _rule("rescaled", SHRINKING, " -> option"),
            _rule("ranking", RANKINGS),
            _rule("deeper", DEEPER, " -> order"),
            _rule("shallower", SHALLOWER, " -> order"),
            _rule("either", {**SHALLOWER, **DEEPER}, " -> order"),
        ]
    )


def _rule(name: str, words: Mapping[str, Word], tree: str = "", *, seeded: bool = False) -> str:
    """A rule for one of some words with their arguments; it gives their tokens.

    seeded: whether the arguments of draws may follow each word.
    """
    seed = " [std] [seed]" if seeded else ""
    return f"!{name}: {' | '.join(_symbols(word) + seed + tree for word in words.values())}"


def _symbols(word: Word) -> str:
    """The symbols of a spelling."""
    parts = (TAKEN.get(part) or f'"{part}"' for part in word.spelling.split())
    return " ".join(parts) + (" [seed]" if word.seeded else "")


def tokenize(text: str) -> list[Token]:
    """The tokens of a text. Every text has tokens; meaningless characters become STRAY."""
    return list(grammar().lex(text))


def parse_tokens(source: SourceText, tokens: Sequence[Token], start: str) -> tuple[Any, list[Diagnostic]]:
    """The statement, header or expression in the tokens, or None if there is none; and the mistakes."""
    if malformed_tokens := list(_malformed(source, tokens)):
        return None, malformed_tokens
    place = tokens[0].start_pos or 0 if tokens else 0
    known = _tree(tuple((t.type, str(t), *_from(place, t)) for t in tokens), start)
    if known is not None:
        return build(known, source, place), []
    diagnostics: list[Diagnostic] = []
    last = tokens[-1].end_pos if tokens else len(source.text)
    mended = [*tokens, Token(END, "", start_pos=last, end_pos=last)]
    repaired: Token | None = None
    while True:
        refusal = _refused(tuple(token.type for token in mended), start)
        if refusal is None:
            return build(_fed(mended, start)[2], source), diagnostics
        accepted, expected = refusal
        token = mended[accepted]
        if token is repaired or len(diagnostics) == MAX_IN_LINE:  # the repair failed
            return None, diagnostics
        mistake = Mistake(source, token, expected, keywords(), mended[:accepted])
        diagnostics.append(mistake.diagnostic())
        repaired, mended[accepted : accepted + 1] = token, mistake.repair() or [token]


@lru_cache(MAX_KNOWN)
def _tree(tokens: tuple[tuple[str, str, int, int], ...], start: str) -> Tree[Token] | None:
    """The tree of a line without mistakes, kept for the next reading: an edit leaves most lines as they are.

    tokens: the type, text, start and end of each, from the start of the line.
    """
    line = [Token(kind, text, start_pos=begin, end_pos=end) for kind, text, begin, end in tokens]
    tree: Tree[Token] | None = _fed([*line, Token(END, "")], start)[2]
    return tree


@lru_cache(MAX_KNOWN)
def _refused(types: tuple[str, ...], start: str) -> tuple[int, frozenset[str]] | None:
    """The number of tokens of these types that are accepted, and the terminals that may stand behind them;
    None if all are. Kept, since the parser tries each terminal to find those that may stand somewhere.
    """
    parser, accepted, _ = _fed([Token(kind, "") for kind in types], start)
    return None if accepted == len(types) else (accepted, frozenset(parser.accepts()))


def _from(place: int, token: Token) -> tuple[int, int]:
    """The start and the end of a token, counted from a place in the text."""
    assert token.start_pos is not None
    assert token.end_pos is not None
    return token.start_pos - place, token.end_pos - place


def expected_behind(tokens: Sequence[Token]) -> frozenset[str]:
    """The terminals that may follow the beginning of a line; empty if the tokens begin no line."""
    parser, accepted, _ = _fed(tokens, "line")
    return frozenset(parser.accepts() if accepted == len(tokens) else ())


def _fed(tokens: Sequence[Token], start: str) -> tuple[InteractiveParser, int, Any]:
    """A parser after the tokens that it accepts, their number, and the tree if it accepts all of them."""
    parser, tree = grammar().parse_interactive(start=start), None
    for number, token in enumerate(tokens):
        try:
            tree = parser.feed_token(_in_place(token, parser, tokens[number + 1 : number + 2]))
        except UnexpectedToken:  # the parser's state has changed, so start again
            return _fed(tokens[:number], start)[0], number, None
    return parser, len(tokens), tree


def _in_place(token: Token, parser: InteractiveParser, behind: Sequence[Token]) -> Token:
    """The token as it is read at its place: a word of a later version is a name wherever a name may be.

    A `let` of version 1 may have this name. A word directly before an expression stays a word, since no name
    can precede an expression. behind: the next token, if there is one.
    """
    if token.type not in later_words():
        return token
    possible = parser.choices()  # much faster than `accepts`, and the same where a name may stand
    if "NAME" not in possible:
        return token
    begins = BEGIN_EXPRESSION | later_words()
    if token.type in possible and behind and behind[0].type in begins:
        return token
    return Token.new_borrow_pos("NAME", str(token), token)


def _malformed(source: SourceText, tokens: Sequence[Token]) -> Iterator[Diagnostic]:
    """Mistakes in the tokens themselves; of stray characters, which come in groups, only the first."""
    stray = operators = depth = 0
    for token in tokens:
        stray += token.type == "STRAY"
        depth += (token.type == "LPAR") - (token.type == "RPAR")
        operators += token.type in ("LPAR", "PLUS", "MINUS", "STAR", "SLASH")
        if token.type == "COMMA" and not depth:
            operators = 0
        if operators > MAX_OPERATORS:
            message = f"an expression has at most {MAX_OPERATORS} operators and brackets"
            yield Diagnostic("G107", message, at(source, token), help="give a part of it a name, with `let`")
            return
        if stray < 2 or token.type != "STRAY":
            yield from malformed(source, token)
