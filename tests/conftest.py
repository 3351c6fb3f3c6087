"""Fixtures that several folders of tests share.

Golden files hold what is printed, beside the test; `pytest --update-golden` renews them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from zlib import crc32

import pytest
import slow
from full_runs import heed_interrupts
from hypothesis import HealthCheck, settings
from models import Models, digest

settings.register_profile(
    "tests",
    deadline=None,
    max_examples=120,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],  # a busy machine is no fault of a test
)
settings.load_profile("tests")

heed_interrupts()

EXTRAS = ("torch", "transformers", "safetensors", "onnxscript", "accelerate", "yaml")
MISSING = [name for name in EXTRAS if getattr(find_spec(name), "origin", None) is None]
"""The folder `tests/torch` is no package, but could be taken for one."""
PARTS = tuple(str(Path(__file__).parents[1] / name) for name in ("tests", "examples", "benchmarks"))


class Skipping:
    """Skips tests that import what `growc[torch]` brings, or modules that need it, where that is missing. To
    functions of growc it is missing.
    """

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and name.partition(".")[0] in MISSING:
            if frame.f_code.co_filename.startswith(PARTS):
                pytest.skip(f"needs {name}", allow_module_level=True)
            importing = "importlib" in frame.f_code.co_filename or frame.f_code.co_name == "<module>"
            frame = frame.f_back if importing else None


if MISSING:
    sys.meta_path.insert(0, Skipping())

Golden = Callable[[Path, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files instead of comparing")
    parser.addoption(
        "--record-slow", action="store_true", help="write the slow cases of this run to slow.json"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--record-slow") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(slow.Recorder())


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark `soak`: slow cases, and cases of a test marked `sampled(n)` but the first and about one of n."""
    slow.mark(items)
    seen: set[str] = set()
    for item in items:
        sampled = item.get_closest_marker("sampled")
        test = item.nodeid.split("[")[0]
        if sampled is not None and test in seen and crc32(item.nodeid.encode()) % sampled.args[0]:
            item.add_marker(pytest.mark.soak)
        seen.add(test)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare a text with a golden file, or write the file."""
    update = request.config.getoption("--update-golden", default=False)
    if update and os.environ.get("CI"):
        pytest.fail("golden files are for people to update, not for CI")

    def compare(path: Path, actual: str) -> None:
        if update:
            path.write_bytes(actual.encode())
        assert path.exists(), f"there is no {path.name}: run with --update-golden and read what it writes"
        assert actual == path.read_bytes().decode()

    return compare


@pytest.fixture(scope="session")
def models(request: pytest.FixtureRequest) -> Models:
    """Small exported models; kept between sessions for as long as nothing that makes them changes."""
    return Models(request.config.cache.mkdir(f"growc-models-{digest()}"))
