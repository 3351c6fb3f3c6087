"""docs/libraries.md, from what was measured.

python benchmarks/libraries/page.py JSON [--pruned JSON] [--page FILE]
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

RIGHT, ODD = "right", "odd"
STATUSES = (RIGHT, "as planned", "runs", "refused", "wrong", "crash")
HEAD = """# Models that others wrote

Models that growc was not developed against, whole libraries at a time: the smallest model of each module of
timm, all of torchvision, every class with a config that transformers has had since January 2026, as a module
and as a checkpoint directory, and models of one's own choice for sequences, sound and diffusion, which were
chosen before growc was run on them; of each family one as an ONNX file, by both exporters of torch. `make
libraries` writes this page and its JSON; what the JSON has already is not run again.

Asked for is the first that a model has of `channels`; `ffn` and `heads`; `hidden`. growc's own verification
has no part in it: weights, norms and running statistics are drawn off their start, and source and result run
on two inputs, in float64 where they run in it.

- **×2**: `widen … to 2 * … with neighbor copy`. The outputs are the source's, to 2e-4 of the largest.
- **/2**: `subclone … to … / 2 by magnitude unscaled`. The outputs are those of the source with the dropped
  units at zero, and norms over those that stay; in ONNX files norms go over all.
- **layers + 1**: `stack layers to layers + 1 by last with zero outputs`. The outputs are the source's.
- **state**, of modules, where ×2 is right: gradients of the source in the place of Adam's first moments
  become those of the result, for each parameter of which growc says so.
- **adapter**, of directories, where ×2 is right: a LoRA adapter of all linear layers, merged into the result,
  gives what it gives merged into the source.

*as planned*: the certificate names what is not exact, and the outputs differ. *runs*: the result runs, and
has nothing that it could be compared with. *refused*: nothing is written. *wrong*: the certificate says
exact, and the outputs differ. A size that has no half is not asked for.
"""

WAYS = {
    "directory)": ", directories",
    "dynamo)": ", ONNX by dynamo",
    "torchscript)": ", ONNX by TorchScript",
}
"""How names of groups end, by how names of models do."""


def page(models: Mapping[str, Any], pruned: Mapping[str, Any]) -> str:
    """The page, in Markdown."""
    groups: dict[str, dict[str, Any]] = {}
    for key, model in models.items():
        groups.setdefault(_group(key), {})[key] = model
    lines = [HEAD, *_summary(groups), *_pruned(models, pruned), *_others(groups), *_left_out(groups)]
    return "\n".join(lines) + "\n"


def _group(key: str) -> str:
    library, way = key.split()[0], key.rpartition(" (")[2]
    return library + WAYS.get(way, "")


def _cases(models: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for key, model in models.items():
        for name, case in model.get("cases", {}).items():
            if case["status"] != ODD:
                yield key, name, case


def _summary(groups: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    shares = "of all right | of ×2 | of states and adapters"
    yield f"| library | models | cases | {' | '.join(STATUSES)} | {shares} |"
    yield "| --- " * (len(STATUSES) + 6) + "|"
    for library, models in groups.items():
        cases = list(_cases(models))
        counts = Counter(case["status"] for _, _, case in cases)
        doubled = [case for _, name, case in cases if name.endswith("×2") or name == "any axis"]
        beside = [case for _, name, case in cases if case.get("beside") and case["status"] != "runs"]
        ran = sum("cases" in model for model in models.values())
        numbers = " | ".join(str(counts[status]) for status in STATUSES)
        shares = " | ".join(_share(some) for some in ([case for _, _, case in cases], doubled, beside))
        yield f"| {library} | {ran} | {len(cases)} | {numbers} | {shares} |"
    measured = {
        f"{m['revision']} on {m['date']}": 0 for ms in groups.values() for m in ms.values() if "date" in m
    }
    hours = sum(m.get("seconds", 0.0) for ms in groups.values() for m in ms.values()) / 3600
    yield f"\nMeasured at {', '.join(measured)}; {hours:.1f} hours of CPU time.\n" if measured else ""


def _share(cases: Sequence[Mapping[str, Any]]) -> str:
    right = sum(case["status"] == RIGHT for case in cases)
    return f"{right} of {len(cases)} ({100 * right / len(cases):.1f} %)" if cases else "–"


def _pruned(models: Mapping[str, Any], pruned: Mapping[str, Any]) -> Iterator[str]:
    if not pruned:
        return
    ran = {name: one for name, one in pruned.items() if "skipped" not in one}
    same = sum(one["status"] == "same" for one in ran.values())
    halved = [models.get(f"torchvision {name}", {}).get("cases", {}) for name in ran]
    ours = sum(any(c["status"] == RIGHT for n, c in cases.items() if n.endswith("/2")) for cases in halved)
    yield "## Beside Torch-Pruning\n"
    yield (
        f"Half of the channels of the same {len(ran)} models of torchvision by Torch-Pruning 1.6.1 (its "
        f"`BasePruner`, by magnitude): {same} give what the source does with the dropped channels at zero. "
        f"growc's / 2 does on {ours}.\n"
    )


def _others(groups: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield "## What is not right\n"
    yield "| model | case | | why |"
    yield "| --- | --- | --- | --- |"
    for models in groups.values():
        for key, name, case in _cases(models):
            if case["status"] != RIGHT:
                reason = " ".join(case["said"].split()).replace("|", "\\|")
                yield f"| {key} | {name} | {case['status']} | {reason[:300]} |"


def _left_out(groups: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield "\n## Not run\n"
    for models in groups.values():
        for key, model in models.items():
            if "skipped" in model:
                yield f"- {key}: {' '.join(model['skipped'].split())[:200]}"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("json", type=Path)
    parser.add_argument("--pruned", type=Path)
    parser.add_argument("--page", type=Path, default=Path("docs/libraries.md"))
    options = parser.parse_args()
    pruned = json.loads(options.pruned.read_text()) if options.pruned and options.pruned.exists() else {}
    options.page.write_text(page(json.loads(options.json.read_text()), pruned))


if __name__ == "__main__":
    main()
