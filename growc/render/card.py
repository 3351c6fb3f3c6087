"""The body of a model card, in Markdown: the model's source, its recipe, and what is known of it.

Text from models and recipes stands only in fences, which none of it can end.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from growc.checkpoint.files.directory import config_of
from growc.checkpoint.files.pieces import is_distributed
from growc.dialects.transformers.named_class import named_class
from growc.errors.json_data import Json, texts
from growc.errors.printable import printable
from growc.formats.provenance import recipe_lines
from growc.render.certificate import certificate_lines
from growc.render.text import count, many, short, table
from growc.system.fetched_models import reference_of
from growc.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from growc.errors.source import SourceText
    from growc.passes.compilation import Result
    from growc.plans.plan import Plan
    from growc.resolve.bound import Resolved
    from growc.verification.verify import Verification

PAPER = re.compile(r"arxiv:\s*(\d{4}\.\d{4,5})|(https?://[\w./:#?=&%~+-]*[\w/])", re.IGNORECASE | re.ASCII)
"""The reference of a paper in a comment."""
REFERENCE = re.compile(r"hf://[\w./@+-]+", re.ASCII)
"""The reference of a fetched source in the record of an earlier growth, which may come from elsewhere."""


@dataclass(frozen=True)
class CardContents:
    """The content of a card.

    reference: that of the source, with its commit, if it was fetched. loader: the class that loads the
    result, by module and name. recipe: its lines, comments too. earlier: the records of the growths before,
    the first one first. options: the other options of the command line. inputs_given: whether it was
    measured on the caller's inputs.
    """

    plan: Plan
    reference: str
    loader: tuple[str, str]
    distributed: bool
    recipe: Sequence[str]
    earlier: Sequence[Mapping[str, Json]]
    options: Sequence[str]
    verification: Verification | None
    inputs_given: bool


def card_of(
    c: Result,
    sources: Sequence[SourceText],
    resolved: Resolved,
    options: Sequence[str],
    result: Path,
    verification: Verification | None,
    earlier: Sequence[Mapping[str, Json]],
) -> str:
    """Return the body of the card of a result's directory. `earlier`: the records of its source."""
    own, named = named_class(), config_of(result).get("architectures")
    name = str(named[0]) if isinstance(named, list) and named else ""
    loader = ("transformers", name if name.isidentifier() else "AutoModel")
    growth = CardContents(
        c.plan,
        reference_of(c.path),
        loader if own is None else (own.__module__, own.__qualname__),
        is_distributed(result),
        recipe_lines(sources, resolved, comments=True),
        earlier,
        options,
        verification,
        "--inputs" in options,
    )
    return card_text(growth)


def options_of(
    params: Mapping[str, str], config: Mapping[str, object], others: Mapping[str, str], inputs_given: bool
) -> list[str]:
    """Return the command-line words for all that a caller asked for beside the recipe."""
    words = [word for name, value in params.items() for word in ("-p", f"{name}={value}")]
    words += [word for name, value in config.items() for word in ("--config", f"{name}={value}")]
    words += [word for option, value in others.items() if value for word in (option, value)]
    return [*words, *(("--inputs", "FILE.npz") if inputs_given else ())]


def card_text(growth: CardContents) -> str:
    """Return the body of the card."""
    return "\n".join(_lines(growth)) + "\n"


def _lines(growth: CardContents) -> Iterator[str]:
    plan, (_, name) = growth.plan, growth.loader
    source = f"`{growth.reference}`" if growth.reference else "a checkpoint directory"
    yield f"# A grown {name}"
    yield from ("", f"growc {__version__} made this model from {source} by the recipe below.", "")
    yield from ("## Recipe", "", *fenced(growth.recipe, "grow"), "")
    yield from _papers(growth.recipe)
    yield from ("## Is it the same function?", "")
    remarks = [*(f"warning: {one}" for one in plan.warnings), *(f"note: {one}" for one in plan.notes)]
    yield from (*fenced([*certificate_lines(plan.certificate), *remarks]), "", _measured(growth), "")
    yield from ("## Sizes", "", *fenced(_sizes(plan)), "")
    yield from ("## Use", "", *_use(growth), "")
    command = ["growc", "apply", "recipe.grow", growth.reference or "SOURCE", "-o", "GROWN", *growth.options]
    places = (
        "GROWN is the new folder."
        if growth.reference
        else "SOURCE is the source's folder, GROWN the new one."
    )
    yield from ("## Make it again", "", f"Save the recipe above as `recipe.grow`. {places}", "")
    yield from fenced([shlex.join(command)], "sh")
    if growth.earlier:
        yield from ("", "## Earlier growths", "", "The source was grown itself, by these recipes in order.")
    for record in growth.earlier:
        place = str(record.get("source", ""))
        yield from ("", *([f"From `{place}`:", ""] if REFERENCE.fullmatch(place) else []))
        yield from fenced(texts(record["recipe"]), "grow")


def fenced(lines: Iterable[str], kind: str = "") -> Iterator[str]:
    """Yield lines in a fence that is longer than any in them."""
    shown = [printable(line) for line in lines]
    runs = [len(run) for line in shown for run in re.findall("`+", line)]
    fence = "`" * max(3, *(run + 1 for run in (0, *runs)))
    yield from (fence + kind, *shown, fence)


def _papers(recipe: Sequence[str]) -> Iterator[str]:
    """Yield the papers that comments of the recipe name."""
    comments = [line.partition("#")[2] for line in recipe]
    matches = [match for line in comments for match in PAPER.finditer(line)]
    places = dict.fromkeys(f"https://arxiv.org/abs/{match[1]}" if match[1] else match[2] for match in matches)
    if places:
        yield from ("## Papers", "", "The recipe names these; cite them with the model.", "")
        yield from (*(f"- <{place}>" for place in places), "")


def _measured(growth: CardContents) -> str:
    """Return how far the outputs differ, and on which inputs."""
    if (verification := growth.verification) is None:
        return "The outputs of both models were not compared."
    cases = many(verification.cases, "case")
    inputs = f"{cases} of inputs that the caller gave" if growth.inputs_given else f"{cases} that growc drew"
    sentence = f"Measured on {inputs}, the outputs differ by {short(verification.relative)} of their size"
    if growth.plan.certificate.exact:
        sentence += ", which is no more than rounding explains" if not verification.refutes_exact() else ""
    return f"{sentence}."


def _sizes(plan: Plan) -> Iterator[str]:
    """Yield parameters and axes, before and after."""
    rows = [("parameters", *map(count, plan.parameters))]
    rows += [
        (name, "/".join(map(str, change.before)), "/".join(map(str, change.after)))
        for name, change in plan.axes.items()
    ]
    return table([("", "before", "after"), *rows], "<>>")


def _use(growth: CardContents) -> Iterator[str]:
    """Yield the code that loads the result."""
    if growth.distributed:
        yield "This is a distributed checkpoint: `torch.distributed.checkpoint` loads it."
        return
    module, name = growth.loader
    code = [f"from {module} import {name}", "", f'model = {name}.from_pretrained("GROWN")']
    yield from fenced(code, "python")
