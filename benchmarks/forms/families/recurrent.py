"""RNN, GRU and LSTM."""

from __future__ import annotations

import numpy as np

from ..draft import Draft
from .table import builds

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_FUNCTIONS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}


@builds("RNN", "GRU", "LSTM")
def recurrent(draft: Draft) -> None:
    gates, length, batch = _GATES[draft.name], draft.one(1, 2, 4), draft.one(1, 2, 3)
    size, hidden = draft.one(1, 2, 3), draft.one(1, 2, 3)
    direction = draft.attribute("direction", "forward", "reverse", "bidirectional", default="forward")
    directions = 2 if direction == "bidirectional" else 1
    draft.set("hidden_size", hidden)
    if draft.chance(0.25):
        other = [draft.one("Sigmoid", "Tanh", "Relu") for _ in _FUNCTIONS[draft.name]]
        draft.set("activations", other * directions)
    if draft.chance(0.1):
        draft.attribute("clip", 0.5, 3.0)
    if draft.chance(0.15):
        draft.attribute("input_forget", 0, 1)
    if draft.chance(0.3):
        draft.attribute("linear_before_reset", 0, 1)
    layout = draft.attribute("layout", 0, 1, default=0) if draft.chance(0.4) else 0
    if draft.has("output_sequence"):
        draft.set("output_sequence", 1)
    dtype = draft.type_of("T")
    state = (batch, directions, hidden) if layout else (directions, batch, hidden)
    draft.read(draft.values((batch, length, size) if layout else (length, batch, size), dtype, "unit"))
    draft.read(draft.values((directions, gates * hidden, size), dtype, "unit"))
    draft.read(draft.values((directions, gates * hidden, hidden), dtype, "unit"))
    if draft.optional("B"):
        draft.read(draft.values((directions, 2 * gates * hidden), dtype, "unit"))
    if draft.optional("sequence_lens", 0.25):
        draft.read(draft.rng.integers(1, length + 1, batch).astype(np.int32))
    if draft.optional("initial_h", 0.4):
        draft.read(draft.values(state, dtype, "unit"))
    if draft.optional("initial_c", 0.4):
        draft.read(draft.values(state, dtype, "unit"))
    if draft.optional("P", 0.2):
        draft.read(draft.values((directions, 3 * hidden), dtype, "unit"))
    names = ["y0", "y1", "y2"] if draft.name == "LSTM" else ["y0", "y1"]
    kept = [name if draft.chance(0.7) else "" for name in names]
    if not any(kept):
        kept = ["y0"]
    while not kept[-1]:
        kept.pop()
    draft.outputs = kept
    draft.loose = 8.0
