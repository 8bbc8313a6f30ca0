"""Kernels whose threads share memory, or read beside their own values: each access is in an array, and none races with another."""

import numpy as np
import pytest

from pytrtplugins.check.guard import Memory
from pytrtplugins.cuda import CudaKernel
from pytrtplugins.cuda.watch import ORDERS, Watch, watching
from pytrtplugins.engines.cuda.device.indexed import nonzero, pools, scatter, unique
from pytrtplugins.engines.cuda.device.indexed.table import INDEXED, Node
from pytrtplugins.engines.cuda.device.layout import linear
from pytrtplugins.engines.cuda.device.moves import Source
from pytrtplugins.engines.cuda.device.operands import operands
from pytrtplugins.tensor import DType
from tests.broken_kernels import NEEDED
from tests.engines.cuda.lower.test_pointwise import random
from tests.randomness import generator

pytestmark = NEEDED
RNG = generator(6)
UPDATES, PLACES = random(3, 20, kind=np.float16), RNG.integers(-50, 50, (3, 20))


def watched(op, inputs, outputs, attributes):
    """What a kernel makes of its outputs, the same bits in each order of its threads."""
    given, results = ([linear(array.shape, DType.of(array)) for array in arrays] for arrays in (inputs, outputs))
    sources = [Source(form.dims, index) for index, form in enumerate(given)]
    node = Node(op, {**attributes, "known": {}}, operands(given, sources, results[0]), results)
    source = INDEXED[op].write(node)
    kernel, found = CudaKernel(source.text, "indexed", label="generated.cu"), []
    for order in ORDERS:
        with Memory(at_end=order != "forward") as memory:
            arrays = [memory.array(f"x{i}", array.shape, array.dtype, read_only=True) for i, array in enumerate(inputs)]
            arrays += [memory.array(f"y{i}", array.shape, array.dtype) for i, array in enumerate(outputs)]
            arrays.append(memory.array("flag", (1,), np.bool_))
            for array, values in zip(arrays, (*inputs, *outputs), strict=False):
                array[...] = values
            scratch = memory.array("scratch", (source.scratch,), np.uint8) if source.scratch else None
            with watching(Watch(memory.regions, order, races=True)) as watch:
                kernel.launch(*arrays, scratch, threads=source.blocks * source.threads, block=source.threads)
            assert (watch.watched, watch.unwatched, memory.damage()) == (1, 0, "")
            found.append([np.array(array) for array in arrays[len(inputs) : -1]])
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            np.testing.assert_array_equal(other, one)
    return found[0]


@pytest.mark.parametrize("blocks", [1, 128])
def test_updates_of_a_scatter(blocks, monkeypatch):
    monkeypatch.setattr(scatter, "_BLOCKS", blocks)
    (found,) = watched(
        "ScatterElements", [PLACES, UPDATES], [np.zeros((3, 50), np.float16)], {"axis": 1, "reduction": "add"}
    )
    sums = np.zeros((3, 50), np.float32)
    np.add.at(sums, (np.arange(3)[:, None], PLACES), UPDATES.astype(np.float32))
    np.testing.assert_array_equal(found, sums.astype(np.float16))


def test_blocks_that_share_a_row():
    x = np.round(random(2, 2300), 1).astype(np.float16)
    (found,) = watched("ArgMax", [x], [np.zeros((2, 1), np.int64)], {"axis": 1})
    np.testing.assert_array_equal(found, x.argmax(1, keepdims=True))


@pytest.mark.parametrize("threads", [1, 1 << 17])
def test_windows_that_reach_over_borders(threads, monkeypatch):
    monkeypatch.setattr(pools, "_THREADS", threads)
    x = random(1, 2, 5, 16, kind=np.float16)
    at = {"kernel_shape": [3, 3], "strides": [1, 2], "pads": [1, 1, 1, 0]}
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 0)], constant_values=-np.inf)
    wanted = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, :, ::2].max((-2, -1))
    (found,) = watched("MaxPool", [x], [np.zeros(wanted.shape, np.float16)], at)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("threads", [4, 256])
def test_blocks_that_write_behind_those_before(threads, monkeypatch):
    monkeypatch.setattr(nonzero, "_THREADS", threads)
    monkeypatch.setattr(nonzero, "_VALUES", 3)
    x = np.round(random(3, 59)).astype(np.float32)
    places, number = watched("PaddedNonZero", [x], [np.zeros((2, 177), np.int64), np.zeros(1, np.int64)], {})
    np.testing.assert_array_equal(places[:, : number[0]], np.nonzero(x))


@pytest.mark.parametrize("shared", [64, 4096])
@pytest.mark.parametrize("is_sorted", [0, 1])
def test_a_block_that_sorts_and_numbers_runs(shared, is_sorted, monkeypatch):
    monkeypatch.setattr(unique, "_SHARED_BYTES", shared)
    x = RNG.integers(0, 60, 177).astype(np.float32)
    outputs = [np.zeros(177, kind) for kind in (np.float32, np.int64, np.int64, np.int64)]
    found = watched("PaddedUnique", [x], [*outputs, np.zeros(1, np.int64)], {"sorted": is_sorted})
    values, first, _, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    order = np.arange(len(first)) if is_sorted else np.argsort(first)
    assert found[4] == len(first)
    np.testing.assert_array_equal(found[0][: len(first)], values[order])
    np.testing.assert_array_equal(found[1][: len(first)], first[order])
    np.testing.assert_array_equal(found[3][: len(first)], counts[order])
    np.testing.assert_array_equal(found[0][found[2]], x)
