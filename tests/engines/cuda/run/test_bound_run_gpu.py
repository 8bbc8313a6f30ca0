"""Runs on arrays that the caller keeps, on a GPU."""

import contextlib

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.errors import BindingError
from tests.engines.cuda.conftest import darknet_model
from tests.engines.networks import Affine, conv_net, image

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]


@pytest.fixture(scope="module")
def engine(gpu):
    model, _ = darknet_model("yolov2-animals.cfg", size=96, batch="dynamic")
    return ptp.build(model, engine=gpu, precision="fp16", settings={"disable": ["tactics"]})


def images(seed=1):
    return np.random.default_rng(seed).random((1, 3, 96, 96), dtype=np.float32)


def libraries():
    """Of each: from NumPy to its arrays, to NumPy, what fills one, a stream of its own."""
    cupy = pytest.importorskip("cupy")
    yield cupy.asarray, cupy.asnumpy, lambda to, x: to.set(x), lambda: cupy.cuda.Stream(non_blocking=True)
    with contextlib.suppress(ImportError):
        import torch

        def fill(to, x):
            to.copy_(torch.from_numpy(x))

        yield lambda x: torch.from_numpy(x).cuda(), lambda x: x.cpu().numpy(), fill, torch.cuda.Stream


def test_a_bound_run_gives_the_bits_of_run_for_arrays_and_streams_of_each_library(engine):
    cupy = pytest.importorskip("cupy")
    with engine.create_context() as context:
        wanted = [context.run({"data": images(seed)}) for seed in (1, 2)]
        for to_gpu, to_host, fill, make_stream in libraries():
            x = to_gpu(images())
            outputs = {name: to_gpu(np.zeros_like(value)) for name, value in wanted[0].items()}
            with context.bind({"data": x}, outputs) as bound:
                for stream in (None, make_stream()):
                    for seed in (1, 2):
                        fill(x, images(seed))
                        cupy.cuda.Device().synchronize()
                        bound.launch(stream)
                        cupy.cuda.Device().synchronize()
                        for name, array in outputs.items():
                            np.testing.assert_array_equal(to_host(array), wanted[seed - 1][name])


def test_work_on_the_stream_before_and_behind_a_launch_is_in_order(engine):
    torch = pytest.importorskip("torch")
    with engine.create_context() as context:
        wanted = context.run({"data": images()})
        name = next(iter(wanted))
        x, late = torch.zeros((1, 3, 96, 96), device="cuda"), torch.from_numpy(images()).cuda()
        y = torch.zeros(wanted[name].shape, device="cuda")
        bound = context.bind({"data": x}, {name: y})
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)  # cycles
            x.copy_(late)
            bound.launch(stream)
            after = y + 1
        stream.synchronize()
        np.testing.assert_array_equal(after.cpu().numpy(), wanted[name] + 1)
        bound.close()


def test_arrays_that_begin_anywhere_are_copied_inside_the_graph(engine):
    cupy = pytest.importorskip("cupy")
    with engine.create_context() as context:
        wanted = context.run({"data": images()})
        x = cupy.zeros(images().size + 1, np.float32)[1:].reshape(images().shape)
        outputs = {name: cupy.zeros(v.size + 1, np.float32)[1:].reshape(v.shape) for name, v in wanted.items()}
        with context.bind({"data": x}, outputs) as bound:
            x.set(images())
            bound.launch()
            cupy.cuda.Device().synchronize()
        for name, array in outputs.items():
            np.testing.assert_array_equal(cupy.asnumpy(array), wanted[name])


def test_a_network_with_a_plugin_that_computes_runs_in_parts(gpu):
    cupy = pytest.importorskip("cupy")
    engine = ptp.build(conv_net(Affine(3.0)), engine=gpu)
    with engine.create_context() as context:
        wanted = context.run({"data": image()})["y"]
        x, y = cupy.asarray(image()), cupy.zeros(wanted.shape, np.float32)
        with context.bind({"data": x}, {"y": y}) as bound:
            for _ in range(3):
                y[...] = 0
                bound.launch()
                np.testing.assert_array_equal(cupy.asnumpy(y), wanted)


def test_an_output_over_an_input_is_refused(gpu):
    cupy = pytest.importorskip("cupy")
    with ptp.build(conv_net(), engine=gpu).create_context() as context:
        memory = cupy.zeros(1024, np.float32)
        with pytest.raises(BindingError, match="lies over"):
            context.bind({"data": memory[:192].reshape(1, 3, 8, 8)}, {"y": memory[64:320].reshape(1, 4, 8, 8)})


@pytest.mark.parametrize("how", ["bind", "enqueue"])
def test_a_run_becomes_part_of_the_graph_that_pytorch_captures(engine, how):
    torch = pytest.importorskip("torch")
    with engine.create_context() as context:
        wanted = [context.run({"data": images(seed)}) for seed in (1, 2)]
        x = torch.from_numpy(images()).cuda()
        outputs = {name: torch.zeros(value.shape, device="cuda") for name, value in wanted[0].items()}
        bound = context.bind({"data": x}, outputs)
        context.enqueue({"data": x}, outputs, torch.cuda.current_stream())
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            stream = torch.cuda.current_stream()
            bound.launch(stream) if how == "bind" else context.enqueue({"data": x}, outputs, stream)
            after = {name: array + 1 for name, array in outputs.items()}
        for seed in (1, 2):
            x.copy_(torch.from_numpy(images(seed)))
            graph.replay()
            torch.cuda.synchronize()
            for name, array in after.items():
                np.testing.assert_array_equal(array.cpu().numpy(), wanted[seed - 1][name] + 1)
        bound.close()
