"""The functions for programs: plan, apply, verify, inspect. The command line is a thin layer over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, overload

from growc.applied import Applied as Applied
from growc.applied import apply_file as apply_file
from growc.budgets.settle import settled
from growc.errors.arguments import checked_arguments, joined
from growc.errors.diagnostic import wrong
from growc.errors.json_data import Json
from growc.errors.progress import Progress
from growc.files.hub import local
from growc.formats.compiler import CompileOptions, compiled, has_config, is_module
from growc.formats.compiler import opened as opened
from growc.resolve.bound import Resolved
from growc.resolve.recipe_forms import Recipes as Recipes
from growc.resolve.recipe_forms import decoded as decoded
from growc.resolve.recipe_forms import parameters_of as parameters_of
from growc.resolve.recipe_forms import read_source as read_source
from growc.resolve.recipe_forms import reading_of as reading_of
from growc.resolve.recipe_forms import recipe as recipe
from growc.resolve.recipe_forms import sources_of as sources_of
from growc.system.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel

    from growc.formats.checkpoint_directory import Weights
    from growc.passes.compilation import Analysis
    from growc.plans.plan import Plan
    from growc.training.optimizer_state import New
    from growc.verification.verify import Verification

    Model = str | Path | nn.Module
    State = str | Path | Mapping[str, object]

compile = compiled  # noqa: A001 - growc.api.compile is what it is


@checked_arguments
def plan(
    text: Recipes,
    model: Model,
    params: Mapping[str, str] | None = None,
    *,
    example_inputs: object = None,
    state_dict: State | None = None,
    keep_class: bool = True,
    config: Mapping[str, Json] | None = None,
) -> Plan:
    """The plan of a recipe for a model. Writes nothing. A module and its recipe may come in either order.

    `example_inputs` are for the forward of a module, by name or in order. Classes of transformers need none
    if growc finds inputs that they run on. For a checkpoint directory they may be a `.npz` file.
    `state_dict`, `keep_class` and `config` are as for `grow`. The plan judges no `expect`: `apply` does.

    Raises GrowError: G1xx and G2xx for mistakes in the recipe or the call, G3xx for a model that cannot be
    read, or cannot be changed like this.

    >>> plan("widen ffn to 2 * ffn with uniform copy", "gpt2.onnx").certificate.exact  # doctest: +SKIP
    True
    """
    words, source = _in_order(text, model)
    source = _with_state(source, state_dict)
    options: CompileOptions = {"example_inputs": example_inputs, "keep_class": keep_class, "config": config}
    resolved = settled(reading_of(words, params), parameters_of(params), source, **options)
    return compile(resolved, source, **options).plan


@checked_arguments
def grow(
    module: nn.Module,
    text: Recipes,
    example_inputs: object = None,
    params: Mapping[str, str] | None = None,
    *,
    state_dict: State | None = None,
    check: bool = True,
    keep_class: bool = True,
    config: Mapping[str, Json] | None = None,
) -> Any:
    """The module that a recipe makes of another one: trainable, with the names and ties of its parameters.

    A module of transformers becomes one of the same class, with the config that has the planned sizes. Any
    other module, and any module with `keep_class=False`, becomes a GrownModule, which no class and no config
    restrict. `config` sets fields of the class's config (`{"num_attention_heads": 8}`); growc finds the
    others, and compares the class with the plan as always.

    The result has the `plan`, the `lineage` and, unless `check=False`, the measured `verification`.
    `example_inputs` are for forward, by name or in order; modules of transformers need none. `state_dict`, a
    `.safetensors` file or a mapping, has the weights of a module that may be on meta; the module itself stays
    unchanged.

    Raises GrowError: as `plan`, G401 if an `expect` fails, G402 and G403 if the measurement refutes the
    certificate or cannot run, G406 if the module is not what its plan computes.
    """
    module = _with_state(module, state_dict)
    if keep_class and has_config(module):
        from growc.checkpoint.grow_module import grow as grow_class

        options: CompileOptions = {"example_inputs": example_inputs, "keep_class": True, "config": config}
        resolved = settled(reading_of(text, params), parameters_of(params), module, **options)
        return grow_class(resolved, module, example_inputs, check=check, config=config)
    if config:
        raise wrong(
            f"`config` is for classes of transformers, and `{type(module).__name__}` grows as a module"
        )
    from growc.modules.grow import grow

    reading = reading_of(text, params)
    resolved = settled(reading, parameters_of(params), module, example_inputs=example_inputs)
    return grow(resolved, module, example_inputs, check=check)


@overload
def apply(
    text: nn.Module,
    model: Recipes,
    example_inputs: object = None,
    params: Mapping[str, str] | None = None,
    *,
    state_dict: State | None = None,
    check: bool = True,
    keep_class: bool = True,
    config: Mapping[str, Json] | None = None,
) -> Any: ...


@overload
def apply(
    text: Recipes,
    model: nn.Module,
    example_inputs: object = None,
    params: Mapping[str, str] | None = None,
    *,
    state_dict: State | None = None,
    check: bool = True,
    keep_class: bool = True,
    config: Mapping[str, Json] | None = None,
) -> Any: ...


@overload
def apply(
    text: Recipes,
    model: str | Path,
    out: str | Path | None = None,
    params: Mapping[str, str] | None = None,
    *,
    inputs: str | Path | None = None,
    check: bool = True,
    force: bool = False,
    lineage: str | Path | None = None,
    report: str | Path | None = None,
    shard_size: str = "",
    memory: str = "",
    optimizer: str | Path | None = None,
    optimizer_new: New | None = None,
    weights: Weights | None = None,
    home: str | Path | None = None,
    model_class: str | type[PreTrainedModel] | None = None,
    config: Mapping[str, Json] | None = None,
    card: bool = True,
    progress: Progress | None = None,
    planned: Callable[[Plan], None] | None = None,
    ranks: Ranks = ALONE,
) -> Applied: ...


@checked_arguments
def apply(text: object, model: object, *others: Any, **options: Any) -> Any:
    """Grow a file or a directory, or a module.

    `apply(recipe, model, out, …)` is `apply_file`, with its options: `params`, `inputs`, `check`, `force`,
    `lineage`, `report`, `shard_size`, `memory`, `optimizer`, `optimizer_new`, `weights`, `home`, `config`,
    `card`, `progress` and others; it returns an `Applied`. `apply(module, recipe, example_inputs, …)` is
    `grow`, with its options; it returns a module. A module and its recipe may come in either order.

    Raises GrowError, as `apply_file` and `grow` do; then nothing was written.
    """
    words, source = _in_order(text, model)
    if is_module(source):
        return grow(source, words, *others, **options)
    return apply_file(words, source, *others, **options)


def _in_order(text: Any, model: Any) -> tuple[Any, Any]:
    """The recipe and the model; a module may come before its recipe."""
    return (model, text) if is_module(text) else (text, model)


def _with_state(model: Any, state_dict: State | None) -> Any:
    """A module with the weights of a state dict, if one is given. Raises GrowError (G200, G322)."""
    if state_dict is None:
        return model
    if not is_module(model):
        raise wrong(f"`state_dict` is for modules, and `{model}` has its own weights")
    from growc.checkpoint.classes.load_state_dict import filled

    return filled(model, state_dict)


@checked_arguments
def report(
    text: Recipes,
    model: str | Path,
    params: Mapping[str, str] | None = None,
    *,
    result: str | Path | None = None,
    inputs: str | Path | None = None,
    config: Mapping[str, Json] | None = None,
) -> str:
    """One HTML page that shows the plan of a recipe for a model, or the problems in it. Writes nothing.

    `result`, a model that the recipe made of this one, is compared with it on `inputs`. Raises GrowError:
    G200 if the recipe does not make such a result, G310 if `result` cannot be read, G403 if it cannot run.

    >>> Path("report.html").write_text(report(Path("wider.grow"), "gpt2.onnx"))  # doctest: +SKIP
    """
    from growc.render.page.html import page_text
    from growc.reports.page.planned import planned

    measured = None if result is None else local(result)
    data = None if inputs is None else Path(inputs)
    page, _ = planned(sources_of(text), parameters_of(params), local(model), measured, data, config)
    return page_text(page)


@checked_arguments
def verify(
    source: Model,
    result: Model,
    *,
    inputs: Any = None,
    progress: Progress | None = None,
) -> Verification:
    """Run two models on the same inputs and compare their outputs.

    The expected contents of grown caches and outputs follow from the recipes in the metadata of `result`. For
    two modules, `inputs` are for forward, by name or in order.

    Raises GrowError: G200 if `inputs` of two files are no path, G309 to G325 if a model or the inputs cannot
    be read, G403 if a model does not run. A difference is no error.
    """
    if not (isinstance(source, str | Path) and isinstance(result, str | Path)):
        from growc.modules.grow import verify

        return verify(cast("nn.Module", source), cast("nn.Module", result), inputs)
    from growc.file_roles import NamedPath, model_parts
    from growc.formats.protocol import form_of
    from growc.render.progress import in_python
    from growc.source_changes import unchanged

    with in_python(progress) as advance:
        before, after = local(source, advance), local(result, advance)
        form = form_of(before)
        parts = [*model_parts(before, "the source"), *model_parts(after, "the result")]
        if inputs is not None and not isinstance(inputs, str | Path):
            raise wrong("`inputs` of two files are the path of a `.npz` file")
        parts += [] if inputs is None else [NamedPath("the inputs", Path(inputs))]
        with unchanged(parts) as require_unchanged:
            advance("planning", 0, 0)
            ports = form.retraced(before, after, advance)
            measured = form.verify(ports, before, after, inputs, advance)
            require_unchanged()
    return measured


@checked_arguments
def inspect(model: Model, *, example_inputs: object = None, state_dict: State | None = None) -> Analysis:
    """The analysis of a model: spaces, roles, what is frozen. See growc.render for how it is shown.

    `example_inputs` and `state_dict` are as for `grow`. Raises GrowError (G200, G3xx) for a model that cannot
    be read.
    """
    source = _with_state(model, state_dict)
    return compile(Resolved(()), source, analysis_only=True, example_inputs=example_inputs)


vars(apply)["__signature__"] = joined(apply_file, grow, model="Model", out="object")
