"""The commands, a module each. One more is a module, and a name here."""

from growc.cli.command import Command
from growc.cli.commands.apply import APPLY
from growc.cli.commands.check import CHECK
from growc.cli.commands.clean import CLEAN
from growc.cli.commands.completion import COMPLETION
from growc.cli.commands.explain import EXPLAIN
from growc.cli.commands.fmt import FMT
from growc.cli.commands.inspect import INSPECT
from growc.cli.commands.lsp import LSP
from growc.cli.commands.measure import MEASURE
from growc.cli.commands.plan import PLAN
from growc.cli.commands.verify import VERIFY

SHOWN = (APPLY, PLAN, INSPECT, VERIFY, MEASURE, EXPLAIN, CHECK, FMT, LSP, COMPLETION, CLEAN)
"""In the order of `--help`."""

COMMANDS: dict[str, Command] = {one.name: one for one in SHOWN}
