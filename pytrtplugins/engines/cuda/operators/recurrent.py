"""Recurrent layers, one step of the sequence after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ....model.operator_traits import RECURRENT
from ..elementwise import RECURRENT_ACTIVATIONS
from .table import Attributes, op

Activation = Callable[[Any], Any]

Cell = Callable[[Any, list[Any], Any, Any, Sequence[Activation]], list[Any]]
"""Inputs times their weights, states, weights of the state, offsets of the gates, activations → states."""


@op("RNN", capturable=False)
def _rnn(xp: Any, attributes: Attributes, dims: Any, x: Any, *rest: Any) -> Any:
    def cell(inputs: Any, states: list[Any], r: Any, offset: Any, f: Sequence[Activation]) -> list[Any]:
        return [f[0](inputs + states[0] @ r.T + offset)]

    return _run(xp, attributes, dims, x, rest[:5], "RNN", lambda direction: cell)


@op("GRU", capturable=False)
def _gru(xp: Any, attributes: Attributes, dims: Any, x: Any, *rest: Any) -> Any:
    late = bool(attributes.get("linear_before_reset"))

    def cell(inputs: Any, states: list[Any], r: Any, offset: Any, f: Sequence[Activation]) -> list[Any]:
        h, size = states[0], states[0].shape[-1]
        gates = inputs[:, : 2 * size] + h @ r[: 2 * size].T + offset[: 2 * size]
        update, reset = f[0](gates[:, :size]), f[0](gates[:, size:])
        if late:
            made = f[1](inputs[:, 2 * size :] + reset * (h @ r[2 * size :].T + offset[2 * size :]))
        else:
            made = f[1](inputs[:, 2 * size :] + (reset * h) @ r[2 * size :].T + offset[2 * size :])
        return [(1 - update) * made + update * h]

    return _run(xp, attributes, dims, x, rest[:5], "GRU", lambda direction: cell)


@op("LSTM", capturable=False)
def _lstm(xp: Any, attributes: Attributes, dims: Any, x: Any, *rest: Any) -> Any:
    peepholes = xp.asarray(rest[6]) if len(rest) > 6 and rest[6] is not None else None

    def cell_of(direction: int) -> Cell:
        size = rest[1].shape[-1]
        peeps = xp.zeros((3, size), np.float32) if peepholes is None else peepholes[direction].reshape(3, size)

        def cell(inputs: Any, states: list[Any], r: Any, offset: Any, f: Sequence[Activation]) -> list[Any]:
            h, c = states
            gates = inputs + h @ r.T + offset
            i, o, forget, made = (gates[:, place * size : (place + 1) * size] for place in range(4))
            i = f[0](i + peeps[0] * c)
            kept = 1 - i if attributes.get("input_forget") else f[0](forget + peeps[2] * c)
            c = kept * c + i * f[1](made)
            return [f[0](o + peeps[1] * c) * f[2](c), c]

        return cell

    return _run(xp, attributes, dims, x, rest[:6], "LSTM", cell_of)


def _run(
    xp: Any,
    attributes: Attributes,
    dims: Any,
    x: Any,
    rest: Sequence[Any],
    op_type: str,
    cell_of: Callable[[int], Cell],
) -> Any:
    """All directions; ``rest``: weights, weights of the state, offsets, lengths, first states."""
    usual = RECURRENT[op_type].activations
    given: list[Any] = [None if value is None else xp.asarray(value) for value in (*rest, *[None] * 6)]
    w, r, b, lengths, *firsts = given[:6]
    batch_first, size = bool(attributes.get("layout")), r.shape[-1]
    if batch_first:
        x, firsts = x.swapaxes(0, 1), [None if first is None else first.swapaxes(0, 1) for first in firsts]
    steps, batch = x.shape[:2]
    direction = attributes.get("direction", "forward")
    backwards = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    functions = _functions(xp, attributes, usual, len(backwards))
    count = 2 if len(usual) == 3 else 1
    sequences, lasts = [], []
    for number, backward in enumerate(backwards):
        order = _order(xp, steps, batch, lengths, backward)
        products = xp.take_along_axis(x, order[:, :, None], axis=0) @ w[number].T
        offset = xp.zeros(2 * len(w[number]), np.float32) if b is None else b[number]
        recurrent = offset[len(w[number]) :]
        products = products + offset[: len(w[number])]
        states = [xp.zeros((batch, size), x.dtype) if first is None else first[number] for first in firsts[:count]]
        cell, made = cell_of(number), []
        for step in range(steps):
            inputs = products[step]
            after = cell(inputs, states, r[number], recurrent, functions[number])
            if lengths is not None:
                inside = (step < lengths)[:, None]
                made.append(xp.where(inside, after[0], xp.zeros_like(after[0])))
                states = [xp.where(inside, new, old) for new, old in zip(after, states, strict=True)]
            else:
                made.append(after[0])
                states = after
        sequences.append(xp.take_along_axis(xp.stack(made), order[:, :, None], axis=0))
        lasts.append(states)
    y = xp.stack(sequences, axis=1)
    ends = [xp.stack([states[place] for states in lasts]) for place in range(count)]
    if batch_first:
        y, ends = y.transpose(2, 0, 1, 3), [end.swapaxes(0, 1) for end in ends]
    return [y, *ends][: len(dims)]


def _order(xp: Any, steps: int, batch: int, lengths: Any, backward: bool) -> Any:
    """[steps, batch]: which input each step reads; twice in a row it changes nothing."""
    rows = xp.broadcast_to(xp.arange(steps)[:, None], (steps, batch))
    if not backward:
        return rows
    ends = xp.full(batch, steps) if lengths is None else lengths
    return xp.where(rows < ends, ends - 1 - rows, rows)


def _functions(xp: Any, attributes: Attributes, usual: tuple[str, ...], directions: int) -> list[list[Activation]]:
    """The activations of each direction; alphas and betas go to those that have them, in order.

    ``clip`` bounds what the gates read. An LSTM's last activation reads the state, which onnxruntime and OpenVINO leave alone.
    """
    names = [str(name).lower() for name in attributes.get("activations", usual * directions)]
    numbers = [iter(attributes.get(name, ())) for name in ("activation_alpha", "activation_beta")]
    of_states = len(usual) - 1 if len(usual) > 2 else None
    limits = [None if place % len(usual) == of_states else attributes.get("clip") for place in range(len(names))]
    made = [_activation(xp, name, numbers, limit) for name, limit in zip(names, limits, strict=True)]
    return [made[place : place + len(usual)] for place in range(0, len(made), len(usual))]


def _activation(xp: Any, name: str, numbers: Sequence[Iterator[float]], limit: float | None) -> Activation:
    row = RECURRENT_ACTIVATIONS[name]
    given = [np.float32(next(values, default)) for values, default in zip(numbers, row.numbers.values(), strict=False)]

    def run(x: Any) -> Any:
        return row.array(xp, x if limit is None else xp.clip(x, -np.float32(limit), np.float32(limit)), *given)

    return run
