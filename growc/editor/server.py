"""The language server: requests of an editor, answered from growc's reading of recipes.

The editor sends whole texts, which are short. A recipe is checked a moment after its last change, so that
fast typing does not cause a check for every key.
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
from growc.editor.models import AxesByModel, model_of
from growc.editor.positions import Positions
from growc.editor.reading import Reading
from growc.errors.diagnostic import Attempt
from growc.errors.source import SourceText, Span
from growc.grammar.printer import format_recipe
from growc.resolve.resolve import read_file
from growc.system.limits import most
from growc.version import __version__

PAUSE = 0.01
"""Seconds from a change to the check of a recipe; further changes restart the pause."""


class Editor:
    """The recipes that are open, by their URIs."""

    def __init__(self, server: LanguageServer) -> None:
        self.server = server
        self.sizes = AxesByModel()
        self.readings: dict[str, Reading] = {}
        self.waiting: dict[str, asyncio.TimerHandle] = {}

    @property
    def encoding(self) -> Encoding:
        """The position encoding that was agreed with the editor."""
        return self.server.workspace.position_encoding or types.PositionEncodingKind.Utf16

    def reading(self, uri: str) -> Reading | None:
        """The reading of an open recipe; None if it is not open."""
        document = self.server.workspace.get_text_document(uri)
        if document.version is None:  # the document is not open; pygls would read the file
            return None
        text, current = document.source, self.readings.get(uri)
        if current is None or current.source.text != text:
            current = self.readings[uri] = Reading(SourceText(name_of(uri), text), self.text_at)
        return current

    def text_at(self, path: Path) -> str:
        """The text of an included recipe: as open in the editor, else as stored."""
        for document in self.server.workspace.text_documents.values():
            if os.path.normpath(name_of(document.uri)) == os.path.normpath(path):
                return str(document.source)
        return read_file(path)

    def changed(self, uri: str, stored: bool = False) -> None:
        """Check a recipe and those that include it; with `stored` all recipes, since any file may have
        changed.
        """
        name = os.path.normpath(name_of(uri))
        for other, reading in list(self.readings.items()):
            included = {os.path.normpath(source.name) for source in reading.resolved.included}
            if other != uri and (stored or name in included):
                del self.readings[other]
                self.check_soon(other)
        self.check_soon(uri)

    def check_soon(self, uri: str) -> None:
        """Check a recipe once no change has come for a moment."""
        if uri in self.waiting:
            self.waiting.pop(uri).cancel()
        self.waiting[uri] = asyncio.get_running_loop().call_later(PAUSE, self.check, uri)

    def check(self, uri: str) -> None:
        """Send the editor the problems of a recipe."""
        self.waiting.pop(uri, None)
        if (reading := self.reading(uri)) is None:
            return
        version = self.server.workspace.get_text_document(uri).version
        with (attempt := Attempt()):
            problems = diagnostics(reading, self.encoding, address)
            published = types.PublishDiagnosticsParams(uri, problems, version)
            self.server.text_document_publish_diagnostics(published)
        if attempt.error:
            message = f"this is a bug in growc ({type(attempt.error).__name__}): the recipe was not checked"
            notice = types.ShowMessageParams(types.MessageType.Error, message)
            self.server.window_show_message(notice)

    def prepare(self, uri: str) -> None:
        """Begin to inspect the model that a recipe names."""
        reading = self.reading(uri)
        if reading and (model := model_of(reading)):
            self.sizes.ask(model)

    def close(self, uri: str) -> None:
        """Forget a recipe that was closed, and remove its diagnostics."""
        self.readings.pop(uri, None)
        self.server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))

    def place(
        self, document: types.TextDocumentIdentifier, position: types.Position
    ) -> tuple[Reading, Positions, int] | None:
        """The recipe of a request, and the offset in it; None if it is not open or too long."""
        reading = self.reading(document.uri)
        if reading is None or len(reading.source.text) > most("recipe_bytes"):
            return None
        places = Positions(reading.source.text, self.encoding)
        return reading, places, places.offset(position)

    def complete(self, params: types.CompletionParams) -> list[types.CompletionItem]:
        """The completions at a place."""
        if (request := self.place(params.text_document, params.position)) is None:
            return []
        reading, places, offset = request
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

    def hover(self, params: types.HoverParams) -> types.Hover | None:
        """The description of the word at a place."""
        if (request := self.place(params.text_document, params.position)) is None:
            return None
        reading, places, offset = request
        if (description := hover(reading, offset, self.sizes)) is None:
            return None
        text, span = description
        contents = types.MarkupContent(types.MarkupKind.PlainText, text)
        return types.Hover(contents, places.range(span.start, span.end))

    def definition(self, params: types.DefinitionParams) -> types.Location | None:
        """The place where the word at a place is defined."""
        request = self.place(params.text_document, params.position)
        span: Span | None = definition(request[0], request[2]) if request else None
        if request and span and span.source == request[0].source:
            return types.Location(params.text_document.uri, request[1].range(span.start, span.end))
        return location(span, self.encoding, address) if span else None

    def format(self, params: types.DocumentFormattingParams) -> list[types.TextEdit] | None:
        """The edits that format a recipe as `growc fmt` does; None if it has mistakes, which are shown as
        diagnostics.
        """
        reading = self.reading(params.text_document.uri)
        if reading is None or reading.mistakes:
            return None
        text = format_recipe(reading.recipe)
        whole = Positions(reading.source.text, self.encoding).whole
        return [] if text == reading.source.text else [types.TextEdit(whole, text)]


def name_of(uri: str) -> str:
    """The name of a recipe: its path if it has one."""
    return to_fs_path(uri) or uri


def address(source: SourceText) -> str | None:
    """The URI of a source's file."""
    uri: str | None = from_fs_path(str(Path(source.name).absolute()))
    return uri


def _takes_snippets(capabilities: types.ClientCapabilities) -> bool:
    text = capabilities.text_document
    item = text.completion.completion_item if text and text.completion else None
    return bool(item and item.snippet_support)


def server() -> tuple[LanguageServer, Editor]:
    """A server that is not started, and its record of the editor."""
    language_server = LanguageServer("growc", __version__, types.TextDocumentSyncKind.Full)
    editor = Editor(language_server)

    @language_server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: types.DidOpenTextDocumentParams) -> None:
        editor.changed(params.text_document.uri)
        editor.prepare(params.text_document.uri)

    @language_server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def changed(params: types.DidChangeTextDocumentParams) -> None:
        editor.changed(params.text_document.uri)

    @language_server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def saved(params: types.DidSaveTextDocumentParams) -> None:
        editor.changed(params.text_document.uri, stored=True)
        editor.prepare(params.text_document.uri)

    @language_server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: types.DidCloseTextDocumentParams) -> None:
        editor.close(params.text_document.uri)

    @language_server.feature(
        types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=[" ", '"', "/"])
    )
    def completion(params: types.CompletionParams) -> list[types.CompletionItem]:
        return editor.complete(params)

    @language_server.feature(types.TEXT_DOCUMENT_HOVER)
    def hovered(params: types.HoverParams) -> types.Hover | None:
        return editor.hover(params)

    @language_server.feature(types.TEXT_DOCUMENT_DEFINITION)
    def defined(params: types.DefinitionParams) -> types.Location | None:
        return editor.definition(params)

    @language_server.feature(types.TEXT_DOCUMENT_FORMATTING)
    def formatted(params: types.DocumentFormattingParams) -> list[types.TextEdit] | None:
        return editor.format(params)

    return language_server, editor


def serve(stdin: BinaryIO, stdout: BinaryIO) -> None:
    """Serve an editor on two streams until it disconnects.

    If a signal interrupts this, a thread that waits for the editor remains.
    """
    language_server, editor = server()
    language_server.protocol.set_writer(StdoutWriter(stdout))
    reader = StdinAsyncReader(stdin, ThreadPoolExecutor(1))
    on_error = language_server.report_server_error
    try:
        with contextlib.suppress(BrokenPipeError, SystemExit):  # the editor has disconnected or sent `exit`
            asyncio.run(
                run_async(threading.Event(), reader, language_server.protocol, error_handler=on_error)
            )
    finally:
        editor.sizes.close()
