"""Read a whole text: its lines, blocks, comments and blank lines.

Every line is parsed separately. A line ends at a line break outside of brackets, at `{`, which opens a block,
and at `}`. So a mistake is confined to its line, and all other lines are checked in the same pass.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise, zip_longest

from lark import Token

from growc.errors.diagnostic import Diagnostic
from growc.errors.source import SourceText, Span
from growc.grammar.messages import FORMS, at
from growc.grammar.parser import parse_tokens, tokenize
from growc.grammar.tree_to_ast import Header
from growc.recipe.expression import UNKNOWN, Expr, Name
from growc.recipe.syntax_tree import Blank, Comment, Item, Language, Let, RecipeTree, Scope, Scoped
from growc.recipe.versions import FIRST_WORDS
from growc.system.limits import beyond

MAX_BLOCKS = 20
"""The most scopes around a statement."""

MAX_MISTAKES = 1_000
"""The most mistakes in one text; after these, reading stops."""

VERBS = frozenset(verb.upper() for verb in FIRST_WORDS.intersection(FORMS))
"""The verbs of version 1. Later ones may be names, and so may start a line in brackets."""


def read(source: SourceText) -> tuple[RecipeTree, list[Diagnostic]]:
    """The recipe in a text, as far as it can be read, and all mistakes in it."""
    if problem := beyond("recipe_bytes", f"`{source.name}` has", len(source.text), code="G107"):
        return RecipeTree(), [problem]
    reader = _Reader(source)
    try:
        recipe = reader.read()
    except _EnoughError:
        recipe = RecipeTree()
    return recipe, sorted(reader.diagnostics, key=lambda problem: problem.span.start if problem.span else 0)


def read_expression(source: SourceText, start: int = 0) -> tuple[Expr | None, list[Diagnostic]]:
    """The expression that forms a text from `start` on, and all mistakes in it."""
    tokens = tokenize(" " * start + source.text[start:])
    return parse_tokens(source, [token for token in tokens if token.type != "NEWLINE"], "expression")


def line_before(source: SourceText, offset: int) -> list[Token] | None:
    """The tokens of an offset's line up to the offset; None inside a comment."""
    tokens = tokenize(source.text[:offset])
    if tokens and tokens[-1].type == "COMMENT":
        return None
    reader = _LineReader(source)
    for token, following in pairwise([*tokens, Token("NAME", "")]):
        reader.take(token, following)
    return reader.line


@dataclass
class _Body:
    """A body that is being read.

    scope: None for the outermost block, and if the scope could not be read.
    """

    scope: Scope | None = None
    start: int = 0
    brace: Token | None = None
    body: list[Item] = field(default_factory=list)


class _EnoughError(Exception):
    """A text exceeds a limit of the reader."""


class _Reader:
    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.diagnostics: list[Diagnostic] = []
        self.blocks = [_Body()]
        self.line: list[Token] = []
        self.comments: list[Token] = []
        self.brackets: list[Token] = []
        self.lines = 0
        self.said = False  # whether anything but comments was read
        self.breaks = 1  # since the last item; two or more leave a blank line

    def read(self) -> RecipeTree:
        tokens = tokenize(self.source.text)
        for token, following in zip_longest(tokens, tokens[1:]):
            self.take(token, following)
        self.end_line()
        for block in self.blocks[1:]:
            assert block.brace is not None
            self.report("G105", "this `{` is never closed", block.brace)
        while len(self.blocks) > 1:
            self.close(len(self.source.text))
        return RecipeTree(tuple(self.blocks[0].body))

    def take(self, token: Token, following: Token | None) -> None:
        match token.type:
            case "NEWLINE":
                # A verb at the start of a line ends a bracket that was forgotten: no verb can be inside one.
                if not self.brackets or following is None or following.type in VERBS | {"RBRACE"}:
                    self.end_line()
                    self.breaks += 1
            case "COMMENT" if self.line:
                self.comments.append(token)
            case "COMMENT":
                self.add_comment(token, trailing=not self.breaks)
            case "LBRACE":
                self.line.append(token)
                self.end_line()
            case "RBRACE":
                self.end_line()
                self.end_block(token)
            case _:
                if token.type == "LPAR":
                    self.brackets.append(token)
                if token.type == "RPAR" and self.brackets:
                    self.brackets.pop()
                self.line.append(token)

    def end_line(self) -> None:
        line, comments, brackets = self.line, self.comments, self.brackets
        self.line, self.comments, self.brackets = [], [], []
        if not line:
            return
        body = self.blocks[-1].body
        if not self.breaks and body and isinstance(body[-1], Scoped):
            self.report("G104", "a statement starts on a line of its own", line[0], "after this `}`")
        end = at(self.source, line[-1]).end
        trailing = [comment for comment in comments if at(self.source, comment).start >= end]
        for comment in comments:
            if comment not in trailing:
                self.add_comment(comment, trailing=False)
        self.add_line(line, brackets)
        for comment in trailing:
            self.add_comment(comment, trailing=True)

    def add_line(self, line: list[Token], brackets: list[Token]) -> None:
        self.lines += 1
        if problem := beyond("statements", "a recipe has", self.lines, at(self.source, line[0]), "G107"):
            self.diagnostics.append(problem)
            raise _EnoughError
        if brackets:
            self.report("G105", "this `(` is never closed", brackets[-1])
            node = None
        else:
            node, mistakes = parse_tokens(self.source, line, "line")
            self.add_mistakes(*mistakes)
        if line[-1].type == "LBRACE":
            self.open_block(node, line)
        elif node is None and [token.type for token in line[:2]] == ["LET", "NAME"]:
            # The name is defined even without a valid value, so its uses are no mistakes.
            target = Name(str(line[1]), span=at(self.source, line[1]))
            self.add(Let(target, UNKNOWN, span=target.span))
        elif node is not None and not isinstance(node, Header):
            self.add(node)

    def open_block(self, node: object, line: list[Token]) -> None:
        if len(self.blocks) == MAX_BLOCKS + 1:
            self.report("G107", f"scopes nest at most {MAX_BLOCKS} deep", line[-1])
        deep = len(self.blocks) > MAX_BLOCKS
        scope = node.scope if isinstance(node, Header) and not deep else None
        self.said = True
        self.separate()
        self.blocks.append(_Body(scope, line[0].start_pos or 0, line[-1]))
        self.breaks = 0

    def end_block(self, brace: Token) -> None:
        if len(self.blocks) == 1:
            self.report("G105", "this `}` closes nothing", brace)
        else:
            assert brace.end_pos is not None
            self.close(brace.end_pos)

    def close(self, end: int) -> None:
        block = self.blocks.pop()
        span = Span(self.source, block.start, end)
        items = [Scoped(block.scope, tuple(block.body), span=span)] if block.scope else block.body
        self.blocks[-1].body += items
        self.breaks = 0

    def add_comment(self, token: Token, trailing: bool) -> None:
        comment = Comment(token[1:].rstrip(), trailing, span=at(self.source, token))
        if trailing:
            self.blocks[-1].body.append(comment)
        else:
            self.add(comment)

    def add(self, item: Item) -> None:
        if isinstance(item, Language) and self.said:
            message = "`language` stands before every other statement"
            self.add_mistakes(Diagnostic("G104", message, item.span, help="move it to the top of the recipe"))
        self.said = self.said or not isinstance(item, Comment)
        self.separate()
        self.blocks[-1].body.append(item)
        self.breaks = 0

    def separate(self) -> None:
        if self.breaks > 1 and self.blocks[-1].body:
            self.blocks[-1].body.append(Blank())

    def report(self, code: str, message: str, token: Token, label: str = "") -> None:
        self.add_mistakes(Diagnostic(code, message, at(self.source, token), label))

    def add_mistakes(self, *mistakes: Diagnostic) -> None:
        self.diagnostics += mistakes
        if len(self.diagnostics) > MAX_MISTAKES:
            span = self.diagnostics[MAX_MISTAKES].span
            message = f"there are more than {MAX_MISTAKES:,} mistakes: the rest of the text is not read"
            self.diagnostics[MAX_MISTAKES:] = [Diagnostic("G107", message, span)]
            raise _EnoughError


class _LineReader(_Reader):
    """A reader that only separates lines."""

    def add_line(self, line: list[Token], brackets: list[Token]) -> None:
        pass

    def end_block(self, brace: Token) -> None:
        self.breaks = 0
