"""`growc apply`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from pathlib import Path

from growc.cli.command import Command
from growc.cli.output import say, say_json, waiting
from growc.cli.shared_arguments import (
    WITH_RECIPE,
    decided,
    model_of,
    offer,
    parameters,
    sources_and_model,
    take_all,
    take_home,
    take_out,
    take_recipe,
    take_workers,
)


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `growc apply`."""
    take_recipe(parser)
    parser.add_argument(
        "--prefix",
        default="",
        metavar="SHARE",
        help="in place of RECIPE: cut a prefix out of what `nest` sorted (`1/2`; `ffn=96,heads=3`)",
    )
    take_out(parser, "default: NAME.grown beside MODEL")
    parser.add_argument("--inputs", type=Path, metavar="FILE.npz", help="inputs to capture and verify with")
    parser.add_argument("--no-verify", action="store_true", help="do not compare the result with MODEL")
    parser.add_argument("--no-card", action="store_true", help="write no model card into a checkpoint")
    parser.add_argument("--force", action="store_true", help="replace files that growc did not make")
    parser.add_argument("--lineage", type=Path, metavar="FILE", help="write where every unit comes from")
    take_all(parser)
    parser.add_argument("--report", type=Path, metavar="FILE", help="write a page that shows all of it")
    parser.add_argument(
        "--shard-size", default="", metavar="SIZE", help="largest file of a checkpoint (`5GB`)"
    )
    parser.add_argument(
        "--memory", default="", metavar="SIZE", help="refuse what takes more to write (`256M`)"
    )
    take_workers(parser, "measure, and write a checkpoint directory, by so many processes")
    take_home(parser)
    weights = parser.add_argument(
        "--weights", metavar="KIND", help="write a checkpoint as `safetensors` or `distcp`"
    )
    offer(weights, _kinds)
    parser.add_argument(
        "--optimizer", type=Path, metavar="FILE", help="carry a checkpoint's optimizer state along"
    )
    parser.add_argument(
        "--optimizer-new",
        metavar="STATE",
        help="what new units have in that state: `mapped` (default) or `zero`",
    )


def _kinds() -> Iterable[str]:
    """The words of `--weights`."""
    from growc.formats.checkpoint_directory import KINDS

    return KINDS


def run(options: Namespace) -> int:
    """Write the model, and show the outcome."""
    from growc import api
    from growc.plans.plan_to_json import to_json
    from growc.render.terminal import applied_lines, outcome_data, plan_lines, verification_data

    sources, model = sources_and_model(options)
    with waiting() as advance:
        applied = api.apply(
            sources,
            model,
            options.out,
            parameters(options),
            inputs=options.inputs,
            check=not options.no_verify,
            force=options.force,
            lineage=options.lineage,
            report=options.report,
            shard_size=options.shard_size,
            memory=options.memory,
            optimizer=options.optimizer,
            optimizer_new=options.optimizer_new,
            weights=options.weights,
            home=options.home,
            config=decided(options),
            card=not options.no_card,
            progress=advance,
            planned=None
            if options.json
            else lambda plan: say([*plan_lines(plan, everything=options.all), ""]),
            ranks=options.ranks,
        )
    if options.json:
        verification = None if applied.verification is None else verification_data(applied.verification)
        result = to_json(applied.plan) | {"written": str(applied.written), "verification": verification}
        if applied.calibration is not None:
            result |= {"calibration": outcome_data(applied.calibration)}
        result |= {"remarks": list(applied.remarks)} if applied.remarks else {}
        say_json(result | ({"reason": applied.reason} if applied.reason else {}))
    else:
        say(applied_lines(applied))
    return 0


APPLY = Command(
    name="apply",
    usage=WITH_RECIPE,
    purpose="Write the model that a recipe describes.",
    arguments=arguments,
    run=run,
    examples=(
        "apply wider.grow model.onnx -o wide.onnx",
        "apply -e 'widen ffn to 2 * ffn with cyclic copy' model.onnx",
        "apply --prefix 1/2 nested.onnx -o half.onnx",
        "apply wider.grow checkpoint -o grown --inputs held-out.npz",
    ),
    models=model_of,
)
