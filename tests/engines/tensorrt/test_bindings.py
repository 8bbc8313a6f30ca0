"""Arrays on the GPU as inputs and outputs of a run, without a copy."""

import sys

import numpy as np
import pytest

from pytrtplugins.errors import BindingError
from tests.engines.networks import Affine, conv_net, image

from .builds import build
from .fake_gpu import Outside, Stream


@pytest.fixture
def context(player, monkeypatch):
    engine = build(conv_net(Affine(3.0), batch="N"))
    monkeypatch.setitem(sys.modules, "cupy", engine.device.cupy)
    monkeypatch.setattr(Stream, "waited", Stream.waited)
    Stream.waited.clear()
    with engine.create_context() as made:
        yield made


@pytest.fixture
def bound(tensorrt):
    seen = []
    play = tensorrt.answers["IExecutionContext.set_tensor_address"]
    tensorrt.answers["IExecutionContext.set_tensor_address"] = lambda name, memory: (
        seen.append((name, memory)) or play(name, memory)
    )
    return seen


def test_arrays_on_the_gpu_are_read_and_written_in_place(context, bound):
    expected = context.run({"data": image(2)})["y"]
    bound.clear()
    x, y = Outside(image(2)), Outside(np.zeros((2, 4, 8, 8), np.float32))
    found = context.run({"data": x}, {"y": y})["y"]
    assert bound == [("data", x.values.ctypes.data), ("y", y.values.ctypes.data)]
    np.testing.assert_array_equal(y.values, expected)
    assert found.data.ptr == y.values.ctypes.data


def test_one_context_takes_arrays_of_both_places_in_turn(context, bound):
    for n in (1, 2, 2, 1):
        expected = context.run({"data": image(n)})["y"]
        np.testing.assert_array_equal(context.run({"data": Outside(image(n))})["y"], expected)
        y = np.zeros((n, 4, 8, 8), np.float32)
        assert context.run({"data": image(n)}, {"y": y})["y"] is y
        np.testing.assert_array_equal(y, expected)


def test_the_same_addresses_are_bound_once(context, bound):
    x, y = Outside(image(2)), Outside(np.zeros((2, 4, 8, 8), np.float32))
    for _ in range(3):
        context.run({"data": x}, {"y": y})
    assert len(bound) == 2


def test_a_run_waits_for_those_who_write_its_inputs(context):
    context.run({"data": image()})
    assert Stream.waited == []
    context.run({"data": Outside(image(), stream=2)})
    assert Stream.waited == [2, "an event"]


OUT = np.zeros((1, 4, 8, 8), np.float32)


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        (image().astype(np.float64), OUT, "input 'data': expected float32, found float64"),
        (image()[:, :2], OUT, r"input 'data': expected dims \(N, 3, 8, 8\)"),
        (image(), np.zeros((1, 4, 8, 8), np.int32), "output 'y': expected float32, found int32"),
        (image(), np.zeros((2, 4, 8, 8), np.float32), r"output 'y': its dims are \(1, 4, 8, 8\)"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_by_name(context, x, y, words):
    with pytest.raises(BindingError, match=words):
        context.run({"data": Outside(x)}, {"y": Outside(y)})


def test_an_array_with_gaps_is_refused(context):
    with pytest.raises(BindingError, match="not contiguous"):
        context.run({"data": Outside(image(), order="F")})
