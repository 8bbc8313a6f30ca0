"""Runs from arrays on the GPU to arrays on the GPU, again and again, on a GPU."""

import numpy as np
import pytest

import pytrtplugins as ptp
from tests.cuda.foreign import Foreign, OnlyDlpack
from tests.engines.cuda.run.test_bound_run_gpu import libraries
from tests.engines.networks import conv_net, image

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]

CALLS = 60
"""So many that arrays that take turns have graphs of their own before the end."""


@pytest.fixture
def context(gpu):
    with ptp.build(conv_net(batch="N"), engine=gpu, settings={"disable": ["tactics"]}).create_context() as made:
        yield made


class Bytes:
    """Numbers that begin at any byte of a tensor of bytes."""

    def __init__(self, memory, begin, shape):
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": "<f4",
            "data": (memory.data_ptr() + begin, False),
            "version": 3,
        }


def makers():
    """For each kind of array: from NumPy to it, what fills it, and what is in it."""
    cupy = pytest.importorskip("cupy")
    for make, to_host, fill, _ in libraries():
        yield make, fill, to_host
    for kind in (Foreign, OnlyDlpack):
        make = lambda x, kind=kind: kind(cupy.asarray(x))  # noqa: E731
        yield make, lambda to, x: to.array.set(x), lambda array: array.array.get()


def test_arrays_of_each_library_that_come_again_and_again_get_the_bits_of_run(context):
    cupy = pytest.importorskip("cupy")
    wait, streams = cupy.cuda.Device().synchronize, (None, cupy.cuda.Stream(non_blocking=True), 0)
    wanted = [context.run({"data": image(seed=seed)})["y"] for seed in range(6)]
    for make, fill, to_host in makers():
        pairs = [(make(image()), make(np.zeros_like(wanted[0]))) for _ in range(2)]
        for call in range(CALLS):
            x, y = pairs[call % 2]
            fill(x, image(seed=call % 6))
            wait()
            context.enqueue({"data": x}, {"y": y}, streams[call % 3])
            wait()
            np.testing.assert_array_equal(to_host(y), wanted[call % 6])


def test_runs_on_several_streams_keep_their_order_without_waits(context):
    cupy = pytest.importorskip("cupy")
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    pairs = [(cupy.asarray(image(seed=seed)), cupy.zeros((1, 4, 8, 8), np.float32)) for seed in range(3)]
    wanted = [context.run({"data": image(seed=seed)})["y"] for seed in range(3)]
    cupy.cuda.Device().synchronize()
    for call in range(300):
        x, y = pairs[call % 3]
        context.enqueue({"data": x}, {"y": y}, streams[call // 2 % 3])
    cupy.cuda.Device().synchronize()
    for (_, y), expected in zip(pairs, wanted, strict=True):
        np.testing.assert_array_equal(cupy.asnumpy(y), expected)


@pytest.mark.parametrize("begin", [0, 4, 8, 1])
def test_arrays_that_begin_anywhere_get_the_bits_of_run(context, begin):
    torch = pytest.importorskip("torch")
    wanted = context.run({"data": image(3)})["y"]
    memory = [torch.zeros(array.nbytes + 16, dtype=torch.uint8, device="cuda") for array in (image(3), wanted)]
    x, y = (Bytes(part, begin, array.shape) for part, array in zip(memory, (image(3), wanted), strict=True))
    memory[0][begin : begin + image(3).nbytes] = torch.from_numpy(image(3).view(np.uint8).reshape(-1)).cuda()
    for _ in range(CALLS):
        memory[1].zero_()
        torch.cuda.synchronize()
        context.enqueue({"data": x}, {"y": y})
        torch.cuda.synchronize()
        before, found, behind = np.split(memory[1].cpu().numpy(), [begin, begin + wanted.nbytes])
        np.testing.assert_array_equal(found.view(np.float32).reshape(wanted.shape), wanted)
        assert not before.any()
        assert not behind.any()


def test_memory_that_is_freed_and_taken_again_by_arrays_of_other_dims_is_right(context):
    cupy = pytest.importorskip("cupy")
    for batch in (2, 1, 3):
        wanted = context.run({"data": image(batch)})["y"]
        for _ in range(20):
            x, y = cupy.asarray(image(batch)), cupy.zeros(wanted.shape, np.float32)
            context.enqueue({"data": x}, {"y": y})
            np.testing.assert_array_equal(cupy.asnumpy(y), wanted)
            del x, y
