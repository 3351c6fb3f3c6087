"""Every error code: its title, its exit status, and the page that `growc explain CODE` prints.

G1xx is syntax and G2xx what is wrong without looking at a model (both exit 2); G3xx a model that cannot be
read or cannot become what is asked (3); G4xx a judgement that failed (1); G5xx what the system refused (4);
G900 an internal error (70). The pages are pages.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class Code:
    """What a code stands for."""

    title: str
    status: int
    explanation: str


PAGE = re.compile(r"^## (G\d+): ([^\n]+) \(exit status (\d+)\)\n(.+?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)

CODES = {
    code: Code(title, int(status), page.strip())
    for code, title, status, page in PAGE.findall((files(__package__) / "pages.md").read_text("utf-8"))
}
"""Every code that a diagnostic may carry, in order."""
