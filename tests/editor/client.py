"""An editor, as far as the protocol goes: a process of `growc lsp`, and what is said to it and by it."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PATIENCE = 60
"""Seconds until a server that says nothing is taken for dead."""

CAPABILITIES = {"textDocument": {"completion": {"completionItem": {"snippetSupport": True}}}}


class Client:
    """A server in a process of its own, which is asked and told things by the protocol's methods."""

    def __init__(self, capabilities: Mapping[str, Any] | None = None, command: tuple[str, ...] = ()) -> None:
        self.process = subprocess.Popen(
            command or [sys.executable, "-m", "growc", "lsp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.heard: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.published: dict[str, dict[str, Any]] = {}
        self.messages: list[str] = []
        self.number = 0
        self.versions: dict[str, int] = {}
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()
        asked = {"processId": None, "rootUri": None, "capabilities": capabilities or CAPABILITIES}
        self.server = self.ask("initialize", asked)
        self.tell("initialized", {})

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.listener.join()
        self.process.stdin.close()
        self.process.stdout.close()

    def _listen(self) -> None:
        while header := self.process.stdout.readline():
            length = 0
            while header.strip():
                name, _, value = header.partition(b":")
                length = int(value) if name == b"Content-Length" else length
                header = self.process.stdout.readline()
            self.heard.put(json.loads(self.process.stdout.read(length)))
        self.heard.put(None)

    def send(self, body: bytes) -> None:
        """A message as it is."""
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def tell(self, method: str, params: object) -> None:
        """Something that has no answer."""
        self.send(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode())

    def ask(self, method: str, params: object) -> Any:
        """The answer to a question."""
        self.number += 1
        body = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        self.send(json.dumps(body).encode())
        while True:
            message = self.hear()
            if message.get("id") == self.number:
                assert "error" not in message, message
                return message["result"]

    def hear(self) -> dict[str, Any]:
        """The next message of the server."""
        message = self.heard.get(timeout=PATIENCE)
        assert message is not None, "the server closed its stream"
        if message.get("method") == "textDocument/publishDiagnostics":
            self.published[message["params"]["uri"]] = message["params"]
        if message.get("method") == "window/showMessage":
            self.messages.append(message["params"]["message"])
        return message

    def open(self, path: Path, text: str) -> str:
        """Open a recipe, which need not be stored; gives its URI."""
        uri = path.as_uri()
        self.versions[uri] = 1
        document = {"uri": uri, "languageId": "grow", "version": 1, "text": text}
        self.tell("textDocument/didOpen", {"textDocument": document})
        return uri

    def change(self, uri: str, text: str) -> None:
        """Give a recipe another text."""
        self.versions[uri] += 1
        document = {"uri": uri, "version": self.versions[uri]}
        self.tell("textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": text}]})

    def diagnostics(self, uri: str) -> list[dict[str, Any]]:
        """The diagnostics of a recipe as it is now."""
        while self.published.get(uri, {}).get("version") != self.versions[uri]:
            self.hear()
        return self.published[uri]["diagnostics"]

    def at(self, method: str, uri: str, line: int, character: int) -> Any:
        """The answer to a request about a place."""
        place = {"line": line, "character": character}
        return self.ask(f"textDocument/{method}", {"textDocument": {"uri": uri}, "position": place})
