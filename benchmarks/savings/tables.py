"""The tables as data: which rows there are, how each begins, how it is trained. Needs torch alone.

A row is one line of a table. Its recipe is a list of folders of examples/ and of statements; numbers of a
folder's `let` lines may be set. A row without a recipe begins as a new model that takes over every tensor of
its source with the same name and sizes: all of them where the source is trained on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from benchmarks.savings.data import Bytes, Digits
from benchmarks.savings.model import Shape

BRANCHES = (0.4, 0.7, 1.0)
"""The parts of the steps at which a run ends decayed."""


@dataclass(frozen=True)
class TwoStage:
    """bert2BERT, section 4.5: sub-models of the bottom `layers`, 2·`layers`, … for a part of the steps."""

    layers: int
    part: float = 1 / 8  # E_b = 5 of E = 40


@dataclass(frozen=True)
class Inherit:
    """Knowledge Inheritance: a row teaches; its loss' rate falls to zero after 1/`decay` of the steps."""

    teacher: str
    decay: float = 2.0
    temperature: float = 1.0


@dataclass(frozen=True)
class Row:
    """One line. `source`: the row whose final weights it begins with. `family`: which rate it shares.

    rate: set for rows that tune a family's rate; these begin as the row that they tune. branches: at which
    parts of the steps it ends decayed. paper: what its paper saves, in percent. listed: it is a line of the
    table, and not only a source or a trial.
    """

    name: str
    shape: Shape
    family: str = "scratch"
    source: str = ""
    recipe: tuple[str, ...] = ()
    lets: Mapping[str, str] = field(default_factory=dict)
    training: TwoStage | Inherit | None = None
    rate: float = 0.0
    tunes: str = ""
    branches: tuple[float, ...] = BRANCHES
    paper: str = ""
    listed: bool = True

    @property
    def needs(self) -> tuple[str, ...]:
        """The rows whose final weights it needs."""
        teacher = self.training.teacher if isinstance(self.training, Inherit) else ""
        return tuple(dict.fromkeys(name for name in (self.source, teacher) if name))


@dataclass(frozen=True)
class Family:
    """Rows that share a rate: the best of `rates` for one of them, `tuned`, by its first decayed loss."""

    name: str
    tuned: str
    rates: tuple[float, ...]


@dataclass(frozen=True)
class Table:
    """Rows that read the same batches. The first row is scratch, which all others are compared with.

    situation: what a user of these recipes has, and what they want.
    """

    name: str
    title: str
    situation: tuple[str, str]
    task: Bytes | Digits
    rows: tuple[Row, ...]
    families: tuple[Family, ...]
    steps: int
    warmup: int
    seeds: tuple[int, ...] = (0, 1, 2)

    def row(self, name: str) -> Row:
        """The row of a name. Raises KeyError."""
        return next(row for row in (*self.rows, *self.trials()) if row.name == name)

    def trials(self) -> tuple[Row, ...]:
        """The rows that tune rates: each ends at the first branch, and runs for the first seed alone."""
        trials = []
        for family in self.families:
            row = next(row for row in self.rows if row.name == family.tuned)
            for rate in family.rates:
                trial = replace(row, name=f"{row.name} at {rate:g}", rate=rate, tunes=row.name)
                trials.append(replace(trial, branches=row.branches[:1], listed=False))
        return tuple(trials)

    def order(self) -> list[tuple[Row, int]]:
        """All runs in order: scratch with its rates first, then sources, then row by row for each seed."""
        scratch, *others = self.rows
        trials = {
            f.name: [(t, self.seeds[0]) for t in self.trials() if t.family == f.name] for f in self.families
        }
        sources = [row for row in others if not row.listed]
        runs_in_order = [*trials.pop(scratch.family), *((scratch, seed) for seed in self.seeds)]
        runs_in_order += [(row, seed) for row in sources for seed in self.seeds]
        runs_in_order += [run for runs in trials.values() for run in runs]
        return runs_in_order + [(row, seed) for seed in self.seeds for row in others if row.listed]


@dataclass(frozen=True)
class Scale:
    """How large a table is: its smallest model, its batches, its length."""

    layers: int = 6
    width: int = 64
    head_dim: int = 16
    length: int = 128
    batch: int = 16
    windows: int = 1024
    steps: int = 3000
    warmup: int = 100
    seeds: tuple[int, ...] = (0, 1, 2)
    rates: int | None = None

    def gpt(self, layers: int | None = None, width: int | None = None) -> Shape:
        """A GPT of this scale."""
        size = width or self.width
        sizes = {"heads": size // self.head_dim, "head_dim": self.head_dim, "ffn": 4 * size}
        return Shape(
            layers=self.layers if layers is None else layers, width=size, length=self.length, **sizes
        )

    def bytes(self) -> Bytes:
        """Windows of source code of this scale."""
        return Bytes(self.batch, self.length, self.windows)


MINIATURE = Scale(2, 16, 4, 16, 2, 4, 6, 1, (0,), 1)
"""Every row of every table in seconds, for the tests."""

PAPERS = {
    "DirectCopy": "12.2",
    "FPI": "30.4",
    "AKI": "38.4",
    "bert2BERT": "45.2",
    "StackBERT": "24.3",
    "MSLT": "10.7",
    "NAI": "31–33",
    "KI": "27.3",
    "LEMON": "33–57",
    "G_stack": "54.6",
    "one layer": "about 80",
    "by importance": "75",
}
"""Savings of scratch's operations that papers report, in percent, on their models (BERT, GPT-2, LLaMA)."""

SCRATCH_RATES = (1.5e-3, 3e-3, 6e-3, 1.2e-2)
GROWTH_RATES = (3.75e-4, 7.5e-4, 1.5e-3, 3e-3)
SUBCLONED_RATES = (1.5e-4, 7.5e-4, 3e-3, 6e-3)
"""The paper's rate for subcloned models is a twentieth of that for scratch."""


def cpu(scale: Scale | None = None) -> Table:
    """Growth in width alone: six layers, 64 to 96."""
    scale = scale or Scale()
    small = scale.gpt()
    large = small.wider(3, 2)
    width = {"width": str(large.width)}

    def grown(name: str, *recipe: str, **more: object) -> Row:
        return Row(name, large, "growth", "source", recipe, **more)

    rows = (
        Row("scratch", large),
        Row("source", small, branches=(1.0,), listed=False),
        Row("source trained on", small, "growth", "source"),
        grown("DirectCopy", "06-directcopy", lets=width, paper=PAPERS["DirectCopy"]),
        grown("FPI", "03-bert2bert-fpi", paper=PAPERS["FPI"]),
        grown("AKI", "04-bert2bert-aki", paper=PAPERS["AKI"]),
        grown(
            "AKI, two-stage",
            "04-bert2bert-aki",
            training=TwoStage(max(scale.layers // 3, 1)),
            paper=PAPERS["bert2BERT"],
        ),
        grown("exact", "14-lemon", lets={**width, "depth": "layers"}, paper=PAPERS["LEMON"]),
        Row("KI", large, training=Inherit("source"), paper=PAPERS["KI"]),
        grown("NAI, width", "09-nai", lets={**width, "depth": "layers"}, paper=PAPERS["NAI"]),
    )
    families = (
        Family("scratch", "scratch", SCRATCH_RATES[: scale.rates]),
        Family("growth", "FPI", GROWTH_RATES[: scale.rates]),
    )
    title = f"Width alone: {small.layers} layers, {small.width} to {large.width}"
    situation = ("a trained model", "the same depth, wider")
    return Table(
        "cpu", title, situation, scale.bytes(), rows, families, scale.steps, scale.warmup, scale.seeds
    )


GPU = Scale(layers=3, batch=32, steps=6000)


def gpu(scale: Scale | None = None) -> Table:
    """Width and depth together: three layers of 64 to six of 96, and what grows in one of both."""
    scale = scale or GPU
    small = scale.gpt()
    half = scale.gpt(width=3 * scale.width // 4)
    large = replace(small.wider(3, 2), layers=2 * small.layers)
    both = {"width": str(large.width), "depth": str(large.layers)}
    sources = {
        "narrow and shallow": small,
        "half": half,
        "shallow": replace(large, layers=small.layers),
        "shallow and one": replace(large, layers=small.layers + 1),
        "two layers": replace(large, layers=2),
        "one layer": replace(large, layers=1),
        "no layer": replace(large, layers=0),
    }

    def grown(name: str, source: str, *recipe: str, of: str = "", **lets: str) -> Row:
        return Row(name, large, "growth", source, recipe, lets, paper=PAPERS.get(of or name, ""))

    stack = "stack layers to 2 * layers by whole"
    drawn = f"stack layers to {large.layers} by last with random fill"
    rows = (
        Row("scratch", large),
        *(Row(name, shape, branches=(1.0,), listed=False) for name, shape in sources.items()),
        grown(
            "DirectCopy, stacked",
            "narrow and shallow",
            "06-directcopy",
            stack,
            of="DirectCopy",
            width=both["width"],
        ),
        grown("FPI, stacked", "narrow and shallow", "03-bert2bert-fpi", stack, of="FPI"),
        grown("bert2BERT", "narrow and shallow", "05-bert2bert"),
        grown("NAI", "narrow and shallow", "09-nai", **both),
        grown("NAI, last head", "narrow and shallow", "10-nai-last-head", of="NAI", **both),
        grown("NAI, exact", "narrow and shallow", "11-nai-exact", **both),
        grown("ELLE", "narrow and shallow", "12-elle", **both),
        grown("ELLE, balanced", "narrow and shallow", "13-elle-balanced", **both),
        grown("LEMON", "narrow and shallow", "14-lemon", **both),
        grown("staged training", "half", "20-staged-training"),
        grown("StackBERT", "shallow", "07-stackbert"),
        grown("MSLT", "shallow", "08-mslt", step=str(small.layers)),
        grown("LLaMA-Pro", "shallow", "17-llama-pro", every="1"),
        grown("SOLAR", "shallow and one", "18-solar", cut="1"),
        grown("G_stack", "two layers", "19-g-stack", growth=str(large.layers // 2)),
        grown("one layer, copied", "one layer", "07-stackbert", of="one layer", depth=str(large.layers)),
        grown("one layer, others new", "one layer", drawn, of="one layer"),
        grown("no layer, all new", "no layer"),
        Row("KI", large, training=Inherit("narrow and shallow"), paper=PAPERS["KI"]),
    )
    families = (
        Family("scratch", "scratch", SCRATCH_RATES[: scale.rates]),
        Family("growth", "FPI, stacked", GROWTH_RATES[: scale.rates]),
    )
    title = f"Width and depth: {small.layers} layers of {small.width} to {large.layers} of {large.width}"
    situation = ("a trained model", "deeper, or deeper and wider")
    return Table(
        "gpu", title, situation, scale.bytes(), rows, families, scale.steps, scale.warmup, scale.seeds
    )


def _subcloned(
    name: str,
    title: str,
    task: Bytes | Digits,
    whole: Shape,
    scale: Scale,
    scratch_rates: tuple[float, ...] = SCRATCH_RATES,
    rates: tuple[float, ...] = SUBCLONED_RATES,
) -> Table:
    """Half of the feed-forward units, heads and layers: units by each ranking, layers by the middle."""
    sizes = {size: getattr(whole, size) // 2 for size in ("layers", "heads", "ffn")}
    half = replace(whole, **sizes)

    def recipe(ranking: str) -> tuple[str, ...]:
        measured = 'measure importance on "calibration.npz"\n' if ranking == "importance" else ""
        units = "\n".join(f"subclone {role} to {role} / 2 by {ranking}" for role in ("heads", "ffn"))
        return (f"{measured}{units}\nsubclone layers to layers / 2 by middle\n",)

    rows = (
        Row("scratch", half),
        Row("whole", whole, branches=(1.0,), listed=False),
        *(
            Row(f"by {r}", half, "subcloned", "whole", recipe(r), paper=PAPERS.get(f"by {r}", ""))
            for r in ("importance", "magnitude", "first", "random")
        ),
    )
    families = (
        Family("scratch", "scratch", scratch_rates[: scale.rates]),
        Family("subcloned", "by importance", rates[: scale.rates]),
    )
    situation = (f"a trained {whole.kind.upper().replace('VIT', 'ViT')}", "half of it")
    return Table(name, title, situation, task, rows, families, scale.steps, scale.warmup, scale.seeds)


def subcloned_gpt(scale: Scale | None = None) -> Table:
    """Half of a GPT's feed-forward units, heads and layers."""
    scale = scale or Scale(width=96, steps=4000)
    return _subcloned("subcloned-gpt", "Half of a GPT", scale.bytes(), scale.gpt(), scale)


def subcloned_vit(scale: Scale | None = None) -> Table:
    """Half of a ViT's feed-forward units, heads and layers, on digits, which are easy."""
    scale = scale or Scale(layers=4, width=48, head_dim=8, batch=64, steps=8000)
    whole = replace(scale.gpt(), kind="vit", length=16, inputs=4, outputs=10)
    title = "Half of a ViT, on digits, which are easy"
    rates = (7.5e-4, *SCRATCH_RATES[:-1]), (*SUBCLONED_RATES, 1.2e-2)
    return _subcloned("subcloned-vit", title, Digits(scale.batch), whole, scale, *rates)


TABLES = {"cpu": cpu, "subcloned-gpt": subcloned_gpt, "subcloned-vit": subcloned_vit, "gpu": gpu}
