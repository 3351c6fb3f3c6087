"""Rows of recurrent networks: stacked layers of one or two directions, and single steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from growc.dialects.torch.operators.call import Call, CallOperand, UnknownError
from growc.dialects.torch.operators.contract import linear

LSTM_ORDER, GRU_ORDER = (0, 3, 1, 2), (1, 0, 2)
"""Positions of ONNX's gates among torch's: input, output, forget, cell; update, reset, new."""


def recurrent(
    at: Call,
    x: CallOperand,
    hx: CallOperand | Sequence[CallOperand],
    params: Sequence[CallOperand],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    op: str,
) -> list[ir.Value]:
    """Return the outputs of all steps, the last states and, for an LSTM, the last cells."""
    states = hx if isinstance(hx, Sequence) else [hx]
    directions = 2 if bidirectional else 1
    per_direction = 4 if has_biases else 2
    if (train and dropout > 0) or len(params) != num_layers * directions * per_direction or at.rank(x) != 3:
        raise UnknownError
    hidden = at.fixed(params[1], 1)
    value = at.tensor(x)
    last: list[list[ir.Value]] = []
    if batch_first:
        value = at.add("Transpose", value, perm=[1, 0, 2])
    for layer in range(num_layers):
        at_layer = params[layer * directions * per_direction : (layer + 1) * directions * per_direction]
        weights = [at_layer[d * per_direction : (d + 1) * per_direction] for d in range(directions)]
        initial = [_states(at, s, layer * directions, directions, num_layers) for s in states]
        outputs = _layer(at, op, value, weights, initial, hidden)
        value, last = _joined(at, outputs[0], directions), [*last, outputs[1:]]
    if batch_first:
        value = at.add("Transpose", value, perm=[1, 0, 2])
    return [value, *(_stacked(at, ends) for ends in zip(*last, strict=True))]


def _states(at: Call, operand: CallOperand, first: int, count: int, layers: int) -> ir.Value:
    value = at.tensor(operand)
    if layers == 1:
        return value
    return at.add("Slice", value, *(at.constant([n]) for n in (first, first + count, 0)))


def _layer(
    at: Call, op: str, x: ir.Value, params: Sequence[Sequence[Any]], states: Sequence[ir.Value], hidden: int
) -> list[ir.Value]:
    order = LSTM_ORDER if op == "LSTM" else GRU_ORDER
    w, r = (_stacked(at, [_gates(at, p[k], order) for p in params]) for k in (0, 1))
    biases = None
    if len(params[0]) == 4:
        pairs = [at.add("Concat", *(_gates(at, b, order) for b in p[2:]), axis=1) for p in params]
        biases = _stacked(at, pairs)
    options: dict[str, Any] = {"hidden_size": hidden}
    options["direction"] = "bidirectional" if len(params) == 2 else "forward"
    if op == "GRU":
        options["linear_before_reset"] = 1
    outputs = at.several(op, x, w, r, biases, None, *states, outputs=len(states) + 1, **options)
    at.implies(outputs[0], "hidden_size")
    return outputs


def _stacked(at: Call, values: Sequence[ir.Value]) -> ir.Value:
    return values[0] if len(values) == 1 else at.add("Concat", *values, axis=0)


def _gates(at: Call, parameter: CallOperand, order: Sequence[int]) -> ir.Value:
    """Return a parameter as (1, gates · units, …), with gates in ONNX's order."""
    count = len(order)
    gates = at.several("Split", at.tensor(parameter), outputs=count, axis=0, num_outputs=count)
    return at.add("Unsqueeze", at.add("Concat", *(gates[k] for k in order), axis=0), at.constant([0]))


def _joined(at: Call, steps: ir.Value, directions: int) -> ir.Value:
    """Reshape (steps, directions, rows, units) to (steps, rows, directions · units)."""
    if directions == 1:
        return at.add("Squeeze", steps, at.constant([1]))
    return at.add("Reshape", at.add("Transpose", steps, perm=[0, 2, 1, 3]), at.constant([0, 0, -1]))


def rnn_cell(
    at: Call,
    x: CallOperand,
    hx: CallOperand,
    w_ih: CallOperand,
    w_hh: CallOperand,
    b_ih: CallOperand | None = None,
    b_hh: CallOperand | None = None,
    op: str = "Tanh",
) -> ir.Value:
    """One step of an RNN: an activation of the summed products of input and state."""
    return at.add(op, at.add("Add", linear(at, x, w_ih, b_ih), linear(at, hx, w_hh, b_hh)))


def gru_cell(
    at: Call,
    x: CallOperand,
    hx: CallOperand,
    w_ih: CallOperand,
    w_hh: CallOperand,
    b_ih: CallOperand | None = None,
    b_hh: CallOperand | None = None,
) -> ir.Value:
    """One step of a GRU: the state and a new state, blended by the update gate."""
    from_input, from_state = (
        _parts(at, linear(at, *operands), 3) for operands in ((x, w_ih, b_ih), (hx, w_hh, b_hh))
    )
    reset, update = (at.add("Sigmoid", at.add("Add", from_input[k], from_state[k])) for k in (0, 1))
    candidate = at.add("Tanh", at.add("Add", from_input[2], at.add("Mul", reset, from_state[2])))
    return at.add("Add", candidate, at.add("Mul", update, at.add("Sub", at.tensor(hx), candidate)))


def lstm_cell(
    at: Call,
    x: CallOperand,
    hx: Sequence[CallOperand],
    w_ih: CallOperand,
    w_hh: CallOperand,
    b_ih: CallOperand | None = None,
    b_hh: CallOperand | None = None,
) -> list[ir.Value]:
    """One step of an LSTM. Returns its state and its cell."""
    gates = at.add("Add", linear(at, x, w_ih, b_ih), linear(at, hx[0], w_hh, b_hh))
    parts = _parts(at, gates, 4)
    input_gate, forget_gate, output_gate = (at.add("Sigmoid", parts[k]) for k in (0, 1, 3))
    update = at.add("Mul", input_gate, at.add("Tanh", parts[2]))
    cell = at.add("Add", at.add("Mul", forget_gate, at.tensor(hx[1])), update)
    return [at.add("Mul", output_gate, at.add("Tanh", cell)), cell]


def _parts(at: Call, gates: ir.Value, count: int) -> list[ir.Value]:
    return at.several("Split", gates, outputs=count, axis=-1, num_outputs=count)
