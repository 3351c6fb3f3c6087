"""The commands, one module each. A new command needs a module, and a name here."""

from growc.cli.command import Command
from growc.cli.commands.apply import APPLY
from growc.cli.commands.check import CHECK
from growc.cli.commands.clean import CLEAN
from growc.cli.commands.completion import COMPLETION
from growc.cli.commands.diff import DIFF
from growc.cli.commands.explain import EXPLAIN
from growc.cli.commands.fmt import FMT
from growc.cli.commands.init import INIT
from growc.cli.commands.inspect import INSPECT
from growc.cli.commands.lsp import LSP
from growc.cli.commands.measure import MEASURE
from growc.cli.commands.plan import PLAN
from growc.cli.commands.recipes import RECIPES
from growc.cli.commands.replay import REPLAY
from growc.cli.commands.report import REPORT
from growc.cli.commands.verify import VERIFY

SHOWN = (
    INIT,
    INSPECT,
    PLAN,
    REPORT,
    APPLY,
    REPLAY,
    VERIFY,
    DIFF,
    MEASURE,
    EXPLAIN,
    RECIPES,
    CHECK,
    FMT,
    LSP,
    COMPLETION,
    CLEAN,
)
"""The commands in the order of `--help`."""

COMMANDS: dict[str, Command] = {one.name: one for one in SHOWN}
