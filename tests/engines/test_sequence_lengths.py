"""Recurrent layers with lengths of their sequences, as onnxruntime alone computes them, whichever dims are free."""

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

import onnxruntime

from pytrtplugins.engines import build
from tests.engines.model_parts import parsed
from tests.engines.networks import run

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
LENGTH, BATCH, SIZE, HIDDEN = 4, 3, 2, 5
LENGTHS = np.array([2, 4, 1], np.int32)


def network(op, direction, dims, lengths_are_constant):
    rng = np.random.default_rng(0)
    directions = 2 if direction == "bidirectional" else 1
    weights = rng.standard_normal((directions, GATES[op] * HIDDEN, SIZE)).astype(np.float32)
    recurrence = rng.standard_normal((directions, GATES[op] * HIDDEN, HIDDEN)).astype(np.float32)
    constants = {"w": weights, "r": recurrence} | ({"lengths": LENGTHS} if lengths_are_constant else {})
    given = "" if lengths_are_constant else f", int32[{dims[1]}] lengths"
    text = f"""(float[{",".join(map(str, dims))}] x {given}) => (float[] y, float[] h)
        {{ y, h = {op} <hidden_size = {HIDDEN}, direction = "{direction}"> (x, w, r, , lengths) }}"""
    return parsed(text, **constants)


DIRECTIONS = ("forward", "reverse", "bidirectional")
DIMS = ((LENGTH, BATCH, SIZE), ("S", BATCH, SIZE), (LENGTH, "N", SIZE), ("S", "N", SIZE))
FORMS = [
    pytest.param(op, direction, dims, bool((i + j + k) % 2), id=f"{op}-{direction}-{dims[0]}-{dims[1]}")
    for i, op in enumerate(GATES)
    for j, direction in enumerate(DIRECTIONS)
    for k, dims in enumerate(DIMS)
]
"""Lengths are constants and inputs by turns: both with each operator, direction and dims."""


@pytest.mark.parametrize(("op", "direction", "dims", "constant"), FORMS)
def test_lengths_are_honoured(op, direction, dims, constant):
    model = network(op, direction, dims, constant)
    x = np.random.default_rng(1).standard_normal((LENGTH, BATCH, SIZE)).astype(np.float32)
    inputs = {"x": x} if constant else {"x": x, "lengths": LENGTHS}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected, found = session.run(None, inputs), run(build(model, engine="cpu", threads=1), inputs)
    for name, array in zip(("y", "h"), expected, strict=True):
        np.testing.assert_allclose(found[name], array, atol=1e-5)
