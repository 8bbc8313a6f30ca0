"""Launch forms of recurrent kernels: grid, threads, place of the weights, and an estimate of the time of a step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ....model.operator_traits import RECURRENT
from ....tensor import DType
from ....utils.override import override

__all__ = [
    "CLUSTER",
    "IN_L2",
    "IN_REGISTERS",
    "IN_SHARED",
    "MAX_PIECES",
    "ONE_BLOCK",
    "UNKNOWN",
    "WHOLE_GRID",
    "LanesForm",
    "MatrixForm",
    "RecurrentForm",
    "RecurrentShape",
    "Rooms",
]

ONE_BLOCK, CLUSTER, WHOLE_GRID = range(3)
"""How blocks exchange the hidden state; see recurrent.cu."""
Rooms = Mapping[int, int]
"""Blocks of a cluster → how many clusters a GPU runs at the same time, where that is known."""
UNKNOWN: Rooms = MappingProxyType({})
IN_REGISTERS, IN_SHARED, IN_L2 = range(3)
"""Where the weights are during all steps."""
_PIECE, _LANES = 16, 32
"""Bytes that a thread loads at once, a piece; threads of a warp."""
_ROUND_ROWS, _MAX_SUMS = 8, {256: 32, 512: 16}
"""Rows of weights that a subwarp multiplies at a time; threads of a block → sums that a thread has registers for."""
MAX_PIECES = {256: 32, 512: 16}
"""Threads of a block → pieces of weights that a thread has registers for."""
_ROUND_COST, _EXCHANGE_COST = 350, {ONE_BLOCK: 40, CLUSTER: 500, WHOLE_GRID: 1100}
"""Cycles of the sums and activations of a round, and of an exchange. All costs here are fitted to times on an H200."""
_BARRIER_COST = 500
"""More cycles of an exchange through global memory with a barrier than with step numbers: a round trip to L2; not measured."""
_SHARED_RATE, _L2_RATE = 128, 50
"""Bytes that a multiprocessor reads in a cycle, from shared memory and from L2."""


@dataclass(frozen=True)
class RecurrentShape:
    """Sizes of a recurrent layer.

    Attributes:
        op: ``"LSTM"``, ``"GRU"`` or ``"RNN"``.
        steps: Steps of a sequence.
        batch: Number of sequences.
        hidden: Hidden units of a direction.
        directions: 1 or 2.
        resets_first: Whether a GRU's reset gate multiplies the state before its product: each step has two exchanges then.
    """

    op: str
    steps: int
    batch: int
    hidden: int
    directions: int
    resets_first: bool = False

    @property
    def gates(self) -> int:
        """Rows of weights for each hidden unit."""
        return RECURRENT[self.op].gates


@dataclass(frozen=True)
class RecurrentForm(ABC):
    """How a layer is spread over the GPU.

    Attributes:
        file: File of the kernel, included after recurrent.cu.
        shape: The layer's sizes.
        exchange: `ONE_BLOCK`, `CLUSTER` or `WHOLE_GRID`.
        blocks: Blocks that share the hidden units of one direction.
        groups: Parts of the batch, each with blocks of its own.
        threads: Threads of a block.
        weights: Element type of R on the GPU.
        place: Where R is during all steps: `IN_REGISTERS`, `IN_SHARED` or `IN_L2`.
    """

    file: ClassVar[str]
    shape: RecurrentShape
    exchange: int
    blocks: int
    groups: int
    threads: int
    weights: DType
    place: int

    @property
    @abstractmethod
    def state(self) -> DType:
        """Element type of the hidden state that is multiplied with R."""

    @property
    @abstractmethod
    def units(self) -> int:
        """Hidden units of a block, those of padding included."""

    @property
    @abstractmethod
    def pitch(self) -> int:
        """Values from the state of one sequence to that of the next."""

    @property
    @abstractmethod
    def rows_each(self) -> int:
        """Sequences that are computed at a time."""

    @property
    @abstractmethod
    def own_pieces(self) -> int:
        """Pieces of weights, of 16 bytes, of a thread."""

    @abstractmethod
    def packed(self, weights: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
        """R, (directions, gates · hidden, hidden), in the order in which threads read it, zeros where there are no weights."""

    @abstractmethod
    def _scratch_words(self) -> int:
        """Shared memory for sums and new states, in units of 4 bytes; the state itself and the weights are not counted."""

    @abstractmethod
    def _cycles(self) -> float:
        """Estimated cycles of a step, without loads of weights and exchanges."""

    @abstractmethod
    def _constants(self) -> dict[str, int]:
        """Constants that only this kernel is compiled with."""

    @property
    def group_rows(self) -> int:
        """Sequences of a group."""
        return -(-self.shape.batch // self.groups)

    @property
    def chunks(self) -> int:
        """How many times a block computes `rows_each` sequences in a step."""
        return -(-self.group_rows // self.rows_each)

    @property
    def buffer(self) -> int:
        """Size of a group's hidden state with padding, in units of 4 bytes."""
        return self.chunks * self.rows_each * self.pitch * self.state.itemsize // 4

    @property
    def tagged(self) -> bool:
        """Whether each value of the state is stored with the number of its step, which readers poll; else there is a barrier."""
        return self.exchange == WHOLE_GRID and self.state is DType.FLOAT32

    @property
    def exchange_words(self) -> int:
        """Global memory through which blocks exchange the state, in units of 4 bytes; it starts as zeros."""
        words = 3 * self.buffer * (2 if self.tagged else 1) + 32
        return self.shape.directions * self.groups * words if self.exchange == WHOLE_GRID else 1

    @property
    def shared_floats(self) -> int:
        """Shared memory of a block, in units of 4 bytes."""
        buffers = (1 if self.exchange == WHOLE_GRID and not self.tagged else 2) + self.shape.resets_first
        has_cells = self.shape.op == "LSTM" or self.shape.resets_first
        cells = self.units * self.chunks * self.rows_each if has_cells else 0
        weights = self.own_pieces * self.threads * 4 if self.place == IN_SHARED else 0
        return 8 + -(-(buffers * self.buffer + cells + self._scratch_words()) // 4) * 4 + weights

    @property
    def grid(self) -> int:
        """Blocks of the launch."""
        return self.shape.directions * self.groups * self.blocks

    def constants(self) -> dict[str, int]:
        """Constants that the kernel is compiled with, by their names in the source."""
        shape = self.shape
        return {
            "STEPS": shape.steps, "BATCH": shape.batch, "HIDDEN": shape.hidden, "DIRECTIONS": shape.directions,
            "KIND": list(RECURRENT).index(shape.op), "EXCHANGE": self.exchange, "BLOCKS": self.blocks, "GROUPS": self.groups,
            "GROUP_ROWS": self.group_rows, "THREADS": self.threads, "UNITS": self.units, "ROWS_EACH": self.rows_each,
            "PLACE": self.place, "PITCH": self.pitch, "OWN_PIECES": self.own_pieces, "SHARED_FLOATS": self.shared_floats,
            **self._constants(),
        }  # fmt: skip

    def cycles(self, multiprocessors: int, rooms: Rooms = UNKNOWN) -> float:
        """Estimated cycles of a step, times the turns in which a GPU with this many multiprocessors runs all blocks."""
        time, exchanges = self._cycles(), 2 if self.shape.resets_first else 1
        if self.place != IN_REGISTERS:
            rate = _SHARED_RATE if self.place == IN_SHARED else _L2_RATE
            time += self.threads * self.own_pieces * _PIECE * self.chunks / rate
        time += exchanges * _EXCHANGE_COST[self.exchange] + self.blocks
        if self.exchange == WHOLE_GRID:
            time += exchanges * (self.buffer * 4 / _L2_RATE + (0 if self.tagged else _BARRIER_COST))
        room = rooms.get(self.blocks) if self.exchange == CLUSTER else None
        turns = -(-self.grid // multiprocessors) if room is None else -(-self.grid // (self.blocks * max(room, 1)))
        return time * turns

    def fits(self, multiprocessors: int, shared_bytes: int) -> bool:
        """Whether the form fits a GPU with these multiprocessors and this shared memory of a block, and gives each block work."""
        return (
            self.shared_floats * 4 <= shared_bytes
            and (self.blocks == 1 or self.units * (self.blocks - 1) < self.shape.hidden)
            and (self.exchange != WHOLE_GRID or self.grid <= multiprocessors)
            and (self.place != IN_REGISTERS or self.own_pieces <= MAX_PIECES[self.threads])
        )


@dataclass(frozen=True)
class LanesForm(RecurrentForm):
    """Products with R in float32, each sum shared by the lanes of a subwarp: recurrent_lanes.cu."""

    file: ClassVar[str] = "recurrent_lanes.cu"

    @property
    @override
    def state(self) -> DType:
        return DType.FLOAT32

    @property
    def values(self) -> int:
        """Number of weights in a piece of 16 bytes."""
        return _PIECE // self.weights.itemsize

    @property
    def lanes(self) -> int:
        """Threads of a subwarp, which share the sums of a row."""
        return int(min(_LANES, 2 ** math.ceil(math.log2(-(-self.shape.hidden // self.values)))))

    @property
    def pieces(self) -> int:
        """Pieces of a row of R that one lane has."""
        return -(-self.shape.hidden // (self.lanes * self.values))

    @property
    @override
    def pitch(self) -> int:
        return self.pieces * self.lanes * self.values

    @property
    def _units_of_subwarp(self) -> int:
        """Hidden units of a subwarp in a step."""
        subwarps = self.blocks * (self.threads // self.lanes)
        return -(-self.shape.hidden // subwarps)

    @property
    def units_each(self) -> int:
        """Hidden units that a subwarp computes at a time, in a round."""
        return min(max(1, _ROUND_ROWS // self.shape.gates), self._units_of_subwarp)

    @property
    def rounds(self) -> int:
        """Rounds of a subwarp in a step."""
        return -(-self._units_of_subwarp // self.units_each)

    @property
    @override
    def units(self) -> int:
        return self.threads // self.lanes * self.rounds * self.units_each

    @property
    @override
    def rows_each(self) -> int:
        max_rows = max(1, _MAX_SUMS.get(self.threads, 32) // (self.units_each * self.shape.gates))
        return next(rows for rows in (4, 2, 1) if rows <= max_rows and (rows == 1 or rows < 2 * self.group_rows))

    @property
    @override
    def own_pieces(self) -> int:
        return self.rounds * self.units_each * self.shape.gates * self.pieces

    @override
    def packed(self, weights: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
        shape, padded = self.shape, self._padded(weights)
        # a piece has several runs of 4 columns, so that the lanes read each 16 bytes of the state side by side
        parts = padded.reshape(shape.directions, -1, shape.gates, self.pieces, self.values // 4, self.lanes, 4)
        return np.ascontiguousarray(parts.swapaxes(-3, -2)).reshape(-1)

    def _padded(self, weights: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
        """R as (directions, units, gates, columns), padded with zeros to the units of all blocks and to `pitch` columns."""
        shape = self.shape
        source = weights.reshape(shape.directions, shape.gates, shape.hidden, shape.hidden).swapaxes(1, 2)
        padded = np.zeros((shape.directions, self.blocks * self.units, shape.gates, self.pitch), self.weights.numpy)
        with np.errstate(over="ignore"):
            padded[:, : shape.hidden, :, : shape.hidden] = source
        return padded

    @override
    def _scratch_words(self) -> int:
        return self.threads // self.lanes * self.units_each * (self.shape.gates + 1) * self.rows_each

    @override
    def _cycles(self) -> float:
        pieces = self.threads * self.own_pieces
        conversions = 1.5 * self.chunks * (self.weights is DType.FLOAT16)
        products = pieces * self.values * (self.chunks * self.rows_each + conversions) / 128
        reads = self.threads * self.buffer * self.rounds / self.lanes * 4 / _SHARED_RATE
        return products + reads + self.chunks * self.rounds * _ROUND_COST + 50 + 1.6 * self.threads

    @override
    def _constants(self) -> dict[str, int]:
        return {"LANES": self.lanes, "PIECES": self.pieces, "ROUNDS": self.rounds, "UNITS_EACH": self.units_each}


@dataclass(frozen=True)
class MatrixForm(RecurrentForm):
    """Products with R in float16 on tensor cores: recurrent_mma.cu.

    Attributes:
        column_warps: Warps among which the columns of R, and so each sum, are split.
    """

    file: ClassVar[str] = "recurrent_mma.cu"
    column_warps: int = 1

    @property
    @override
    def state(self) -> DType:
        return DType.FLOAT16

    @property
    @override
    def units(self) -> int:
        return -(-self.shape.hidden // (2 * self.blocks)) * 2  # two values are exchanged at a time

    @property
    def _row_warps(self) -> int:
        """Warps among which the rows of R are split."""
        return self.threads // 32 // self.column_warps

    @property
    def row_tiles(self) -> int:
        """Tiles of 16 rows of R that a warp has."""
        return -(-self.shape.gates * self.units // (16 * self._row_warps))

    @property
    def column_tiles(self) -> int:
        """Tiles of 16 columns of R that a warp has."""
        return -(-self.shape.hidden // (16 * self.column_warps))

    @property
    @override
    def pitch(self) -> int:
        return self.column_tiles * self.column_warps * 16 + 8  # 8: without bank conflicts

    @property
    @override
    def rows_each(self) -> int:
        return 8

    @property
    @override
    def own_pieces(self) -> int:
        return self.row_tiles * self.column_tiles

    @override
    def packed(self, weights: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
        d, g, h = self.shape.directions, self.shape.gates, self.shape.hidden
        rows, columns = self._row_warps * self.row_tiles * 16, self.column_warps * self.column_tiles * 16
        units = np.zeros((d, g, self.blocks * self.units, columns), np.float16)
        with np.errstate(over="ignore"):
            units[:, :, :h, :h] = weights.reshape(d, g, h, h)
        blocks = units.reshape(d, g, self.blocks, self.units, columns).swapaxes(1, 2)
        padded = np.zeros((d, self.blocks, rows, columns), np.float16)
        padded[:, :, : g * self.units] = blocks.reshape(d, self.blocks, g * self.units, columns)
        # rows: warp, tile, half, row; columns: warp, tile, half, pair, value
        tiles = padded.reshape(-1, self._row_warps, self.row_tiles, 2, 8, self.column_warps, self.column_tiles, 2, 4, 2)
        return np.ascontiguousarray(tiles.transpose(0, 1, 5, 2, 6, 4, 8, 7, 3, 9)).reshape(-1)

    @override
    def _scratch_words(self) -> int:
        rows = self.chunks * 8
        return self.threads // 32 * self.row_tiles * 16 * (rows + 1) + self.units * rows

    @override
    def _cycles(self) -> float:
        pairs = -(-self.units * self.group_rows // self.threads)
        products = self.column_tiles * max(33, self.row_tiles * self.threads / 32 * 1.6) + 40
        receivers = self.blocks if self.exchange == CLUSTER else 1
        sums = pairs * (self.shape.gates * self.column_warps * 8 + 120 + receivers * 8)
        sends = 0.4 * self.units * self.group_rows * receivers
        return (1 + self.shape.resets_first) * (self.chunks * products + sums + sends + 250 + 0.66 * self.threads)

    @override
    def _constants(self) -> dict[str, int]:
        return {"ROW_TILES": self.row_tiles, "COLUMN_TILES": self.column_tiles, "COLUMN_WARPS": self.column_warps}
