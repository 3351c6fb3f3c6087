"""One model in onnxruntime, on the CPU, run the same way every time."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from growc.algebra.indexmap import Array
from growc.dialects.onnx.files.load import files_of, loadable
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.system.delayed_imports import postponed

with postponed("onnxruntime"):
    import onnxruntime

Feeds = dict[str, Array]

_DTYPES: dict[str, np.dtype[Any]] = {
    "tensor(float)": np.dtype(np.float32),
    "tensor(double)": np.dtype(np.float64),
    "tensor(float16)": np.dtype(np.float16),
}


LARGE = 1 << 31
"""Largest size in bytes of weights that a session for measuring holds in memory."""

_FOLDER = "session.model_external_initializers_file_folder_path"


class Session:
    """A loaded model. Use it as a context manager: leaving it frees the weights.

    Raises GrowError (G403) if onnxruntime cannot load or run the model.
    """

    def __init__(
        self,
        model: Path,
        *,
        optimised: bool = True,
        lean: bool = False,
        mapped: bool = False,
        graph: tuple[bytes, Path] | None = None,
    ) -> None:
        """Load `model`.

        `optimised` allows graph optimisations, `lean` trades speed for memory. `mapped` is leaner still: no
        weight is in memory but while an operator reads it, and none is computed beforehand. `graph` is loaded
        in the model's place, with the folder of its external weights.
        """
        self._model = Path(model)
        options = _options(optimised, lean or mapped)
        try:
            graph = loadable(self._model) if graph is None else graph
            source, folder = (str(model), "") if graph is None else (graph[0], str(graph[1]))
            options.add_session_config_entry(_FOLDER, folder)
            self._session: Any = onnxruntime.InferenceSession(
                source,
                options,
                providers=["CPUExecutionProvider"],
                disabled_optimizers=["ConstantFolding"] if mapped else None,
            )
        except GrowError:
            raise
        except Exception as error:  # onnxruntime's errors have no other common base
            raise unrunnable(self._model, "load", error) from error
        self.input_dtypes = {port.name: _DTYPES.get(port.type) for port in self._session.get_inputs()}
        self.output_names = tuple(port.name for port in self._session.get_outputs())

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._session = None

    def run(self, feeds: Mapping[str, Array]) -> Feeds:
        """Return all outputs by name. Real inputs are cast to the model's type; unknown names are ignored.

        Raises GrowError (G403) if the model does not run, or an output is no tensor.
        """
        inputs: Feeds = {}
        for name, array in feeds.items():
            if name in self.input_dtypes:
                inputs[name] = array.astype(self.input_dtypes[name] or array.dtype, copy=False)
        try:
            outputs = self._session.run(None, inputs)
        except Exception as error:  # onnxruntime's errors have no other common base
            raise unrunnable(self._model, "run", error) from error
        for name, output in zip(self.output_names, outputs, strict=True):
            if not isinstance(output, np.ndarray):
                raise unrunnable(self._model, "compare", TypeError(f"output `{name}` is no tensor"))
        return dict(zip(self.output_names, outputs, strict=True))


def measuring(model: Path, graph: tuple[bytes, Path] | None = None) -> Session:
    """Return a model that is loaded to be run on data, perhaps in several processes of a machine.

    Weights of more than LARGE bytes stay in their files: memory holds what is computed, and the pages that
    the machine keeps of files, which all processes share. Such a session may be slower by half. The size
    decides alone, so that results are the same on all machines. Raises GrowError (G403).
    """
    size = sum(file.stat().st_size for file in files_of(model))
    return Session(model, mapped=size > LARGE, graph=graph)


def unrunnable(model: Path, verb: str, error: Exception) -> GrowError:
    """The error for a model that onnxruntime refuses, with the first line of its reason."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = (lines[0] if lines else type(error).__name__).replace("[ONNXRuntimeError] : ", "")
    reason = reason.replace(str(model), model.name)
    return GrowError(Diagnostic("G403", f"onnxruntime cannot {verb} `{model.name}`", notes=(reason[:400],)))


def _options(optimised: bool, lean: bool) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.use_deterministic_compute = True
    options.intra_op_num_threads = _threads()
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if lean:
        options.add_session_config_entry("session.disable_prepacking", "1")
        # The default order computes what depends on weights alone, such as transposed ones, before all else.
        options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
    return options


def _threads() -> int:
    """Return how many threads this process may use. OMP_NUM_THREADS lowers it, as in numerical libraries."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(usable, int(limit)) if limit.isdigit() and int(limit) > 0 else usable
