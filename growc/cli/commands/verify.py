"""`growc verify`."""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace
from pathlib import Path

from growc.cli.command import Command
from growc.cli.output import say, say_json, waiting
from growc.cli.shared_arguments import local_model, take_home, take_json
from growc.errors.diagnostic import Diagnostic, GrowError, error_object


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `growc verify`."""
    parser.add_argument("models", type=Path, nargs=2, metavar="MODEL", help="the source and the result")
    parser.add_argument("--inputs", type=Path, metavar="FILE.npz", help="inputs to compare on")
    take_home(parser)
    parser.add_argument(
        "--within", type=float, metavar="X", help="default: 20 times the source's own rounding"
    )
    take_json(parser)


def run(options: Namespace) -> int:
    """Compare two models. Raises GrowError: G310 if one is missing, G404 if they differ."""
    from growc.api import verify
    from growc.checkpoint.files.config_folders import described_in
    from growc.render.terminal import verification_data, verification_lines
    from growc.verification.judge import refutation

    source, result = map(local_model, options.models)
    with waiting() as advance, described_in(source, options.home):
        verification = verify(source, result, inputs=options.inputs, progress=advance)
    comparison, worst = verification.refuting() or ("", verification)
    limit = worst.limit if options.within is None else options.within
    passed = not verification.refutes_exact() if options.within is None else verification.relative <= limit
    difference = f"differ by {worst.relative:.1e}, which is more than {limit:.1e}"
    if math.isinf(worst.relative):
        difference = "differ in kind: in their shapes, or in where they are finite"
    error = GrowError(Diagnostic("G404", f"the outputs {difference}", notes=refutation(comparison, worst)))
    if options.json:
        say_json(
            verification_data(verification) | {"passed": passed} | ({} if passed else error_object(error))
        )
        return 0 if passed else error.exit_status
    say(
        [*verification_lines(verification), f"The outputs are the same within {limit:.1e}." if passed else ""]
    )
    if not passed:
        raise error
    return 0


VERIFY = Command(
    name="verify",
    usage="MODEL MODEL [OPTION…]",
    purpose="Compare the outputs of two models.",
    arguments=arguments,
    run=run,
    examples=(
        "verify model.onnx wide.onnx",
        "verify checkpoint grown --inputs held-out.npz",
    ),
    models=lambda options: options.models,
)
