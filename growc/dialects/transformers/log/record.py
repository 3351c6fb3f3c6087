"""The operator log: what one forward of a module computes, without computing it.

Needs: a module (parameters on meta, fake or real) and the inputs of a forward. Gives: `Log`, its operators,
each with the shapes that it makes and the literals that it is given, and the values of constants that the
module makes for itself (buffers that no checkpoint holds). They stand in the order that their results ask
for, not in that in which they ran.

Two modules with equal shapes of parameters and equal logs compute the same function of parameters and inputs.
Shapes alone do not tell: the number of heads shows in no parameter. What only copies data, and what reaches
no output, is left out, and what is written to is another value from there on, so that a captured program has
the log of the class that it was captured from.

What a program makes of numbers alone is known. `Log.folded` has it as constants, however it was made: a class
may compute from its config what a plan holds as values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from growc.dialects.torch.capture.fake_module import exporting, standing_in
from growc.dialects.transformers.log.entry import INPUT, Log
from growc.dialects.transformers.log.recorder import Recorder

__all__ = ["computed", "operator_log"]


def operator_log(module: nn.Module, inputs: Mapping[str, Any], fixed: bool = False) -> Log:
    """The log of one forward, with the inputs as keyword arguments. Raises whatever the forward raises.

    fixed: no other sizes are ever fed, but for the rows of a batch.
    """
    recorder = Recorder(fixed)
    own = list(computed(module).values())
    with torch.no_grad(), standing_in(module) as fakes, exporting():
        fed = fakes.within(dict(inputs))
        given = {INPUT + name: value for name, value in fed.items() if isinstance(value, Tensor)}
        state = module.state_dict(keep_vars=True)
        recorder.know(given, state, [(buffer, fakes.of(buffer)) for buffer in own])
        with fakes.mode, recorder:
            returned = module(**fed)
            outputs = [recorder.by_now(leaf) for leaf in tree_leaves(returned) if isinstance(leaf, Tensor)]
    return recorder.log(outputs)


def computed(module: nn.Module) -> dict[str, Tensor]:
    """Buffers that no checkpoint holds: the module makes them."""
    saved = module.state_dict(keep_vars=True).keys()
    return {name: buffer for name, buffer in module.named_buffers() if name not in saved}
