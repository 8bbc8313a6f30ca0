"""What every engine promises."""

import os

import numpy as np
import onnx
import onnxruntime
import pytest

import pytrtplugins as ptp
from pytrtplugins import errors
from pytrtplugins.engines.base.types import BuildOptions
from pytrtplugins.engines.onnxruntime import engine as onnxruntime_engine
from pytrtplugins.layers import Reorg
from pytrtplugins.passes import prepare
from tests.engines.base.world import in_threads
from tests.engines.networks import Affine, Failing, Halves, OutOfPaperError, Sparing, Telling, conv_net, image, run

ENGINES_FOR_GPUS = {"cuda", "tensorrt"}


def expected(x, factor=None):
    """The network of `conv_net`, by onnxruntime up to the plugin, and by hand from there."""
    if factor is None:
        plain = onnxruntime.InferenceSession(conv_net().SerializeToString())
        return np.concatenate([plain.run(None, {"data": x[i : i + 1]})[0] for i in range(len(x))])
    model = prepare(conv_net())
    w2 = onnx.numpy_helper.to_array(next(t for t in model.graph.initializer if t.name == "w2"))
    first = onnx.utils.Extractor(model).extract_model(["data"], ["a1"])
    a1 = onnxruntime.InferenceSession(first.SerializeToString())
    activated = a1.run(None, {"data": x})[0] * np.float32(factor) + 1
    return np.einsum("oi,nihw->nohw", w2[:, :, 0, 0], activated)


def test_a_network_gives_onnxruntimes_numbers(engine_name):
    engine = ptp.build(conv_net(), engine=engine_name)
    np.testing.assert_allclose(run(engine)["y"], expected(image()), rtol=1e-5, atol=1e-6)
    assert [str(desc) for desc in (*engine.inputs, *engine.outputs)] == [
        "data: float32[1, 3, 8, 8]",
        "y: float32[1, 4, 8, 8]",
    ]


def test_a_plugin_without_decomposition_runs_through_compute(engine_name):
    y = run(ptp.build(conv_net(Affine(3.0)), engine=engine_name))["y"]
    np.testing.assert_allclose(y, expected(image(), 3.0), rtol=1e-5, atol=1e-5)


def test_a_dynamic_batch_takes_any_size(engine_name):
    engine = ptp.build(conv_net(Affine(3.0), batch="N"), engine=engine_name)
    assert str(engine.inputs[0]) == "data: float32[N, 3, 8, 8]"
    with engine.create_context() as context:
        for size in (1, 3, 2):
            y = context.run({"data": image(size)})["y"]
            np.testing.assert_allclose(y[-1:], expected(image(size)[-1:], 3.0), rtol=1e-5, atol=1e-5)


def test_outputs_are_written_into_arrays_that_the_caller_gives(engine_name):
    engine = ptp.build(conv_net(Affine(3.0)), engine=engine_name)
    with engine.create_context() as context:
        y = np.zeros((1, 4, 8, 8), np.float32)
        assert context.run({"data": image()}, {"y": y})["y"] is y
        np.testing.assert_allclose(y, expected(image(), 3.0), rtol=1e-5, atol=1e-5)
        other = np.zeros((1, 8, 4, 8), np.float32).swapaxes(1, 2)
        assert context.run_async({"data": image()}, {"y": other}).result()["y"] is other
        np.testing.assert_array_equal(other, y)


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        ({"z": np.zeros(1)}, "no output is named 'z'"),
        ({"y": np.zeros((1, 4, 8, 8))}, "output 'y': expected float32, found float64"),
        ({"y": np.zeros((1, 4, 8), np.float32)}, r"output 'y': its dims are \(1, 4, 8, 8\)"),
        ({"y": [0.0]}, "output 'y': expected a writable NumPy array, found list"),
        ({"y": np.broadcast_to(np.float32(0), (1, 4, 8, 8))}, "expected a writable NumPy array"),
    ],
)
def test_given_outputs_that_do_not_fit_are_refused(engine_name, outputs, words):
    engine = ptp.build(conv_net(), engine=engine_name)
    with engine.create_context() as context, pytest.raises(errors.BindingError, match=words):
        context.run({"data": image()}, outputs)


@pytest.mark.parametrize("threads", [None, 1, 2])
def test_what_a_plugin_raises_reaches_the_caller_as_it_was_raised(engine_name, threads):
    with ptp.build(conv_net(Failing()), engine=engine_name, threads=threads).create_context() as context:
        for _ in range(2):
            with pytest.raises(OutOfPaperError, match="negative") as caught:
                context.run({"data": image() - 0.5})
            assert any("compute" in entry.name for entry in caught.traceback)


def test_threads_whose_plugins_fail_at_the_same_time_each_get_their_own_exception(engine_name):
    engine = ptp.build(conv_net(Telling()), engine=engine_name)

    def text(context, number):
        with pytest.raises(OutOfPaperError) as caught:
            context.run({"data": np.full((1, 3, 8, 8), number, np.float32)})
        return str(caught.value)

    with engine.create_context() as context:
        alone = [text(context, number) for number in range(4)]
    assert len(set(alone)) == 4

    def work(number):
        with engine.create_context() as context:
            assert [text(context, number) for _ in range(60)] == [alone[number]] * 60

    in_threads(work)


def test_a_context_works_again_after_an_error(engine_name):
    with ptp.build(conv_net(Sparing(limit=20.0)), engine=engine_name).create_context() as context:
        for _ in range(2):
            with pytest.raises(OutOfPaperError, match="too large"):
                context.run({"data": 1000 * image()})
            np.testing.assert_allclose(context.run({"data": image()})["y"], expected(image()), rtol=1e-5, atol=1e-6)


def test_several_outputs_of_a_plugin_arrive(engine_name):
    model = conv_net()
    model.graph.node.append(Halves().as_node(["y"], ["low", "high"], "halves"))
    model.opset_import.append(onnx.helper.make_opsetid("test.engines", 1))
    del model.graph.output[:]
    model.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("low", "high")
    )
    outputs = run(ptp.build(model, engine=engine_name))
    found = np.concatenate([outputs["low"], outputs["high"]], 1)
    np.testing.assert_allclose(found, expected(image()), rtol=1e-5, atol=1e-6)


def test_outputs_belong_to_the_caller(engine_name):
    with ptp.build(conv_net(), engine=engine_name).create_context() as context:
        first = context.run({"data": image()})["y"]
        kept = first.copy()
        context.run({"data": image(seed=5)})
        np.testing.assert_array_equal(first, kept)
        first += 1  # and may be written to
        np.testing.assert_array_equal(context.run({"data": image()})["y"], kept)


def test_asynchronous_runs_come_back_in_order(engine_name):
    with ptp.build(conv_net(), engine=engine_name).create_context() as context:
        futures = [context.run_async({"data": image(seed=seed)}) for seed in range(4)]
        for seed, future in enumerate(futures):
            np.testing.assert_allclose(future.result()["y"], expected(image(seed=seed)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("runs_before", [0, 1])
def test_a_closed_context_takes_no_runs_of_either_kind(engine_name, runs_before):
    context = ptp.build(conv_net(), engine=engine_name).create_context()
    for _ in range(runs_before):
        context.run_async({"data": image()}).result()
    context.close()
    context.close()
    for begin in (context.run, context.run_async):
        with pytest.raises(errors.EngineError, match=r"closed[\s\S]*Do: engine.create_context"):
            begin({"data": image()})


def test_closing_waits_for_queued_runs(engine_name):
    context = ptp.build(conv_net(), engine=engine_name).create_context()
    futures = [context.run_async({"data": image()}) for _ in range(5)]
    context.close()
    assert all(future.done() and future.exception() is None for future in futures)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (np.zeros((1, 3), np.float32), r"by their names, found ndarray\.\nDo: context\.run\(\{'data': array\}\)"),
        ({}, r"expected arrays for \['data'\], found \[\]"),
        ({"data": image(), "extra": image()}, "found"),
        ({"data": image().astype(np.float64)}, r"expected float32, found float64.\nDo: array.astype\(numpy.float32\)"),
        ({"data": image(2)}, r"expected dims \(1, 3, 8, 8\), found \(2, 3, 8, 8\)"),
        ({"data": image()[0]}, "expected dims"),
    ],
)
def test_wrong_bindings_are_named(engine_name, inputs, words):
    engine = ptp.build(conv_net(), engine=engine_name)
    with pytest.raises(errors.BindingError, match=words):
        run(engine, inputs)


def test_a_non_contiguous_input_is_taken_as_it_reads(engine_name):
    x = np.ascontiguousarray(image().transpose(0, 1, 3, 2)).transpose(0, 1, 3, 2)
    assert not x.flags.c_contiguous
    y = run(ptp.build(conv_net(), engine=engine_name), {"data": x})["y"]
    np.testing.assert_allclose(y, expected(image()), rtol=1e-5, atol=1e-6)


def test_a_context_in_use_is_refused(engine_name):
    context = ptp.build(conv_net(), engine=engine_name).create_context()
    context._busy.acquire()
    with pytest.raises(errors.EngineError, match="another thread"):
        context.run({"data": image()})
    context._busy.release()
    context.close()


def test_fp16_on_a_cpu_is_refused_with_the_alternatives(engine_name):
    if engine_name in ENGINES_FOR_GPUS | {"reference"}:
        pytest.skip("a GPU has fp16, and the reference engine computes as one")
    with pytest.raises(errors.PrecisionError, match=r"FP16 is for GPUs[\s\S]*Do: precision="):
        ptp.build(conv_net(), engine=engine_name, precision="fp16")


def test_an_engine_that_is_made_without_build_refuses_a_precision_too(engine_name):
    cls = type(ptp.build(conv_net(), engine=engine_name))
    with pytest.raises(errors.PrecisionError, match=f"engine '{engine_name}' has no precision 'fp4'"):
        cls(conv_net(), BuildOptions(precision="fp4"))


@pytest.mark.parametrize(
    "arguments", [{"threads": 0}, {"threads": 1.5}, {"threads": True}, {"threads": 10**9}, {"engine": "gpu"}]
)
def test_unusable_options_are_usage_errors(arguments):
    with pytest.raises(errors.UsageError):
        ptp.build(conv_net(), **arguments)


@pytest.mark.parametrize("threads", [1, 3, None])
def test_onnxruntime_gets_the_threads_that_were_asked_for(monkeypatch, threads):
    given, make = [], onnxruntime_engine.make_session
    monkeypatch.setattr(
        onnxruntime_engine, "make_session", lambda model, *more: given.append(more[0]) or make(model, *more)
    )
    ptp.build(conv_net(), engine="onnxruntime", threads=threads)
    assert given == [threads or len(os.sched_getaffinity(0))]


def test_openvino_gets_the_threads_that_were_asked_for():
    """One thread is the caller's, without a stream; more than there are cores it does not take."""
    assert ptp.build(conv_net(), engine="cpu", threads=1)._network.compiled.get_property("NUM_STREAMS") == 0
    assert ptp.build(conv_net(), engine="cpu", threads=2)._network.compiled.get_property("INFERENCE_NUM_THREADS") <= 2


@pytest.mark.parametrize("name", ["cpu", "onnxruntime"])
def test_an_unknown_device_is_refused(name):
    with pytest.raises(errors.UnavailableError, match="cuda:7"):
        ptp.build(conv_net(), engine=name, device="cuda:7")


def test_an_unregistered_plugin_names_the_node_that_needs_it(engine_name):
    model = conv_net(Affine(3.0))
    model.graph.node[2].op_type = "Afine"
    with pytest.raises(errors.RegistryError, match=r"Near: test\.engines::Affine"):
        ptp.build(model, engine=engine_name)


def test_dims_that_a_plugin_refuses_stop_the_build(engine_name):
    with pytest.raises(errors.DimsError, match="multiple of 9, found 8"):
        ptp.build(conv_net(Reorg(3)), engine=engine_name)


def test_free_dims_that_a_plugin_refuses_stop_the_run(engine_name):
    @ptp.plugin(namespace="test.engines")
    class Pairs(ptp.Plugin):
        def output_dims(self, x):
            ptp.tensor.check_divisible(x[0], 2, "batch")
            return x

        def compute(self, x):
            return x + 0

    with ptp.build(conv_net(Pairs(), batch="N"), engine=engine_name).create_context() as context:
        assert context.run({"data": image(2)})["y"].shape == (2, 4, 8, 8)
        with pytest.raises(errors.DimsError, match="batch must be a multiple of 2, found 3"):
            context.run({"data": image(3)})


def test_auto_chooses_an_engine_that_this_machine_has():
    assert ptp.build(conv_net()).name == "cpu"


def test_arrays_are_bound_on_engine_cuda_only(engine_name):
    if engine_name == "cuda":
        pytest.skip("engine cuda binds arrays: tests/engines/cuda/run")
    with ptp.build(conv_net(), engine=engine_name).create_context() as context:
        with pytest.raises(errors.EngineError, match=r"cannot bind arrays(.|\n)*Do: context.run") as raised:
            context.bind({"data": image()}, {})
        assert raised.value.engine == context.engine.name
