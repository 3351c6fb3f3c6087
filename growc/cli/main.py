"""The command line: the process, its exit status, and the reporting of errors.

Heavy modules are imported by the command that needs them, so that `growc --help` is instant.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from growc.cli import multi_process
from growc.cli.arguments import read_arguments
from growc.cli.commands import COMMANDS
from growc.cli.output import OutputSettings, output_settings, report
from growc.cli.process import (
    end_at_once,
    last_words,
    no_loggers,
    prepare_process,
    refused,
    spare_memory,
    unexpected,
)
from growc.dialects.transformers.named_class import class_named
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.system.interrupts import SignalState, interruptible
from growc.system.limits import limits

DONE = {"fmt": "what was formatted stays so", "measure": "what was measured is kept"}
"""For each command, the state that an interrupt leaves, where users may ask for it."""


def program() -> NoReturn:
    """Run `growc` as a process of its own, and end it."""
    prepare_process()
    end_at_once(main())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, and return its exit status. Users never see a traceback."""
    with output_settings() as voice:
        return _run(list(sys.argv[1:] if arguments is None else arguments), voice)


def _run(arguments: Sequence[str], voice: OutputSettings) -> int:
    """Run one command with the output settings of one voice."""
    command = SignalState()
    try:
        with interruptible(command), no_loggers(), spare_memory():
            options = read_arguments(arguments)
            voice.take(options)
            with limits(**options.limits), class_named(getattr(options, "model_class", None)):
                status = multi_process.run(COMMANDS[options.command].run, options, arguments)
            with last_words():
                sys.stdout.flush()
            return status
    except SystemExit as shown:  # after `--help` and `--version`
        return shown.code if isinstance(shown.code, int) else 0
    except GrowError as error:
        return report(error, arguments)
    except KeyboardInterrupt:
        outcome = (
            "the result is written"
            if command.committed
            else DONE.get("".join(arguments[:1]), "nothing was written")
        )
        return report(GrowError(Diagnostic("G503", f"interrupted: {outcome}")), arguments)
    except OSError as error:
        return report(refused(error), arguments)
    except Exception as error:  # noqa: BLE001 - any other exception is a bug
        return report(unexpected(error, arguments), arguments)


if __name__ == "__main__":
    program()
