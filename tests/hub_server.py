"""A stand-in for the Hugging Face Hub: the few answers that its library asks for, and a log."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Repository:
    """Files of one commit. gated: the status that refuses them to all; told: names that only the list has.

    cut: files whose contents end in the middle, so many times.
    """

    files: Mapping[str, bytes]
    commit: str = COMMIT
    revisions: tuple[str, ...] = ("main", "v1", "refs/pr/1")
    gated: int = 0
    told: tuple[str, ...] = ()
    cut: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def of(folder: Path, **more: bytes) -> Repository:
        """The files of a folder, and others by name."""
        return Repository({p.name: p.read_bytes() for p in sorted(folder.iterdir())} | more)


@dataclass
class Hub:
    """The server. log: what was asked, `GET /path`; token: what the last question was signed with."""

    repositories: dict[str, Repository]
    address: str = ""
    log: list[str] = field(default_factory=list)
    token: str | None = None

    def fetched(self) -> list[str]:
        """The files whose contents were asked for."""
        return [
            line.rpartition("/")[2] for line in self.log if line.startswith("GET") and "/resolve/" in line
        ]


@contextmanager
def serving(**repositories: Repository) -> Iterator[Hub]:
    """A server that has these as `owner/NAME`."""
    hub = Hub({f"owner/{name}": one for name, one in repositories.items()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Answers", (_Answers,), {"hub": hub}))
    server.daemon_threads = True
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def ask(monkeypatch: pytest.MonkeyPatch, address: str, cache: Path, offline: bool = False) -> None:
    """Have the library of the Hub ask the server at an address, and keep its files in a folder."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "ENDPOINT", address)
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    monkeypatch.setattr("huggingface_hub.hf_api.api.endpoint", address)


class _Answers(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *words: object) -> None:  # noqa: A002 - its name in the library
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.log.append(f"{self.command} {path}")
        self.hub.token = self.headers.get("Authorization")
        parts = path.strip("/").split("/")
        listed = parts[:2] == ["api", "models"]
        owner, name, *rest = parts[2:] if listed else parts
        repository = self.hub.repositories.get(f"{owner}/{name}")
        if repository is None:
            self._send(401, b"", {"X-Error-Code": "RepoNotFound"})
        elif listed and (not rest or rest[0] == "revision"):
            self._info(repository, "/".join(rest[1:]))
        elif listed and rest[1:] != [repository.commit]:
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
        elif listed:
            names = [*repository.files, *repository.told]
            self._json([self._entry(repository, one) for one in names])
        else:
            self._file(repository, rest[1], "/".join(rest[2:]))

    def _info(self, found: Repository, revision: str) -> None:
        if revision and revision not in (*found.revisions, found.commit):
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
        else:
            siblings = [{"rfilename": name} for name in (*found.files, *found.told)]
            self._json({"id": "owner/name", "sha": found.commit, "siblings": siblings, "tags": []})

    def _entry(self, found: Repository, name: str) -> dict[str, object]:
        data = found.files.get(name, b"")
        return {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}

    def _file(self, found: Repository, revision: str, name: str) -> None:
        if found.gated:
            self._send(found.gated, b"", {"X-Error-Code": "GatedRepo"})
        elif revision != found.commit or name not in found.files:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
        else:
            data = found.files[name]
            tag = {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": found.commit}
            self._send(200, data, tag, cut=self.command == "GET" and self._cut(found, name))

    def _cut(self, found: Repository, name: str) -> bool:
        found.cut[name] = found.cut.get(name, 0) - 1
        return found.cut[name] >= 0

    def _json(self, data: object) -> None:
        self._send(200, json.dumps(data).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, data: bytes, headers: Mapping[str, str], cut: bool = False) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data[: len(data) // 2] if cut else data)
        if cut:
            self.close_connection = True
