"""`replay`: carry out the growths of a record again on another model of the same shapes.

growc.training.replay is a different thing: samples of earlier domains in later batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from growc import api
from growc.errors.arguments import checked_arguments
from growc.errors.diagnostic import wrong
from growc.errors.json_data import Json
from growc.errors.progress import Progress
from growc.errors.regular_files import require_path
from growc.file_roles import NamedPath, model_parts, require_distinct
from growc.files.commit import default_output, guard, record_path, require_name
from growc.files.hub import local
from growc.formats.compiler import is_module
from growc.formats.protocol import form_of
from growc.formats.recorded_growths import RecordedGrowth, growth_of, records_of, still_to_do
from growc.formats.source_facts import files_read, require_shapes, shapes_of, shapes_of_module
from growc.render.progress import in_python
from growc.system.workshop import scratch_folder

if TYPE_CHECKING:
    from torch import nn

    from growc.plans.plan import Plan

    Planned = Callable[[int, int, Plan], None]


@checked_arguments
def replay(
    record: str | Path,
    model: str | Path | nn.Module,
    out: str | Path | None = None,
    *,
    files: Mapping[str, str | Path] | None = None,
    inputs: str | Path | None = None,
    example_inputs: object = None,
    check: bool = True,
    force: bool = False,
    card: bool = True,
    progress: Progress | None = None,
    planned: Planned | None = None,
) -> api.Applied | nn.Module:
    """Carry out the growths of a record again on a model of the source's shapes: recipes, parameters and
    seeds.

    `record` is a model that growc made, or the `NAME.grown.json` beside it. `model` is the model with which
    the first growth began, trained again, or a model that some of the growths made; then the remaining ones
    are carried out. `files` gives the paths of files that recipes read, by their names there, if they are not
    beside the record. A file beside the record must be the one that was read. The other options are as for
    `apply`. `planned` is called with the number of a growth, the number of growths, and the plan.

    Returns the result of `apply` for the last growth, with the remarks of all. For a module in Python, with
    `example_inputs` for its forward, returns the module. Raises GrowError (G322) for a model of other shapes,
    with the name of a weight.

    >>> replay("grown.onnx", "retrained.onnx", "grown-again.onnx").written  # doctest: +SKIP
    PosixPath('grown-again.onnx')
    """
    require_path(record, "the record")
    place, file_paths = Path(record), {name: Path(path) for name, path in (files or {}).items()}
    records = records_of(place)
    if not isinstance(model, str | Path):
        if not is_module(model):
            raise wrong(f"`{str(model)[:60]}` is no model", "it is a path, or a module of torch")
        module, growths = model, _growths(records, place, file_paths)
        require_shapes(growths[0].shapes, shapes_of_module(module), type(module).__name__)
        for growth in growths:
            config = growth.config or None
            module = api.grow(module, growth.recipe, example_inputs, check=check, config=config)
        return module
    require_path(model, "the model")
    with in_python(progress) as advance:
        source = local(model, advance)
        target = Path(out) if out is not None else default_output(source)
        require_name(target, "-o")
        remaining = still_to_do(records, form_of(source).history(source), str(source))
        growths = _growths(remaining, place, file_paths, len(records) - len(remaining))
        shapes = growths[0].shapes
        require_shapes(shapes, shapes_of(source, shapes), str(source))
        written = [
            NamedPath("OUT", target),
            NamedPath("the record of OUT", record_path(target, source.is_dir())),
        ]
        require_distinct(written, model_parts(place, "the record"))
        guard(target, source, [], force)
        grow = partial(api.apply_file, inputs=inputs, check=check, card=card, progress=advance)
        with scratch_folder() as scratch:
            remarks: tuple[str, ...] = ()
            for number, growth in enumerate(growths, 1):
                last = number == len(growths)
                report_plan = None if planned is None else partial(planned, number, len(growths))
                folder = scratch / str(number)
                folder.mkdir()
                applied = grow(
                    growth.recipe,
                    source,
                    target if last else folder / source.name,
                    growth.parameters,
                    force=force,
                    config=growth.config or None,
                    planned=report_plan,
                )
                source, remarks = applied.written, (*remarks, *growth.remarks)
        return replace(applied, remarks=(*remarks, *applied.remarks))


def _growths(
    records: Sequence[Mapping[str, Json]], place: Path, files: Mapping[str, Path], already_done: int = 0
) -> list[RecordedGrowth]:
    """The growths, each with its files. Raises GrowError (G200) for a file that none of them reads."""
    growths = [
        growth_of(record, place, files, number) for number, record in enumerate(records, already_done + 1)
    ]
    names_read = dict.fromkeys(file.value for g in growths for file in files_read(g.recipe.recipe.statements))
    for name in files.keys() - names_read:
        known_names = ", ".join(f"`{file}`" for file in names_read)
        remedy = f"they read {known_names}" if known_names else "they read no files"
        raise wrong(f"no recipe that is done again reads `{name}`", remedy)
    return growths
