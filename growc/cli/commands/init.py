"""`growc init`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from growc.cli.command import Command
from growc.cli.output import say, waiting
from growc.cli.shared_arguments import captured_with, take_captured_with, take_home, take_out


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `growc init`."""
    parser.add_argument("model", type=Path, metavar="MODEL")
    take_out(parser, "default: standard output", name="FILE")
    parser.add_argument("--force", action="store_true", help="replace a file that is there")
    take_captured_with(parser)
    take_home(parser)


def run(options: Namespace) -> int:
    """Write a starter recipe."""
    from growc.checkpoint.files.config_folders import described_in
    from growc.file_roles import NamedPath, model_parts, require_distinct
    from growc.files.new_file import require_new, write_file
    from growc.render.starter import init

    model, out = options.model, options.out
    if out is not None:
        require_new(out, options.force)
        require_distinct([NamedPath("FILE", out)], model_parts(model))
    with described_in(model, options.home), waiting() as advance:
        text = init(model, example_inputs=captured_with(options.inputs, model), progress=advance)
    if out is None:
        say(text.removesuffix("\n").split("\n"), fitted=False)
    else:
        write_file(out, text.encode())
        say([f"wrote `{out}`; `growc plan {out} {model}` shows what it would do"])
    return 0


INIT = Command(
    name="init",
    usage="MODEL [-o FILE] [OPTION…]",
    purpose="Write a commented recipe with all that a model can take.",
    arguments=arguments,
    run=run,
    examples=("init model.onnx -o start.grow",),
    models=lambda options: [options.model],
)
