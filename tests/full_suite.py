"""Run tests with some Python, and write down how many passed.

    python tests/full_suite.py NAME --json FILE PYTHON [ARGUMENT…]

The arguments are pytest's. FILE gets an entry NAME: revision, date, version of Python, counts, seconds. The
exit status is pytest's.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from full_runs import Record, heed_interrupts


def main() -> int:
    heed_interrupts()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("name")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("python")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [options.python, "-m", "pytest", *options.arguments, f"--junitxml={report}"]
        status = subprocess.run(command, check=False).returncode
        counts = Counter(outcomes(report)) if report.exists() else Counter[str]()
    version = subprocess.run([options.python, "-V"], capture_output=True, text=True, check=True).stdout
    told = {"python": version.split()[-1], "status": status, "seconds": round(time.monotonic() - started)}
    Record(options.json).add(options.name, told | {name: counts[name] for name in OUTCOMES})
    return status


OUTCOMES = ("passed", "skipped", "failed")


def outcomes(report: Path) -> Iterator[str]:
    """Yield the outcome of each test of a JUnit report."""
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {part.tag for part in case}
        yield "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"


if __name__ == "__main__":
    sys.exit(main())
