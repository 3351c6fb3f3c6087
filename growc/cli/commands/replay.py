"""`growc replay`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from growc.cli.command import Command
from growc.cli.output import say, say_json, waiting
from growc.cli.shared_arguments import local_model, pairs, take_all, take_json, take_out
from growc.errors.json_data import Json

if TYPE_CHECKING:
    from growc.plans.plan import Plan


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `growc replay`."""
    parser.add_argument("record", type=Path, metavar="RECORD", help="a grown model, or its NAME.grown.json")
    parser.add_argument("model", metavar="MODEL", help="a model of the shapes that the record begins with")
    take_out(parser, "default: NAME.grown beside MODEL")
    parser.add_argument(
        "--file",
        metavar="NAME=PATH",
        action="append",
        default=[],
        help="where a file lies that a recorded recipe reads as NAME (default: beside RECORD)",
    )
    parser.add_argument("--inputs", type=Path, metavar="FILE.npz", help="inputs to capture and verify with")
    parser.add_argument("--no-verify", action="store_true", help="do not compare results with sources")
    parser.add_argument("--no-card", action="store_true", help="write no model card into a checkpoint")
    parser.add_argument("--force", action="store_true", help="replace files that growc did not make")
    take_all(parser)
    take_json(parser)


def run(options: Namespace) -> int:
    """Carry out the growths again, and show the outcome of each."""
    from growc.applied import Applied
    from growc.history import replay
    from growc.plans.plan_to_json import to_json
    from growc.render.terminal import applied_lines, plan_lines, verification_data

    plans: list[Json] = []

    def planned(number: int, count: int, plan: Plan) -> None:
        plans.append(to_json(plan))
        if not options.json:
            say([f"Growth {number} of {count}:", "", *plan_lines(plan, everything=options.all), ""])

    with waiting() as advance:
        applied = replay(
            options.record,
            local_model(options.model),
            options.out,
            files=dict(pairs("--file", "NAME=PATH", options.file)),
            inputs=options.inputs,
            check=not options.no_verify,
            force=options.force,
            card=not options.no_card,
            progress=advance,
            planned=planned,
        )
    assert isinstance(applied, Applied), "a model on disk is written"
    if not options.json:
        say(applied_lines(applied))
        return 0
    verification = None if applied.verification is None else verification_data(applied.verification)
    result: dict[str, Json] = {"plans": plans, "written": str(applied.written), "verification": verification}
    result |= {"remarks": list(applied.remarks)} if applied.remarks else {}
    say_json(result | ({"reason": applied.reason} if applied.reason else {}))
    return 0


REPLAY = Command(
    name="replay",
    usage="RECORD MODEL [OPTION…]",
    purpose="Do the recorded growths of a model again on another one.",
    arguments=arguments,
    run=run,
    examples=(
        "replay grown.onnx retrained.onnx -o grown-again.onnx",
        "replay small.grown.json retrained -o small --file calibration.npz=data/calibration.npz",
    ),
    models=lambda options: [options.model],
)
