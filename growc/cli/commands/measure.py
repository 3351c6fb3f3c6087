"""`growc measure`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from growc.cli.command import Command
from growc.cli.output import say, say_json, waiting
from growc.cli.shared_arguments import local_model, take_json, take_out, take_workers
from growc.errors.diagnostic import wrong
from growc.errors.json_data import Json


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `growc measure`."""
    parser.add_argument("model", type=Path, metavar="MODEL")
    parser.add_argument("--inputs", type=Path, metavar="FILE.npz", required=True, help="inputs to measure on")
    parser.add_argument("--samples", type=int, metavar="N", help="use the first N rows")
    parser.add_argument("--layers", action="store_true", help="remove and double each layer, too")
    take_out(parser, "where the scores are kept")
    parser.add_argument("--force", action="store_true", help="replace scores of another measurement")
    take_workers(parser, "measure by so many processes")
    take_json(parser)


def run(options: Namespace) -> int:
    """Measure, and show the scores. Raises GrowError (G200) if `--samples` is below 1."""
    from growc.render.profile import layer_data, profile_data, profile_lines, rate_line, score_lines
    from growc.reports.measure import measurement, profile

    if options.samples is not None and options.samples < 1:
        raise wrong("`--samples` is at least 1")
    model, inputs, samples, ranks = local_model(options.model), options.inputs, options.samples, options.ranks
    with waiting() as advance:
        measured = measurement(
            model, inputs, options.out, samples, force=options.force, progress=advance, ranks=ranks
        )
        layer_profile = None
        if options.layers:
            layer_profile = profile(
                model, inputs, samples, out=options.out, layers=measured.layers, progress=advance, ranks=ranks
            )
    if options.json:
        data: dict[str, Json] = {
            "scores": {name: scores.tolist() for name, scores in measured.scores.items()}
        }
        layers = [layer_data(score) for score in measured.layers]
        say_json(data | ({"layers": layers} if layer_profile is None else profile_data(layer_profile)))
    else:
        lines = (
            score_lines(measured.scores)
            if layer_profile is None
            else profile_lines(layer_profile, model.name)
        )
        say([*lines, rate_line(measured.samples, measured.seconds)])
    return 0


MEASURE = Command(
    name="measure",
    usage="MODEL --inputs FILE [OPTION…]",
    purpose="Measure how much units and layers matter.",
    arguments=arguments,
    run=run,
    examples=("measure model.onnx --inputs held-out.npz --layers -o scores.npz",),
    models=lambda options: [options.model],
)
