"""Weights of few bits, packed into bytes, and weights that are codes while numbers stay numbers."""

from __future__ import annotations

import numpy as np

from ..draft import Draft, Unfit, is_float
from .table import builds_contrib


def _bytes(draft: Draft, *dims: int) -> np.ndarray:
    return draft.rng.integers(0, 256, dims).astype(np.uint8)


@builds_contrib("MatMulNBits")
def matmul_bits(draft: Draft) -> None:
    """Blocks that fill the depth or do not; zero points packed, as numbers, or left out."""
    bits = draft.attribute("bits", 4, 8, 2, default=4)
    block = draft.one(16, 32, 64)
    depth, filters = draft.one(block, 2 * block, block + 8, 16, 3 * block), draft.one(1, 3, 8)
    blocks = -(-depth // block)
    draft.set("block_size", block)
    draft.set("K", depth)
    draft.set("N", filters)
    draft.attribute("accuracy_level", 0, 1)
    draft.attribute("weight_prepacked", 0)
    kind = draft.type_of("T1")
    rows = draft.one((3,), (1,), (2, 3), ())
    draft.shape = (*rows, filters)
    draft.tensor((*rows, depth), "T1", "unit")
    draft.read(_bytes(draft, filters, blocks, block * bits // 8), constant=draft.one(True, True, None))
    scales = draft.one((filters, blocks), (filters, blocks), (filters * blocks,))
    draft.read(draft.rng.choice([0.01, 0.02, 0.03], scales).astype(kind), constant=True)
    if draft.optional("zero_points", 0.6):
        if bits == 8 or draft.chance(0.7):
            draft.read(_bytes(draft, filters, -(-blocks * bits // 8)), constant=True)
        else:
            middle = 2 ** (bits - 1)
            draft.read((draft.rng.integers(-2, 3, (filters, blocks)) + middle).astype(kind), constant=True)
    draft.skip()  # g_idx
    if draft.optional("bias", 0.4):
        draft.tensor((filters,), "T1", constant=True)
    draft.loose = 16.0


@builds_contrib("MatMulBnb4")
def matmul_bnb4(draft: Draft) -> None:
    """Codes of a table of 16 numbers, which bitsandbytes calls FP4 and NF4."""
    block, depth, filters = draft.one(16, 32), draft.one(16, 32, 48), draft.one(2, 4)
    draft.set("quant_type", draft.one(0, 1))
    draft.set("block_size", block)
    draft.set("K", depth)
    draft.set("N", filters)
    draft.attribute("transB", 1)
    kind = draft.type_of("T1")
    rows = draft.one((3,), (1,), (2, 3))
    draft.shape = (*rows, filters)
    draft.tensor((*rows, depth), "T1", "unit")
    draft.read(_bytes(draft, filters * depth // 2), constant=True)
    draft.read(draft.rng.choice([0.5, 1.0, 0.25], (-(-filters * depth // block),)).astype(kind), constant=True)
    draft.loose = 16.0


@builds_contrib("GatherBlockQuantized")
def gather_blocks(draft: Draft) -> None:
    """Tables of bytes, whose bits are packed along the last axis, and of codes of 4 bits."""
    data, numbers = draft.type_of("T1"), draft.type_of("T2")
    if is_float(data):
        raise Unfit("tables of floats of 8 bits run on GPUs only")
    packed = data == np.uint8
    bits = draft.attribute("bits", 4, 8, 2, default=4) if packed else draft.attribute("bits", 4, default=4)
    block = draft.attribute("block_size", 16, 32, default=128)
    rank = draft.one(2, 2, 3)
    dims = [*(draft.one(3, 4, 5) for _ in range(rank - 1)), draft.one(block, 2 * block, block + 8)]
    axis = rank - 1
    gather = 0 if packed else draft.one(0, 0, rank - 1, 1)
    if not packed and draft.chance(0.3):
        axis, dims = 0, dims[::-1]
    if axis == gather and packed:
        raise Unfit("bytes are not gathered along the axis of their blocks")
    draft.attribute("gather_axis", gather, gather - rank, always=gather != 0)
    draft.attribute("quantize_axis", axis, axis - rank, always=axis != 1)
    blocks = [*dims[:axis], -(-dims[axis] // block), *dims[axis + 1 :]]
    if packed:
        dims[-1] = dims[-1] * bits // 8
    draft.read(_bytes(draft, *dims) if packed else draft.values(dims, data, "edges"), constant=True)
    count = dims[gather]
    low = -count if draft.chance(0.3) else 0
    indices = draft.one((), (2,), (2, 3))
    draft.read(draft.rng.integers(low, count, indices).astype(draft.type_of("Tind")))
    draft.read(draft.rng.choice([0.01, 0.02, 0.03], blocks).astype(numbers), constant=True)
    if draft.optional("zero_points"):
        if packed:
            blocks[-1] = -(-blocks[-1] * bits // 8)
        draft.read(_bytes(draft, *blocks) if packed else draft.values(blocks, data), constant=True)


@builds_contrib("DynamicQuantizeLSTM")
def dynamic_lstm(draft: Draft) -> None:
    """Weights are codes with a scale for each direction, or for each column."""
    length, n, width, hidden = draft.one(1, 3), draft.one(1, 2), draft.one(2, 4), draft.one(2, 3)
    directions = 2 if draft.attribute("direction", "forward", "reverse", "bidirectional") == "bidirectional" else 1
    draft.set("hidden_size", hidden)
    draft.attribute("input_forget", 0)
    if draft.chance(0.2):
        draft.set("activations", ["Sigmoid", "Tanh", "Tanh"] * directions)
    if draft.chance(0.2):
        draft.set("clip", draft.one(0.5, 5.0))
    columns = 4 * hidden
    draft.tensor((length, n, width), "T", "unit", constant=False)
    for inner in (width, hidden):
        draft.tensor((directions, inner, columns), "T2", "edges", constant=True)
    if draft.optional("B"):
        draft.tensor((directions, 2 * columns), "T", "unit")
    if draft.optional("sequence_lens", 0.3):
        draft.read(draft.rng.integers(1, length + 1, (n,)).astype(np.int32))
    for name in ("initial_h", "initial_c"):
        if draft.optional(name, 0.4):
            draft.tensor((directions, n, hidden), "T", "unit")
    if draft.optional("P", 0.2):
        draft.tensor((directions, 3 * hidden), "T", "unit")
    for _ in range(2):
        dims = draft.one((directions,), (directions, columns))
        draft.read(draft.rng.choice([0.005, 0.01], dims).astype(np.float32), constant=True)
        zero = draft.values(dims, draft.type_of("T2")) if len(dims) == 1 else np.zeros(dims, draft.type_of("T2"))
        draft.read(zero, constant=True)
    draft.outputs = draft.one(["y0"], ["y0", "y1", "y2"], ["y0", "y1"])
    draft.shape = (length, directions, n, hidden)
    draft.loose = 6000.0  # the numbers are quantized on their way
