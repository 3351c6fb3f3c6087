"""Random weights that make a numerical comparison mean something.

Every gain, bias, layer scale and running statistic differs from its start, and matrices are large enough that
attention is far from uniform: a result that lost a bias, mixed up heads or forgot a norm differs visibly.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

SMALLEST = 0.08
"""The least standard deviation of a matrix."""
KEPT = ("logit_scale", "logit_bias")


def perturb(model: nn.Module, seed: int) -> None:
    """Draw all parameters and running statistics of a model anew, in place."""
    generator = torch.Generator().manual_seed(seed)
    seen: set[int] = set()
    with torch.no_grad():
        for path, module in model.named_modules():
            for name, parameter in module.named_parameters(recurse=False):
                if id(parameter) not in seen and parameter.is_floating_point():
                    seen.add(id(parameter))
                    noise = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
                    _perturb_parameter(path, module, name, parameter, noise)
            for name, buffer in module.named_buffers(recurse=False):
                _perturb_buffer(module, name, buffer, generator)


def _perturb_parameter(path: str, module: nn.Module, name: str, parameter: Tensor, noise: Tensor) -> None:
    kind, low = type(module).__name__, f"{path}.{name}".lower()
    if any(word in low for word in KEPT):
        return
    if "Mixer" in kind or name in ("A_log", "D", "dt_bias"):  # state-space parameters: their start is a range
        parameter.add_(0.2 * noise)
    elif "norm" in kind.lower() and "bias" not in name:
        parameter.add_(0.2 * noise)  # 1 + noise, or noise alone where the norm itself adds 1
    elif "bias" in name and parameter.ndim == 1:
        parameter.copy_(0.1 * noise)
    elif any(word in low.rsplit(".", 1)[-1] for word in ("lambda", "layer_scale", "gamma")):
        parameter.copy_(0.5 + 0.2 * noise)
    elif name in ("original0", "weight_g"):  # the magnitude of a weight norm
        parameter.mul_(1 + 0.2 * noise)
    elif isinstance(module, nn.Embedding) or any(word in name for word in ("token", "position", "relative")):
        parameter.copy_((0.5 if "rel" in low else 0.3) * noise)
    elif parameter.ndim >= 2:
        parameter.copy_(max(SMALLEST, 1.2 / math.sqrt(_fan_in(kind, parameter))) * noise)
    else:
        parameter.add_(0.1 * noise)


def _fan_in(kind: str, parameter: Tensor) -> int:
    if kind == "Conv1D" or "Transpose" in kind:  # transformers' Conv1D stores (in, out)
        return parameter.shape[0]
    if parameter.ndim == 3 and "Conv" not in kind and "Parametrization" not in kind:  # stacked experts
        return parameter.shape[-1]
    return parameter[0].numel()


def _perturb_buffer(module: nn.Module, name: str, buffer: Tensor, generator: torch.Generator) -> None:
    if name == "running_mean":
        buffer.copy_(0.1 * torch.randn(buffer.shape, generator=generator))
    elif name == "running_var":
        buffer.copy_(1 + 0.3 * torch.rand(buffer.shape, generator=generator))
    elif name == "final_logits_bias":
        buffer.copy_(0.1 * torch.randn(buffer.shape, generator=generator))
