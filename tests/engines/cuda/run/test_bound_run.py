"""Runs on arrays that the caller keeps, with NumPy in the GPU's place."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from onnx import helper

from pytrtplugins.cuda.backends import host as host_backend
from pytrtplugins.errors import BindingError, CopyError, EngineError, ExecutionError
from pytrtplugins.tensor import SymbolicDim, TensorDesc
from tests.engines.cuda.stand_in import Graph, Stream, on_gpu
from tests.engines.model_parts import F, info, model
from tests.engines.networks import Affine, Calling, Failing, OutOfPaperError, conv_net, image
from tests.engines.operators import literal

pytestmark = pytest.mark.skipif(not host_backend.available(), reason="no C++ compiler (apt-get install g++)")

WHOLE, PARTS, NO_GRAPHS = "one graph", "graphs around a plugin's compute", "no graphs"
OUTPUT_BYTES = 4 * 8 * 8 * 4


@pytest.fixture(params=[WHOLE, PARTS, NO_GRAPHS])
def context(request, make):
    plugins = [Affine(3.0)] if request.param == PARTS else []
    made = make(conv_net(*plugins, batch="N"), ["graph"] if request.param == NO_GRAPHS else [])
    made.accept_host_arrays()
    return made


def target():
    return on_gpu(np.zeros((1, 4, 8, 8), np.float32))


def bound_run(make, *plugins):
    """Of a network of one image that gives no output."""
    context = make(conv_net(*plugins, batch="N"))
    context.accept_host_arrays()
    return context.bind({"data": on_gpu(image())}, {})


def test_runs_read_and_write_the_callers_arrays_without_copies(context):
    x, y = on_gpu(image()), target()
    with context.bind({"data": x}, {"y": y}) as bound:
        assert bound.inputs["data"] is x
        assert bound.outputs["y"] is y
        for seed in (1, 2, 3):
            x[...] = image(seed=seed)
            y[...] = 7
            del context.engine.device.copies[:]
            bound.launch(Stream())
            bound.launch()
            bound.launch(0)
            assert not context.engine.device.copies
            np.testing.assert_array_equal(y, context.run({"data": image(seed=seed)})["y"])


def test_no_graph_is_launched_on_a_stream_that_is_captured(make, monkeypatch):
    context = make(conv_net())
    context.accept_host_arrays()
    x, y = on_gpu(image()), target()
    with context.bind({"data": x}, {"y": y}) as bound:
        bound.launch(7)
        wanted = y.copy()
        context.engine.device.capturing = True
        monkeypatch.setattr(Graph, "launch", lambda *_: pytest.fail("a graph inside of another"))
        y[...] = 7
        bound.launch(7)
        np.testing.assert_array_equal(y, wanted)


def test_arrays_that_begin_anywhere_are_copied(context):
    x, y = on_gpu(image(), begin=16), on_gpu(np.zeros((1, 4, 8, 8), np.float32), begin=4)
    with context.bind({"data": x}, {"y": y}) as bound:
        x[...] = image(seed=2)
        del context.engine.device.copies[:]
        bound.launch()
        assert context.engine.device.copies == [x.nbytes, OUTPUT_BYTES]
        np.testing.assert_array_equal(y, context.run({"data": image(seed=2)})["y"])


def test_several_bound_runs_keep_to_their_own_arrays(context):
    arrays = [(on_gpu(image(batch)), on_gpu(np.zeros((batch, 4, 8, 8), np.float32))) for batch in (1, 2, 1)]
    runs = [context.bind({"data": x}, {"y": y}) for x, y in arrays]
    for seed in (1, 2):
        for number, (x, y) in enumerate(arrays):
            x[...] = image(len(x), 10 * number + seed)
            y[...] = 0
        for bound in runs:
            bound.launch()
        for x, y in arrays:
            np.testing.assert_array_equal(y, context.run({"data": np.array(x)})["y"])


def test_outputs_that_are_not_given_stay_out_of_it(context):
    with context.bind({"data": on_gpu(image())}, {}) as bound:
        bound.launch()
        assert not bound.outputs


def test_a_bound_run_outlives_its_context(context):
    x, y = on_gpu(image()), target()
    expected = context.run({"data": image()})["y"]
    bound = context.bind({"data": x}, {"y": y})
    context.close()
    y[...] = 0
    bound.launch()
    np.testing.assert_array_equal(y, expected)
    bound.close()
    bound.close()
    assert not bound.inputs
    with pytest.raises(EngineError, match=r"closed.\nDo: context.bind"):
        bound.launch()
    with pytest.raises(EngineError, match="closed"):
        context.bind({"data": x}, {"y": y})
    with pytest.raises(CopyError):
        bound.__reduce_ex__(4)


def test_another_thread_is_refused_while_one_launches(context):
    bound = context.bind({"data": on_gpu(image())}, {"y": target()})

    def launch():
        with pytest.raises(EngineError, match="another thread"):
            bound.launch()

    with bound._running(), ThreadPoolExecutor(1) as pool:
        pool.submit(launch).result()
    bound.launch()


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({"y": np.zeros((2, 4, 8, 8), np.float32)}, r"output 'y': its dims are \(1, 4, 8, 8\)"),
        ({"y": np.zeros((1, 4, 8, 8), np.float64)}, "output 'y': expected float32"),
        ({"z": np.zeros((1, 4, 8, 8), np.float32)}, "no output is named 'z'"),
    ],
)
def test_outputs_that_do_not_fit_are_refused(context, outputs, message):
    with pytest.raises(BindingError, match=message):
        context.bind({"data": on_gpu(image())}, {name: on_gpu(array) for name, array in outputs.items()})
    context.run({"data": image()})


def test_inputs_that_do_not_fit_are_refused(context):
    for wrong in ({}, {"other": image()}, {"data": image().astype(np.float64)}, {"data": image()[0]}):
        with pytest.raises(BindingError):
            context.bind(wrong, {})


def test_arrays_on_the_host_are_refused(make):
    context = make(conv_net(batch="N"))
    with pytest.raises(BindingError, match="bind: 'data' is on the host"):
        context.bind({"data": image()}, {})


def test_an_output_may_not_lie_over_another_array(context):
    memory = on_gpu(np.zeros(1024, np.float32))
    x, y = memory[:192].reshape(1, 3, 8, 8), memory[128:384].reshape(1, 4, 8, 8)
    with pytest.raises(BindingError, match="output 'y': its array lies over that of input 'data'") as raised:
        context.bind({"data": x}, {"y": y})
    assert (raised.value.output, raised.value.other) == ("y", "data")


def test_an_array_on_another_gpu_is_refused(context):
    context.engine.device.holder = lambda array: 1
    with pytest.raises(BindingError, match="input 'data': its array lies on GPU 1, expected GPU 0"):
        context.bind({"data": on_gpu(image())}, {})


def test_outputs_that_are_inputs_or_each_other_are_copied(make):
    nodes = [helper.make_node("Neg", ["data"], ["y"]), helper.make_node("Neg", ["y"], ["z"])]
    data, *outputs = (info(name, F, ["N", 3, 8, 8]) for name in ("data", "y", "z"))
    context = make(model(nodes, [data], outputs, opset=18, ir=10))
    context.engine.outputs = tuple(TensorDesc(name, (SymbolicDim("N"), 3, 8, 8)) for name in ("y", "z"))
    context.accept_host_arrays()
    inner = context.engine.execution

    def same_tensors(sizes, outside):
        """Plans may let outputs be one tensor, or an input."""

        def place(plan):
            plan.outputs.update(y=plan.outputs["z"], z="data")
            return outside(plan)

        return inner(sizes, outside=place)

    context.engine.execution = same_tensors
    arrays = {name: on_gpu(np.zeros((1, 3, 8, 8), np.float32)) for name in ("y", "z")}
    with context.bind({"data": on_gpu(image())}, arrays) as bound:
        assert (bound._copied_in, bound._copied_out) == ([], ["z"])
        bound.launch()
    for array in arrays.values():
        np.testing.assert_array_equal(array, image())


def test_tensors_with_other_dims_lie_in_the_callers_arrays_too(make):
    """What a convolution of one dimension reads and writes is an image."""
    constants = {"row": np.array([0, 3, 64]), "image": np.array([0, 4, 8, 8])}
    constants["w"] = np.random.default_rng(0).standard_normal((4, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Reshape", ["data", "row"], ["rows"]),
        helper.make_node("Conv", ["rows", "w"], ["sums"], pads=[1, 1]),
        helper.make_node("Reshape", ["sums", "image"], ["y"]),
    ]
    network = model(nodes, [info("data", F, ["N", 3, 8, 8])], [info("y", F, ["N", 4, 8, 8])], constants)
    context = make(network)
    context.accept_host_arrays()
    x, y = on_gpu(image()), target()
    with context.bind({"data": x}, {"y": y}) as bound:
        del context.engine.device.copies[:]
        bound.launch()
        assert not context.engine.device.copies
    np.testing.assert_allclose(y, literal(network, {"data": image()})[0], rtol=1e-5, atol=1e-5)


def test_what_a_plugin_raises_in_a_launch_comes_as_it_is(make):
    bound = bound_run(make, Failing())
    for _ in range(2):
        with pytest.raises(OutOfPaperError):
            bound.launch()


def test_a_launch_from_inside_of_itself_is_refused(make):
    bound = bound_run(make, Calling())
    Calling.hook = bound.launch
    with pytest.raises(EngineError, match="from inside a run of the same context"):
        bound.launch()
    bound.launch()


def test_what_cuda_refuses_is_an_execution_error(make):
    bound = bound_run(make)

    def refuse(stream):
        raise RuntimeError("cudaErrorIllegalAddress")

    bound._graph.launch = refuse
    with pytest.raises(ExecutionError, match="engine 'cuda' failed in the run: cudaErrorIllegalAddress"):
        bound.launch()
