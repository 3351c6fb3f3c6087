"""The language server: what an editor asks, answered by what growc reads.

The editor sends whole texts, which are short. Recipes are checked a moment after the last change, so that
whoever types fast is not followed key by key.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

from lsprotocol import types
from pygls.io_ import StdinAsyncReader, StdoutWriter, run_async
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path, to_fs_path

from growc.editor.completion import choices, started
from growc.editor.diagnostics import Encoding, diagnostics, location
from growc.editor.hover import definition, hover
from growc.editor.models import Sizes, model_of
from growc.editor.positions import Positions
from growc.editor.reading import Reading
from growc.errors.diagnostic import Attempt
from growc.errors.source import Source, Span
from growc.grammar.printer import format_recipe
from growc.resolve.resolve import read_file
from growc.system.limits import most
from growc.version import __version__

PAUSE = 0.01
"""Seconds after a change until a recipe is checked, in which further changes may come."""


class Editor:
    """The recipes that are open, by their URIs."""

    def __init__(self, server: LanguageServer) -> None:
        self.server = server
        self.sizes = Sizes()
        self.readings: dict[str, Reading] = {}
        self.waiting: dict[str, asyncio.TimerHandle] = {}

    @property
    def encoding(self) -> Encoding:
        """How positions are counted, as agreed with the editor."""
        return self.server.workspace.position_encoding or types.PositionEncodingKind.Utf16

    def reading(self, uri: str) -> Reading | None:
        """What is read of a recipe that is open; None where it is not."""
        document = self.server.workspace.get_text_document(uri)
        if document.version is None:  # pygls would read the file
            return None
        text, known = document.source, self.readings.get(uri)
        if known is None or known.source.text != text:
            known = self.readings[uri] = Reading(Source(name_of(uri), text), self.text_at)
        return known

    def text_at(self, path: Path) -> str:
        """The text of an included recipe: as it is open, else as it is stored."""
        for document in self.server.workspace.text_documents.values():
            if os.path.normpath(name_of(document.uri)) == os.path.normpath(path):
                return str(document.source)
        return read_file(path)

    def changed(self, uri: str, stored: bool = False) -> None:
        """Check a recipe, and those that include it; with `stored` all of them, for any file may be new."""
        name = os.path.normpath(name_of(uri))
        for other, reading in list(self.readings.items()):
            included = {os.path.normpath(source.name) for source in reading.resolved.included}
            if other != uri and (stored or name in included):
                del self.readings[other]
                self.check_soon(other)
        self.check_soon(uri)

    def check_soon(self, uri: str) -> None:
        """Check a recipe when no change has come for a moment."""
        if uri in self.waiting:
            self.waiting.pop(uri).cancel()
        self.waiting[uri] = asyncio.get_running_loop().call_later(PAUSE, self.check, uri)

    def check(self, uri: str) -> None:
        """Tell the editor what is wrong with a recipe."""
        self.waiting.pop(uri, None)
        if (reading := self.reading(uri)) is None:
            return
        version = self.server.workspace.get_text_document(uri).version
        with (wall := Attempt()):
            found = diagnostics(reading, self.encoding, address)
            published = types.PublishDiagnosticsParams(uri, found, version)
            self.server.text_document_publish_diagnostics(published)
        if wall.error:
            message = f"this is a bug in growc ({type(wall.error).__name__}): the recipe was not checked"
            told = types.ShowMessageParams(types.MessageType.Error, message)
            self.server.window_show_message(told)

    def prepare(self, uri: str) -> None:
        """Begin to read the model that a recipe names."""
        reading = self.reading(uri)
        if reading and (model := model_of(reading)):
            self.sizes.ask(model)

    def close(self, uri: str) -> None:
        """A recipe is open no longer: it has no diagnostics."""
        self.readings.pop(uri, None)
        self.server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))

    def place(
        self, document: types.TextDocumentIdentifier, position: types.Position
    ) -> tuple[Reading, Positions, int] | None:
        """The recipe that is asked about, and the offset in it."""
        reading = self.reading(document.uri)
        if reading is None or len(reading.source.text) > most("recipe_bytes"):
            return None
        places = Positions(reading.source.text, self.encoding)
        return reading, places, places.offset(position)

    def complete(self, asked: types.CompletionParams) -> list[types.CompletionItem]:
        """What may stand at a place."""
        if (found := self.place(asked.text_document, asked.position)) is None:
            return []
        reading, places, offset = found
        begin = started(reading.source, offset)
        snippets = _takes_snippets(self.server.client_capabilities)
        return [
            types.CompletionItem(
                choice.text,
                kind=choice.kind,
                detail=choice.detail or None,
                documentation=choice.meaning or None,
                sort_text=f"{number:03}",
                insert_text_format=types.InsertTextFormat.Snippet if snippets else None,
                text_edit=types.TextEdit(
                    places.range(begin, offset), choice.snippet if snippets else choice.text
                ),
            )
            for number, choice in enumerate(choices(reading, begin))
        ]

    def hover(self, asked: types.HoverParams) -> types.Hover | None:
        """What stands at a place, in words."""
        if (found := self.place(asked.text_document, asked.position)) is None:
            return None
        reading, places, offset = found
        if (said := hover(reading, offset, self.sizes)) is None:
            return None
        text, span = said
        contents = types.MarkupContent(types.MarkupKind.PlainText, text)
        return types.Hover(contents, places.range(span.start, span.end))

    def definition(self, asked: types.DefinitionParams) -> types.Location | None:
        """Where what stands at a place is defined."""
        found = self.place(asked.text_document, asked.position)
        span: Span | None = definition(found[0], found[2]) if found else None
        if found and span and span.source == found[0].source:
            return types.Location(asked.text_document.uri, found[1].range(span.start, span.end))
        return location(span, self.encoding, address) if span else None

    def format(self, asked: types.DocumentFormattingParams) -> list[types.TextEdit] | None:
        """The recipe as `growc fmt` writes it; nothing where it has mistakes, which the diagnostics say."""
        reading = self.reading(asked.text_document.uri)
        if reading is None or reading.mistakes:
            return None
        text = format_recipe(reading.recipe)
        whole = Positions(reading.source.text, self.encoding).whole
        return [] if text == reading.source.text else [types.TextEdit(whole, text)]


def name_of(uri: str) -> str:
    """The name of a recipe: its path, where it has one."""
    return to_fs_path(uri) or uri


def address(source: Source) -> str | None:
    """The URI of a file."""
    uri: str | None = from_fs_path(str(Path(source.name).absolute()))
    return uri


def _takes_snippets(capabilities: types.ClientCapabilities) -> bool:
    text = capabilities.text_document
    item = text.completion.completion_item if text and text.completion else None
    return bool(item and item.snippet_support)


def server() -> tuple[LanguageServer, Editor]:
    """A server that is not started, and what it knows of the editor."""
    made = LanguageServer("growc", __version__, types.TextDocumentSyncKind.Full)
    editor = Editor(made)

    @made.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(asked: types.DidOpenTextDocumentParams) -> None:
        editor.changed(asked.text_document.uri)
        editor.prepare(asked.text_document.uri)

    @made.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def changed(asked: types.DidChangeTextDocumentParams) -> None:
        editor.changed(asked.text_document.uri)

    @made.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def saved(asked: types.DidSaveTextDocumentParams) -> None:
        editor.changed(asked.text_document.uri, stored=True)
        editor.prepare(asked.text_document.uri)

    @made.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(asked: types.DidCloseTextDocumentParams) -> None:
        editor.close(asked.text_document.uri)

    @made.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=[" ", '"', "/"]))
    def completion(asked: types.CompletionParams) -> list[types.CompletionItem]:
        return editor.complete(asked)

    @made.feature(types.TEXT_DOCUMENT_HOVER)
    def hovered(asked: types.HoverParams) -> types.Hover | None:
        return editor.hover(asked)

    @made.feature(types.TEXT_DOCUMENT_DEFINITION)
    def defined(asked: types.DefinitionParams) -> types.Location | None:
        return editor.definition(asked)

    @made.feature(types.TEXT_DOCUMENT_FORMATTING)
    def formatted(asked: types.DocumentFormattingParams) -> list[types.TextEdit] | None:
        return editor.format(asked)

    return made, editor


def serve(stdin: BinaryIO, stdout: BinaryIO) -> None:
    """Serve an editor on two streams until it goes away. Where a signal interrupts that, a thread that waits
    for the editor is left behind.
    """
    made, editor = server()
    made.protocol.set_writer(StdoutWriter(stdout))
    reader = StdinAsyncReader(stdin, ThreadPoolExecutor(1))
    failed = made.report_server_error
    try:
        with contextlib.suppress(BrokenPipeError, SystemExit):  # the editor is gone, or says `exit`
            asyncio.run(run_async(threading.Event(), reader, made.protocol, error_handler=failed))
    finally:
        editor.sizes.close()
