"""The error codes: the title and exit status of each, and the page that `growc explain CODE` prints.

G1xx is wrong syntax, and G2xx an error found without looking at a model (both exit 2). G3xx is a model that
cannot be read or cannot become what is asked (3). G4xx is a judgement that failed (1), G5xx a refusal of the
system (4), and G900 an internal error (70). The pages are in pages.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Code:
    """The meaning of a code."""

    title: str
    status: int
    explanation: str


PAGE = re.compile(r"^## (G\d+): ([^\n]+) \(exit status (\d+)\)\n(.+?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)

CODES = {
    code: Code(title, int(status), page.strip())
    for code, title, status, page in PAGE.findall(Path(__file__).with_name("pages.md").read_text("utf-8"))
}
"""Every code that a diagnostic may carry, in order."""
