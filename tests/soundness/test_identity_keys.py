"""Objects themselves are keys, not their `id()`, which another object may have once the first is gone."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
IDENTITY = re.compile(r"(?<![\w.])id\(|\bmap\(id\b")

ALLOWED = {
    "growc/checkpoint/classes/load_state_dict.py": (1, "the memo of deepcopy has ids as its keys"),
    "growc/dialects/torch/emit/grown_module.py": (1, "the memo of deepcopy has ids as its keys"),
    "growc/dialects/torch/emit/rebuild.py": (1, "a symbolic size has no hash"),
    "growc/dialects/torch/run/run_module.py": (1, "the memo of deepcopy has ids as its keys"),
    "growc/dialects/transformers/config/shapes.py": (1, "a module's state may hold things that have no hash"),
}
"""How often a file asks for an `id()`, and why."""


def test_ids_are_keys_only_of_what_has_no_hash():
    counts = {
        str(path.relative_to(ROOT)): len(IDENTITY.findall(path.read_text()))
        for folder in ("growc", "passes", "grammar")
        for path in (ROOT / folder).rglob("*.py")
    }
    assert {f: n for f, n in counts.items() if n} == {f: n for f, (n, _) in ALLOWED.items()}
