"""Page-locked and ordinary arrays on a GPU: the same bits, whoever locked them."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.cuda import pinned_empty
from pytrtplugins.models import Yolov2
from tests.engines.cuda.device_memory import assert_needs_no_more_memory
from tests.engines.cuda.host import assert_same
from tests.engines.cuda.test_gpu import FAST_BUILD, shipped

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]


@pytest.fixture(scope="module")
def engine():
    return ptp.build(shipped(224)[0], engine="cuda", precision="fp16", settings={**FAST_BUILD, "batch": [1, 3]})


@pytest.fixture(scope="module")
def x():
    return shipped(224)[1]


def locked(array, add=0):
    """A copy in page-locked memory, perhaps behind the beginning of what was locked."""
    memory = pinned_empty((add + array.nbytes,), np.uint8)
    copy = memory[add:].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def by_torch(array):
    torch = pytest.importorskip("torch")
    return torch.from_numpy(array.copy()).pin_memory().numpy()


@pytest.mark.parametrize("batch", [1, 3])
def test_all_kinds_of_memory_give_the_same_bits(engine, x, batch):
    with engine.create_context() as context:
        wanted = context.run({"data": x[:batch]})
        for copy in (locked, lambda array: locked(array, 256), by_torch):
            given = copy(x[:batch])
            outputs = {name: locked(array * 0) for name, array in wanted.items()}
            assert_same(context.run({"data": given}), wanted)
            assert_same(context.run({"data": given}, outputs), wanted)
            assert_same(context.run_async({"data": given}).result(), wanted)


def test_images_in_page_locked_memory_give_the_same_boxes(engine):
    sizes = [(side, side + 50, 3) for side in (30, 500, 900)]
    images = [np.random.default_rng(size[0]).integers(0, 256, size).astype(np.uint8) for size in sizes]
    with Yolov2(engine) as detector:
        wanted = [detector(image, score_threshold=0.01) for image in images]
        assert [detector(locked(image), score_threshold=0.01) for image in images] == wanted
        together = detector([locked(image) for image in images], score_threshold=0.01)
        assert together == detector(images, score_threshold=0.01)
        streamed = [boxes for _, boxes in detector.stream([*images, *map(locked, images)] * 20, score_threshold=0.01)]
        assert streamed == [*detector(images * 40, score_threshold=0.01)]


def test_four_threads_give_the_bits_of_one_while_inputs_change(engine, x):
    inputs = [np.ascontiguousarray(np.roll(x, shift, 3)) for shift in range(6)]

    def work(number):
        given = locked(inputs[0]) if number % 2 else np.empty_like(inputs[0])
        found = []
        with engine.create_context() as context:
            for _ in range(20):
                for values in inputs:
                    given[...] = values
                    found.append(next(iter(context.run({"data": given}).values())))
        return found

    wanted = work(0)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(work, range(4)):
            for one, other in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(one, other)


def test_many_runs_need_no_more_memory(engine, x):
    with engine.create_context() as context:
        assert_needs_no_more_memory(lambda: [context.run({"data": x}) for _ in range(2000)])
