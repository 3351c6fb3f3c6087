"""`growc report`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from growc.cli.command import Command
from growc.cli.output import say, say_json, waiting
from growc.cli.shared_arguments import (
    WITH_RECIPE,
    captured_with,
    decided,
    local_model,
    model_of,
    parameters,
    sources_and_model,
    take_home,
    take_out,
    take_recipe,
)
from growc.errors.printable import size_of


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `growc report`."""
    take_recipe(parser)
    take_out(parser, "default: report.html", name="FILE", default=Path("report.html"))
    help_text = "a model that the recipe made of MODEL, to compare with it"
    parser.add_argument("--result", type=Path, metavar="RESULT", help=help_text)
    parser.add_argument("--inputs", type=Path, metavar="FILE.npz", help="inputs to capture and compare with")
    parser.add_argument("--force", action="store_true", help="replace a file that growc did not make")
    take_home(parser)


def run(options: Namespace) -> int:
    """Write the page, and report the recipe's problems. Raises GrowError with them; G310 without a result."""
    from growc.checkpoint.files.config_folders import described_in
    from growc.file_roles import NamedPath, model_parts, require_distinct
    from growc.files.commit import require_name, require_replaceable
    from growc.files.hub import local
    from growc.files.new_file import put_file
    from growc.render.page.html import page_text
    from growc.reports.page.planned import planned

    sources, model = sources_and_model(options)
    out, inputs = options.out, options.inputs
    result = None if options.result is None else local(local_model(options.result))
    inputs = inputs if result is not None else captured_with(inputs, model)
    require_name(out, "-o")
    inputs_read = [NamedPath("the recipe", Path(s.name)) for s in sources] + [*model_parts(model)]
    inputs_read += [] if result is None else [*model_parts(result, "the result")]
    inputs_read += [] if inputs is None else [NamedPath("the file of `--inputs`", inputs)]
    require_distinct([NamedPath("FILE", out)], inputs_read)
    require_replaceable(out, model, options.force, elsewhere=", `-o FILE` writes elsewhere")
    with waiting() as advance, described_in(model, options.home):
        page, error = planned(
            sources, parameters(options), model, result, inputs, decided(options), progress=advance
        )
    data = page_text(page).encode()
    put_file(out, data)
    if error is not None:
        raise error
    if options.json:
        say_json({"written": str(out), "bytes": len(data)})
    else:
        say([f"Written: {out} ({size_of(len(data))})"])
    return 0


REPORT = Command(
    name="report",
    usage=WITH_RECIPE,
    purpose="Write a page that shows what `apply` would do.",
    arguments=arguments,
    run=run,
    examples=(
        "report wider.grow model.onnx -o report.html",
        "report wider.grow model.onnx --result wide.onnx --inputs held-out.npz",
    ),
    models=model_of,
)
