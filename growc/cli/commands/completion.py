"""`growc completion`."""

from __future__ import annotations

import sys
from argparse import Action, ArgumentParser, Namespace
from pathlib import Path

from growc.cli.command import Command
from growc.cli.shared_arguments import words_of

SHELLS = ("bash", "zsh", "tcsh", "fish")


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `growc completion`."""
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))


def run(options: Namespace) -> int:
    """Print the script that the shell reads."""
    import shtab

    main_parser, commands = options.parsers
    for parser in commands.values():
        for action in parser._actions:
            if words := [*words_of(action)]:
                action.choices = words
            if _takes_file(action):
                vars(action)["complete"] = shtab.FILE
    sys.stdout.write(shtab.complete(main_parser, options.shell))
    return 0


def _takes_file(action: Action) -> bool:
    """Whether an argument is a path, or may be one."""
    return action.type is Path or not (action.option_strings or action.choices)


COMPLETION = Command(
    name="completion",
    usage="SHELL",
    purpose="Print what makes a shell complete commands and options.",
    arguments=arguments,
    run=run,
    examples=("completion bash > ~/.local/share/bash-completion/completions/growc",),
)
