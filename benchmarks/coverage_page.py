"""docs/coverage.md, and the list of failures, from what was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from coverage_recipes import MISSING, RECIPES, Recipe, judged, lacking

Record = Mapping[str, Any]
Records = Mapping[tuple[str, str], Record]
Entries = Mapping[str, Record]

ANSWERS = ("gap", "refused")
"""Statuses that may have a reason; every other status that is not `exact` is a defect as it stands."""

HEAD = """# Coverage

The result of every recipe below on every model of the zoo (`tests/zoo`: small models of real
architectures, random weights), in every file that torch exports of it. `make coverage` writes this page.

A case is *exact* where the compiler claims that the result computes what the source does, onnxruntime
agrees on three inputs of different sizes (to 2e-4, and to twenty times the model's own rounding), and the
same result with one of its grown weights spoilt differs at least fifty times as much as that. Every
other case is a refusal, or a gap in the certificate, and then one of three reasons holds: the *mathematics*
forbids it, *the graph hides* what is needed, or it is *not implemented*; only the last is a defect. A claim
that onnxruntime does not bear out is *wrong* (or a *false claim*, where only rounding is exceeded).
"""


def failures(entries: Entries, records: Records) -> str:
    """Every case that is not exact and every role that is not right, one a line; alike ones together."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for (model, flavour), record in sorted(records.items()):
        for role, wrong in mismatches(entries[model]["facts"], record):
            rows.setdefault((f"inspect {role}", model, wrong), []).append(flavour)
        for name, case in record["cases"].items():
            if case["status"] != "exact":
                number = "" if case.get("r") is None else f" r={case['r']:.1e}"
                line = f"{case['status']}{number}: {case['detail']}"
                rows.setdefault((name, model, line), []).append(flavour)
    ordered = sorted(rows.items())
    return "".join(f"{name} · {model} · {', '.join(fs)} · {line}\n" for (name, model, line), fs in ordered)


def mismatches(facts: Record, record: Record) -> Iterator[tuple[str, str]]:
    """(role, what is wrong with it) of one file."""
    if record["trouble"]:
        yield "all", record["trouble"]
        return
    for role, sizes in record["roles"].items():
        if sorted(facts[role]) != sizes:
            yield role, f"{sizes} instead of {sorted(facts[role])}"


def page(entries: Entries, records: Records) -> str:
    """The whole page, in Markdown."""
    models = [name for name in entries if any(model == name for model, _ in records)]
    parts = [HEAD, *_summary(entries, records), *_flavours(records), *_models(entries, records, models)]
    parts += [*_answers(records), *_inapplicable(entries, models), *_roles(entries, records)]
    parts += [*_not_exported(entries, models)]
    return "\n".join(parts).replace("\n\n\n", "\n\n")


# ---------------------------------------------------------------------------------------------- parts


def _summary(entries: Entries, records: Records) -> Iterator[str]:
    cases = [case for record in records.values() for case in record["cases"].values()]
    exact = [case for case in cases if case["status"] == "exact"]
    known = len({model for model, _ in records})
    yield (
        f"**{len(exact)} of {len(cases)} cases are exact ({_percent(len(exact), len(cases))})**: "
        f"{known} models in {len(records)} files."
    )
    wrong = [case for case in cases if case["status"] not in ("exact", *ANSWERS)]
    yield f"Wrong, false claims, crashes and faults that nobody sees: {len(wrong)}."
    if exact:
        largest = max(case["r"] for case in exact)
        least = min(case["fault"] for case in exact)
        yield (
            f"The largest difference of an exact case is {largest:.0e}; the planted fault that shows least "
            f"differs by {least:.0f} times the bound."
        )
    yield ""
    rows = []
    for recipe in RECIPES:
        of = [
            (key, record["cases"][recipe.name])
            for key, record in records.items()
            if recipe.name in record["cases"]
        ]
        kinds = Counter(_kind(*key, recipe.name, case) for key, case in of)
        rest = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()) if kind != "exact")
        lines = "<br>".join(f"`{line}`" for line in recipe.text.splitlines())
        rows.append((recipe.name, lines, f"{kinds['exact']} of {len(of)}", rest))
    yield from _table(("recipe", "", "exact", "else"), rows)


def _flavours(records: Records) -> Iterator[str]:
    yield "\n## By flavour\n"
    rows = []
    for flavour in sorted({flavour for _, flavour in records}):
        cases = [c for (_, f), record in records.items() if f == flavour for c in record["cases"].values()]
        exact = sum(case["status"] == "exact" for case in cases)
        rows.append((flavour, f"{exact} of {len(cases)}"))
    yield from _table(("file", "exact"), rows)


def _models(entries: Entries, records: Records, models: Sequence[str]) -> Iterator[str]:
    yield "\n## By model\n"
    yield "How many of a model's files are exact; empty where a recipe is not meant for the model, – where it"
    yield "has nothing to act on.\n"
    rows = []
    for model in models:
        own = [record for (name, _), record in records.items() if name == model]
        facts = entries[model]["facts"]
        rows.append((model, *(_cell(recipe, facts, own) for recipe in RECIPES)))
    yield from _table(("model", *(recipe.name for recipe in RECIPES)), rows)


def _cell(recipe: Recipe, facts: Record, own: Sequence[Record]) -> str:
    if not recipe.asked(facts):
        return ""
    if lacking(recipe, facts):
        return "–"
    cases = [record["cases"][recipe.name] for record in own if recipe.name in record["cases"]]
    exact = sum(case["status"] == "exact" for case in cases)
    mark = "" if exact == len(cases) else f" **{'/'.join(sorted({c['status'] for c in cases} - {'exact'}))}**"
    return f"{exact}/{len(cases)}{mark}"


def _answers(records: Records) -> Iterator[str]:
    yield "\n## Not exact\n"
    rows: dict[tuple[str, ...], list[str]] = {}
    for (model, flavour), record in records.items():
        for name, case in record["cases"].items():
            if case["status"] != "exact":
                judgement = judged(model, flavour, name)
                why = judgement.because if judgement else case["detail"][:240].replace("|", "/")
                key = (model, name, case["status"], _reason(model, flavour, name, case), why)
                rows.setdefault(key, []).append(flavour)
    cells = [(*key[:2], ", ".join(flavours), *key[2:]) for key, flavours in sorted(rows.items())]
    yield from _table(("model", "recipe", "files", "", "reason", ""), cells)


def _inapplicable(entries: Entries, models: Sequence[str]) -> Iterator[str]:
    pairs = [
        (model, recipe) for model in models for recipe in RECIPES if recipe.asked(entries[model]["facts"])
    ]
    rows: dict[tuple[str, str], list[str]] = {}
    for model, recipe in pairs:
        if why := lacking(recipe, entries[model]["facts"]):
            rows.setdefault((model, why), []).append(recipe.name)
    count = sum(map(len, rows.values()))
    yield "\n## Not applicable\n"
    yield f"{count} of {len(pairs)} pairs of model and recipe ({_percent(count, len(pairs))}).\n"
    yield from _table(
        ("model", "recipes", ""), [(m, ", ".join(names), why) for (m, why), names in rows.items()]
    )


def _roles(entries: Entries, records: Records) -> Iterator[str]:
    wrong: dict[tuple[str, str, str], list[str]] = {}
    files = set()
    for (model, flavour), record in records.items():
        for role, what in mismatches(entries[model]["facts"], record):
            wrong.setdefault((model, role, what), []).append(flavour)
            files.add((model, flavour))
    yield "\n## Roles\n"
    yield (
        f"`growc inspect` reports the right hidden, heads, kv_heads, head_dim, ffn, vocab and layers for "
        f"{len(records) - len(files)} of {len(records)} files.\n"
    )
    yield from _table(("model", "role", "", "files"), [(*key, ", ".join(fs)) for key, fs in wrong.items()])


def _not_exported(entries: Entries, models: Sequence[str]) -> Iterator[str]:
    rows = [(m, f, why.replace("|", "/")) for m in models for f, why in entries[m].get("dropped", {}).items()]
    if rows:
        yield "\n## Not exportable\n"
        yield from _table(("model", "flavour", "what torch or onnxruntime says"), rows)


# --------------------------------------------------------------------------------------------- cases


def _kind(model: str, flavour: str, recipe: str, case: Record) -> str:
    reason = _reason(model, flavour, recipe, case)
    return f"{case['status']} ({reason})" if reason else str(case["status"])


def _reason(model: str, flavour: str, recipe: str, case: Record) -> str:
    if case["status"] not in ANSWERS:
        return ""
    judgement = judged(model, flavour, recipe)
    return judgement.reason if judgement else MISSING


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "0 %"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    listed = list(rows)
    if not listed:
        yield "None.\n"
        return
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    yield from (f"| {' | '.join(row)} |" for row in listed)
    yield ""
