"""Choose the launch form of a recurrent kernel by the estimated time of a step."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from ....tensor import DType
from .recurrent_form import (
    CLUSTER,
    IN_L2,
    IN_REGISTERS,
    IN_SHARED,
    MAX_PIECES,
    ONE_BLOCK,
    UNKNOWN,
    WHOLE_GRID,
    LanesForm,
    MatrixForm,
    RecurrentForm,
    RecurrentShape,
    Rooms,
)

__all__ = ["choose_form"]


def choose_form(
    shape: RecurrentShape,
    half: bool,
    multiprocessors: int,
    max_cluster: int,
    shared_bytes: int,
    matrix_units: bool = False,
    rooms: Rooms = UNKNOWN,
) -> RecurrentForm | None:
    """Choose the form with the least estimated time; None where the state of a single sequence does not fit into shared memory.

    Args:
        shape: The layer's sizes.
        half: Whether R and h may be rounded to float16.
        multiprocessors: Multiprocessors of the GPU.
        max_cluster: Blocks of a cluster at most; 1: without clusters.
        shared_bytes: Shared memory that a block can have.
        matrix_units: Whether the GPU has the tensor core instructions of recurrent_mma.cu.
        rooms: Clusters that run at the same time.
    """
    spreads = [
        each for each in _spreads(shape, multiprocessors, max_cluster) if each[0] != CLUSTER or rooms.get(each[1], 1)
    ]
    places = (IN_REGISTERS, IN_SHARED, IN_L2)
    types = (DType.FLOAT32, DType.FLOAT16) if half else (DType.FLOAT32,)
    forms: list[RecurrentForm] = [
        LanesForm(shape, *spread, threads, kind, place)
        for spread, threads, kind, place in itertools.product(spreads, MAX_PIECES, types, places)
    ]
    if half and matrix_units:
        forms += [
            MatrixForm(shape, *spread, threads, DType.FLOAT16, place, 2**power)
            for spread, threads, place in itertools.product(spreads, MAX_PIECES, places)
            for power in range(5)
            if 2**power <= threads // 32
        ]
    fitting = (form for form in forms if form.fits(multiprocessors, shared_bytes))
    return min(fitting, key=lambda form: form.cycles(multiprocessors, rooms), default=None)


def _spreads(shape: RecurrentShape, multiprocessors: int, max_cluster: int) -> Iterator[tuple[int, int, int]]:
    """All ways to spread a layer: exchange, blocks of a direction and a group, groups of the batch."""
    powers = [2**power for power in range(8)]
    clusters = [(ONE_BLOCK, 1), *((CLUSTER, size) for size in powers[1:] if size <= max_cluster)]
    for groups in sorted({shape.batch, *(split for split in powers if split < shape.batch)}):
        max_blocks = multiprocessors // (shape.directions * groups)
        grids = [(WHOLE_GRID, blocks) for blocks in sorted({max_blocks, *powers[2:]}) if 1 < blocks <= max_blocks]
        yield from ((exchange, blocks, groups) for exchange, blocks in (*clusters, *grids))
