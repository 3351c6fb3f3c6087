"""`growc explain`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from growc.cli.command import Command
from growc.cli.output import say
from growc.cli.shared_arguments import local_model
from growc.errors.diagnostic import explain, wrong
from growc.errors.source import SourceText


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `growc explain`."""
    parser.add_argument("what", nargs="+", metavar="MODEL AXIS | CODE")
    parser.add_argument("--all", action="store_true", help="list every weight of every layer")


def run(options: Namespace) -> int:
    """Explain an axis or a code. Raises GrowError (G200) for words that are neither."""
    if len(options.what) == 1:
        say(explain(options.what[0].upper()).split("\n"))
        return 0
    if len(options.what) != 2:
        raise wrong("expected MODEL AXIS, or CODE", "an axis of several words is quoted")
    from growc import grammar
    from growc.api import inspect
    from growc.passes.lowering.resolve_axis import named
    from growc.recipe.expression import Name, TensorAxis
    from growc.render.inspection import explain_lines

    model, text = options.what
    axis = grammar.parse_expression(SourceText("AXIS", text))
    if not isinstance(axis, Name | TensorAxis):
        raise wrong(f"`{text}` is no axis")
    analysis = inspect(local_model(model))
    say(
        explain_lines(analysis, axis.name, named(axis.name, None, analysis.roles, analysis.axes), options.all)
    )
    return 0


EXPLAIN = Command(
    name="explain",
    usage="(MODEL AXIS | CODE) [--all]",
    purpose="Tell why axes are tied, or what an error means.",
    arguments=arguments,
    run=run,
    examples=(
        "explain model.onnx hidden",
        "explain G305",
    ),
    models=lambda options: options.what[:1],
)
