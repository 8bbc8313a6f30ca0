"""Runs of an engine, and where none can be had."""

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pytrtplugins.engines import availability
from pytrtplugins.engines.base.types import BuildOptions
from pytrtplugins.engines.tensorrt import device, engine
from pytrtplugins.engines.tensorrt.collected import current
from pytrtplugins.engines.tensorrt.creators import creator
from pytrtplugins.errors import BuildError, EngineError, MissingExtraError, UnavailableError
from pytrtplugins.passes import prepare
from tests.engines.networks import Affine, OutOfPaperError, conv_net, image

from .builds import build
from .fake_gpu import fake_device


def test_a_run_binds_by_name_and_sets_shapes_when_they_change(tensorrt):
    api = tensorrt.trt
    bound, shapes = {}, list[Any]()

    def set_tensor_address(name, memory):
        bound[name] = memory
        return True

    def execute(stream_handle):
        n = shapes[-1][0]
        x = np.array((ctypes.c_float * (n * 192)).from_address(bound["data"]))
        (ctypes.c_float * (n * 256)).from_address(bound["y"])[:] = np.resize(x, n * 256).tolist()
        return True

    tensorrt.answers |= {
        "IExecutionContext.set_tensor_address": set_tensor_address,
        "IExecutionContext.set_input_shape": lambda name, shape: shapes.append(shape) or True,
        "IExecutionContext.get_tensor_shape": lambda name: api.Dims([shapes[-1][0], 4, 8, 8]),
        "IExecutionContext.execute_async_v3": execute,
    }
    with build(conv_net(batch="N")).create_context() as context:
        for n in (1, 2, 2):
            y = context.run({"data": image(n)})["y"]
            np.testing.assert_array_equal(y, np.resize(image(n), (n, 4, 8, 8)))
    assert shapes == [(1, 3, 8, 8), (2, 3, 8, 8)]


def saved(model, plan):
    """An engine file with these contents."""
    return SimpleNamespace(model=lambda: model, payload=lambda: plan)


def test_every_call_of_a_run_is_there_in_packages_that_only_run(runtime):
    written = []
    runtime.answers |= {
        "IExecutionContext.get_tensor_shape": lambda name: runtime.trt.Dims([2, 4, 8, 8]),
        "IExecutionContext.execute_async_v3": lambda stream_handle: written.append(stream_handle) or True,
    }
    options = BuildOptions(settings={"version_compatible": True})
    loaded = engine.TensorrtEngine.restore(saved(prepare(conv_net(Affine(3.0), batch="N")), b"plan"), options)
    with loaded.create_context() as context:
        assert context.run({"data": image(2)})["y"].shape == (2, 4, 8, 8)
    assert written == [77]
    assert {call.partition(".")[0] for call in runtime.calls} == {"Runtime", "ICudaEngine", "IExecutionContext"}


def test_dims_that_tensorrt_cannot_tell_are_an_error(runtime):
    runtime.answers["IExecutionContext.get_tensor_shape"] = lambda name: runtime.trt.Dims([-1, 4, 8, 8])
    loaded = engine.TensorrtEngine.restore(saved(prepare(conv_net()), b"plan"), BuildOptions())
    with (
        loaded.create_context() as context,
        pytest.raises(EngineError, match=r"cannot infer its dims, \(-1, 4, 8, 8\)"),
    ):
        context.run({"data": image()})


def test_a_file_without_a_plan_is_no_engine(runtime):
    with pytest.raises(BuildError, match="holds no serialized engine"):
        engine.TensorrtEngine.restore(saved(prepare(conv_net()), b""), BuildOptions())


def test_what_a_plugin_raises_during_a_run_is_raised_by_run(tensorrt):
    def execute(stream_handle):
        current().keep(OutOfPaperError("negative"))
        return False

    tensorrt.answers["IExecutionContext.execute_async_v3"] = execute
    with build(conv_net(Affine(3.0))).create_context() as context:
        with pytest.raises(OutOfPaperError, match="negative"):
            context.run({"data": image()})
        tensorrt.answers["IExecutionContext.execute_async_v3"] = lambda stream_handle: False
        with pytest.raises(EngineError, match="the run failed"):
            context.run({"data": image()})


def test_dims_that_tensorrt_refused_are_set_again_by_the_next_run(tensorrt):
    asked = []
    tensorrt.answers |= {
        "IExecutionContext.set_input_shape": lambda name, shape: asked.append(shape) or len(asked) > 2,
        "IExecutionContext.get_tensor_shape": lambda name: tensorrt.trt.Dims([2, 4, 8, 8]),
        "IExecutionContext.set_tensor_address": True,
        "IExecutionContext.execute_async_v3": True,
    }
    with build(conv_net(batch="N")).create_context() as context:
        for _ in range(2):
            with pytest.raises(EngineError, match="refuses dims"):
                context.run({"data": image(2)})
        context.run({"data": image(2)})
        context.run({"data": image(2)})
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"IExecutionContext.set_input_shape": False}, r"input 'data': TensorRT refuses dims \(9, 3, 8, 8\)"),
        ({"IExecutionContext.set_tensor_address": False}, "refuses the buffer"),
        ({"ICudaEngine.create_execution_context": lambda: None}, "cannot make a context"),
    ],
)
def test_what_tensorrt_refuses_is_an_engine_error(tensorrt, answers, words):
    tensorrt.answers |= answers
    built = build(conv_net(batch="N"))
    with pytest.raises(EngineError, match=words), built.create_context() as context:
        context.run({"data": image(9)})


def test_devices_say_why_the_engine_cannot_be_used(api):
    (found,) = [item for item in availability() if item.name == "tensorrt"]
    try:
        device.find_device()
    except MissingExtraError:
        assert "needs the package 'cupy'" in found.reason
        assert 'Do: pip install "pytrtplugins[tensorrt]"' in found.reason
    except UnavailableError as error:
        assert str(error) in found.reason  # noqa: PT017
    else:
        assert found.available


def test_a_package_that_only_runs_engines_cannot_build(api, monkeypatch):
    if api.builds:
        pytest.skip("the full package")
    monkeypatch.setattr(engine, "find_device", lambda name=None: fake_device())
    (found,) = [item for item in availability() if item.name == "tensorrt"]
    assert found.details.startswith(f"{api.name} {api.version}, which runs engines and cannot build them, on Test GPU")
    with pytest.raises(UnavailableError, match=r"cannot build them[\s\S]*Do: pip install"):
        build(conv_net())


def test_tensorrts_creators_keep_their_own_classes(api):
    assert isinstance(creator(Affine), api.trt.IPluginCreatorV3One)
