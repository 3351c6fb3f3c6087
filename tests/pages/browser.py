"""A headless Chromium, spoken to over pipes by its DevTools protocol."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
"""The browser of this machine, if there is one."""

OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
SAID = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
"""Events that a console shows."""


class Tab:
    """One page of a browser. events: all that the browser told since the last page was opened."""

    def __init__(self, commands: int, answers: int) -> None:
        self.commands, self.answers = commands, answers
        self.rest, self.count, self.session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        message |= {"sessionId": self.session} if self.session else {}
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.next()
            if answer.get("id") == self.count:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self.events.append(answer)

    def next(self) -> dict[str, Any]:
        """The next message of the browser."""
        while b"\0" not in self.rest:
            self.rest += os.read(self.answers, 1 << 16)
        message, _, self.rest = self.rest.partition(b"\0")
        return dict(json.loads(message))

    def open(self, path: Path, *, width: int = 1000, scheme: str = "light") -> None:
        """Load a page."""
        self.events.clear()
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url=path.resolve().as_uri())
        while "Page.loadEventFired" not in [e.get("method") for e in self.events]:
            self.events.append(self.next())

    def value(self, script: str) -> Any:
        """The value of a script."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    @property
    def said(self) -> list[dict[str, Any]]:
        """All that the console shows."""
        return [e for e in self.events if e.get("method") in SAID]

    @property
    def asked(self) -> list[str]:
        """The addresses that were asked for."""
        return [
            e["params"]["request"]["url"]
            for e in self.events
            if e.get("method") == "Network.requestWillBeSent"
        ]


@contextmanager
def opened(profile: Path) -> Iterator[Tab]:
    """A browser with a profile of its own."""
    assert PROGRAM is not None
    read_commands, commands = os.pipe()
    answers, write_answers = os.pipe()

    def third_and_fourth() -> None:
        moved = [fcntl.fcntl(end, fcntl.F_DUPFD, 5) for end in (read_commands, write_answers)]
        for place, end in zip((3, 4), moved, strict=True):
            os.dup2(end, place)

    line = [PROGRAM, *OPTIONS, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(line, preexec_fn=third_and_fourth, close_fds=False, **quiet) as process:
        os.close(read_commands)
        os.close(write_answers)
        try:
            yield Tab(commands, answers)
        finally:
            process.terminate()
            os.close(commands)
            os.close(answers)
