"""Grow the checkpoint directory of every transformers model of the zoo, and of more: a table of outcomes.

    python tests/checkpoint/sweep.py [NAME…] [--recipe RECIPE] [--json FILE] [--page FILE]

Cases that the file has already are not run again; the page is written from it. A directory is saved by its
class, grown, and loaded by `from_pretrained`; source and result run on the zoo's inputs. growc's own
verification has no part in it.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "zoo"))

import torch
import transformers
import zoo
from facts import Facts
from registry import KNOWN, Built, build
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parent))

import further_images
import further_texts
import more

from growc import api
from growc.errors.diagnostic import Attempt, GrowError

TABLES = (zoo, further_images, further_texts, more)
"""All that make an architecture known, in order: the zoo is what is known once it is loaded."""
CLOSE = 2e-4
"""Outputs of an exact result differ by less, relative to the largest number."""
EXACT, AS_PLANNED, AS_CERTIFIED, REFUSED, WRONG = "exact", "as planned", "as certified", "refused", "wrong"
"""The certificate is exact, and the outputs are the source's; it is not, and they are those of the planned
program; the certificate names what the class computes otherwise; nothing was written, for a reason; all
else."""
OTHERWISE = "computes from its config what no weight makes up for"


def doubled(facts: Facts) -> Iterator[str]:
    """All widths times two, of those that the model has."""
    if facts.convolutional:
        yield "widen channels to 2 * channels with cyclic copy"
        return
    if facts.hidden:
        yield "widen hidden to 2 * hidden with cyclic copy"
    if facts.heads:
        yield "widen heads to 2 * heads with neighbor copy"
    if facts.ffn:
        yield "widen ffn to 2 * ffn with cyclic copy"


def wider(facts: Facts) -> Iterator[str]:
    """One width times one and a half."""
    if facts.ffn:
        yield "widen ffn to 3 * ffn / 2 with uniform copy"


def deeper(facts: Facts) -> Iterator[str]:
    """Two more layers that do nothing yet: of a post-norm model they would."""
    if facts.layers and facts.stream != "post":
        yield "stack layers to layers + 2 by last with zero outputs"


def halved(facts: Facts) -> Iterator[str]:
    """Half of the layers, or one, and half of what they hold."""
    if facts.layers and max(facts.layers) > 1:
        odd = any(n % 2 for n in facts.layers)
        yield f"subclone layers to {'1' if odd else 'layers / 2'} by even"
    if facts.ffn:
        yield "subclone ffn to ffn / 2 by magnitude"


RECIPES: Mapping[str, Callable[[Facts], Iterator[str]]] = {
    "all ×2": doubled,
    "ffn ×1.5": wider,
    "layers + 2": deeper,
    "half": halved,
}


@dataclass(frozen=True)
class Outcome:
    """The outcome of one case. difference: from the source or the planned program, relative."""

    status: str
    said: str = ""
    difference: float = 0.0
    seconds: float = 0.0


def names() -> list[str]:
    """The models of the zoo that transformers saves by itself."""
    return [name for name, blueprint in KNOWN.items() if blueprint.pick is not None]


def recipe_of(name: str, recipe: str) -> str:
    """The text of a recipe for a model; empty where it has nothing to act on."""
    return "\n".join(RECIPES[recipe](KNOWN[name].facts))


def saved(name: str, folder: Path) -> Path:
    """The model's directory."""
    module: Any = build(name).module
    module.save_pretrained(folder / "source")
    return folder / "source"


def loaded(name: str, path: Path) -> nn.Module:
    """The class with the weights of a directory. Raises AssertionError where one is missing or unexpected."""
    chosen: Any = type(KNOWN[name].make("eager"))
    module, report = chosen.from_pretrained(path, output_loading_info=True)
    assert not any(report.values()), f"loading: {report}"
    try:
        outputs(name, module.eval())
    except RuntimeError as error:
        if "meta" not in str(error):
            raise
        tensors = module.state_dict()  # from_pretrained leaves constants of some classes without values
        module = chosen(module.config)
        module.load_state_dict(tensors)
    return module.eval()


def outputs(name: str, module: nn.Module) -> list[Tensor]:
    """All outputs on all inputs of the zoo, as they are picked there."""
    blueprint = KNOWN[name]
    assert blueprint.pick is not None
    tensors: list[Tensor] = []
    for feed in build(name).feeds:
        with torch.no_grad():
            tensors += blueprint.pick(module(**feed, **blueprint.fixed))
    return tensors


def difference(ours: list[Tensor], theirs: list[Tensor]) -> float:
    """The largest of all, relative to the largest number of an output. Raises AssertionError."""
    largest = 0.0
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape, f"outputs of {list(a.shape)} and {list(b.shape)}"
        assert bool(b.isfinite().all()), "not finite"
        largest = max(largest, float((a - b).abs().max() / a.abs().max()))
    return largest


def planned(name: str, text: str, source: nn.Module) -> list[Tensor]:
    """The outputs of the planned program, without a class.

    A program that goes step by step is one for each length.
    """
    model: Built = build(name)
    model.module.load_state_dict(source.state_dict())  # no file has the tensors that the class computes

    def grown(feed: Mapping[str, Any]) -> Any:
        return api.grow(model.module, text, dict(feed), check=False, keep_class=False)

    first, results = grown(model.feeds[0]), []
    with torch.no_grad():
        for feed in model.feeds:
            try:
                results.append(first(**feed))
            except (IndexError, RuntimeError):
                results.append(grown(feed)(**feed))
    return [tensor for one in results for tensor in (one if isinstance(one, tuple) else (one,))]


def judged(name: str, text: str, source: Path, target: Path) -> Outcome:
    """Grow a directory, and compare what comes of it."""
    start = time.monotonic()
    with Attempt() as attempt:  # a crash is an outcome as well
        done = api.apply(text, source, target, check=False, force=True)
    if isinstance(attempt.error, GrowError):
        first = attempt.error.diagnostics[0]
        message = "; ".join([f"{first.code} {first.message}", *first.notes, first.help or ""])
        return Outcome(REFUSED, message.strip("; "), 0.0, time.monotonic() - start)
    if attempt.error is not None:
        traceback.print_exc(file=sys.stderr)
        return Outcome(
            WRONG, f"{type(attempt.error).__name__}: {attempt.error}", 0.0, time.monotonic() - start
        )
    seconds, exact = time.monotonic() - start, done.plan.certificate.exact
    try:
        results = outputs(name, loaded(name, target))
        whole = loaded(name, source)
        wanted = outputs(name, whole) if exact else planned(name, text, whole)
        off = difference(wanted, results)
    except (AssertionError, RuntimeError, ValueError, GrowError) as error:
        return Outcome(WRONG, f"{type(error).__name__}: {error}", 0.0, seconds)
    gaps = "; ".join(gap.cause for gap in done.plan.certificate.gaps[:2])
    if OTHERWISE in gaps:
        return Outcome(AS_CERTIFIED, gaps, off, seconds)
    if not off <= CLOSE:
        return Outcome(WRONG, f"{'claimed exact' if exact else gaps}", off, seconds)
    return Outcome(EXACT if exact else AS_PLANNED, gaps, off, seconds)


TOP = """# Checkpoint directories of transformers

A directory in, a directory out: for each class a small model with random weights is saved, grown by
`growc apply`, and loaded by `from_pretrained`, which says whether a tensor is missing or unexpected. Source
and result run on the same inputs; the number is the largest difference, relative to the largest output.
`make coverage` writes this page.

| recipe | statements |
| --- | --- |
| all ×2 | `widen hidden to 2 * hidden with cyclic copy`, `heads` by `neighbor copy`, `ffn` by `cyclic copy` |
| ffn ×1.5 | `widen ffn to 3 * ffn / 2 with uniform copy` |
| layers + 2 | `stack layers to layers + 2 by last with zero outputs`, where norms stand before branches |
| half | `subclone layers to layers / 2 by even`, `subclone ffn to ffn / 2 by magnitude` |

- **exact**: the certificate says so, and the outputs are the source's.
- **as planned**: the certificate names what is not exact; the outputs are those of the planned program.
- **as certified**: the class computes numbers from its config that no weight makes up for; the certificate
  names them, and the outputs differ.
- **refused**: nothing is written, for the reason below.

"""


def page(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """The table as Markdown."""
    cases = [(n, r, case) for n, row in found.items() for r, case in row.items()]
    counts = Counter(case["status"] for _, _, case in cases)
    held = len(cases) - counts[REFUSED] - counts[WRONG]
    summary = ", ".join(f"{counts[s]} {s}" for s in (EXACT, AS_PLANNED, AS_CERTIFIED, REFUSED, WRONG))
    lines = [f"{held} of {len(cases)} cases of {len(found)} classes are written: {summary}.", ""]
    lines += [f"| class | {' | '.join(RECIPES)} |", "| --- " * (len(RECIPES) + 1) + "|"]
    for name in sorted(found):
        shown = [_cell(found[name].get(recipe)) for recipe in RECIPES]
        lines.append(f"| {type(KNOWN[name].make('eager')).__name__} (`{name}`) | {' | '.join(shown)} |")
    lines += ["", "## Why the rest is refused", ""]
    lines += [f"- `{n}`, {r}: {case['said']}" for n, r, case in cases if case["status"] == REFUSED]
    certified = [f"- `{n}`, {r}: {case['said']}" for n, r, case in cases if case["status"] == AS_CERTIFIED]
    lines += ["", "## What is certified as a gap", "", *certified]
    return TOP + "\n".join(lines) + "\n"


def _cell(case: Mapping[str, Any] | None) -> str:
    if case is None:
        return "–"
    if case["status"] in (REFUSED, WRONG):
        return f"**{case['status']}**"
    return f"{case['status']}, {case['difference']:.0e}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--recipe", default="", help="of these alone, with commas between them")
    parser.add_argument("--json", type=Path, help="a file for the outcomes")
    parser.add_argument("--page", type=Path, help="a Markdown file of all outcomes")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    transformers.utils.logging.disable_progress_bar()
    recipes = [r for r in RECIPES if not options.recipe or r in options.recipe.split(",")]
    outcomes: dict[str, dict[str, Any]] = {}
    if options.json and options.json.exists():
        outcomes = json.loads(options.json.read_text())
    for name in options.names or names():
        left = [r for r in recipes if recipe_of(name, r) and r not in outcomes.get(name, {})]
        if not left:
            continue
        with tempfile.TemporaryDirectory(prefix="growc-") as folder:
            source = saved(name, Path(folder))
            for recipe in left:
                outcome = judged(name, recipe_of(name, recipe), source, Path(folder) / "grown")
                outcomes.setdefault(name, {})[recipe] = asdict(outcome)
                row = f"{name:14} {recipe:10} {outcome.status:10} {outcome.difference:7.0e}"
                print(f"{row} {outcome.seconds:6.1f} s  {outcome.said[:400]}", flush=True)
                if options.json:
                    options.json.write_text(json.dumps(outcomes, indent=1))
    if options.page:
        options.page.write_text(page(outcomes), encoding="utf-8")
    print(Counter(case["status"] for cases in outcomes.values() for case in cases.values()))


if __name__ == "__main__":
    main()
