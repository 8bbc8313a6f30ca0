"""An engine as a module of PyTorch's."""

import copy
import threading
from types import SimpleNamespace

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.errors import BindingError, CopyError, UsageError
from pytrtplugins.tensor import DType, SymbolicDim, TensorDesc
from pytrtplugins.torch import module as file
from pytrtplugins.torch.gradients import without_gradients
from tests.engines.networks import conv_net, image

torch = pytest.importorskip("torch", reason='PyTorch is not installed (pip install "pytrtplugins[torch]")')


@pytest.fixture(scope="module")
def engine():
    return ptp.build(conv_net(batch="N"), engine="onnxruntime")


def engine_like(inputs, outputs, **context):
    """An engine with these tensors, whose context has these functions."""
    return SimpleNamespace(inputs=inputs, outputs=outputs, create_context=lambda: SimpleNamespace(**context))


def wanted(engine, x):
    with engine.create_context() as context:
        return context.run({"data": x})["y"]


def test_a_module_gives_the_engines_numbers_by_place_and_by_name(engine):
    module = ptp.torch.as_module(engine)
    for batch in (1, 3):
        x = image(batch)
        for y in (module(torch.from_numpy(x)), module(data=torch.from_numpy(x))):
            np.testing.assert_array_equal(y.numpy(), wanted(engine, x))


def test_a_module_is_a_part_of_a_network(engine):
    net = torch.nn.Sequential(ptp.torch.as_module(engine), torch.nn.Flatten())
    assert net(torch.from_numpy(image(2))).shape == (2, 256)
    assert not list(net.parameters())
    assert "onnxruntime" in repr(net)
    assert net.eval().state_dict() == {}


def test_outputs_come_in_the_engines_order_as_tensors_of_their_own():
    outputs = (TensorDesc("b", (2,)), TensorDesc("a", (2,), DType.INT64))
    given = {"a": np.array([1, 2]), "b": np.array([3, 4], np.float32)}
    engine = engine_like((TensorDesc("x", (2,)),), outputs, run=lambda arrays: given)
    b, a = ptp.torch.as_module(engine)(torch.zeros(2))
    assert (a.tolist(), b.tolist(), a.dtype) == ([1, 2], [3, 4], torch.int64)


def test_inputs_in_any_layout_and_of_the_hosts_memory_are_read(engine):
    module, x = ptp.torch.as_module(engine), torch.from_numpy(image(2))
    np.testing.assert_array_equal(module(x.to(memory_format=torch.channels_last)).numpy(), wanted(engine, x.numpy()))


def test_a_contiguous_input_is_not_copied(engine):
    x, seen = torch.from_numpy(image()), []
    like = engine_like(engine.inputs, engine.outputs, run=lambda arrays: seen.append(arrays) or {"y": np.zeros(1)})
    module = ptp.torch.as_module(like)
    module(x)
    assert np.shares_memory(seen[0]["data"], x.numpy())


@pytest.mark.parametrize(
    ("places", "names", "found"),
    [
        (0, [], []),
        (3, [], ["data", None, None]),
        (1, ["data"], ["data", "data"]),
        (0, ["other"], ["other"]),
        (2, ["other"], ["data", None, "other"]),
    ],
)
def test_other_inputs_are_refused(engine, places, names, found):
    x = torch.from_numpy(image())
    with pytest.raises(BindingError, match="expected one tensor for each of \\['data'\\]") as caught:
        ptp.torch.as_module(engine)(*[x] * places, **dict.fromkeys(names, x))
    assert (caught.value.expected, caught.value.found) == (["data"], found)


def test_tensors_that_do_not_fit_are_refused_as_by_run(engine):
    with pytest.raises(BindingError, match="expected float32"):
        ptp.torch.as_module(engine)(torch.from_numpy(image()).double())


def test_each_thread_has_a_context(engine):
    module, contexts = ptp.torch.as_module(engine), []

    def call():
        module(torch.from_numpy(image()))
        contexts.append(module._runner._own.context)

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    call()
    call()
    assert len({id(context) for context in contexts}) == 3


def test_a_backward_pass_says_that_there_is_no_gradient(engine):
    module, x = ptp.torch.as_module(engine), torch.from_numpy(image()).requires_grad_()
    y = module(x)
    np.testing.assert_array_equal(y.detach().numpy(), wanted(engine, image()))
    with pytest.raises(UsageError, match="has no gradient"):
        y.sum().backward()
    with torch.no_grad():
        assert not module(x).requires_grad


@pytest.mark.parametrize("asked", [(True, False), (False, True), (True, True), (False, False)])
def test_outputs_refuse_a_backward_pass_if_any_input_asks_for_one(asked):
    inputs = [torch.zeros(2, requires_grad=each) for each in asked]
    (y,) = without_gradients("it", [torch.ones(2)], inputs)
    assert y.requires_grad is any(asked)


def test_a_module_is_not_copied(engine):
    with pytest.raises(CopyError):
        copy.deepcopy(ptp.torch.as_module(engine))


@pytest.mark.parametrize(
    "dims", [(SymbolicDim("N"), 4), (SymbolicDim("M"), 4)], ids=["of the inputs", "found by a run"]
)
def test_on_a_gpu_runs_are_queued_on_the_current_stream_from_tensor_to_tensor(monkeypatch, dims):
    """With tensors of the host in their place."""
    calls, runs = [], []

    def enqueue(inputs, outputs, stream):
        if inputs["x"].ndim == 3:
            raise RuntimeError("rank 3")
        calls.append(stream)
        outputs["y"].copy_(2 * inputs["x"])

    def run(inputs):
        if inputs["x"].ndim == 3:
            raise RuntimeError("rank 3")
        runs.append(1)
        return {"y": 2 * inputs["x"].numpy()}

    inputs, outputs = (TensorDesc("x", (SymbolicDim("N"), 4)),), (TensorDesc("y", dims),)
    engine = engine_like(inputs, outputs, enqueue=enqueue, run=run)
    monkeypatch.setattr(file, "_stays_on_gpu", lambda context, inputs: True)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "current")
    module = ptp.torch.as_module(engine)
    for batch in (1, 3, 3):
        x = torch.rand(batch, 8)[:, ::2]
        torch.testing.assert_close(module(x), 2 * x)
    assert calls == ["current"] * 3
    with pytest.raises(RuntimeError, match="rank 3"):  # what the engine says of it, not what was made of its dims
        module(torch.rand(1, 2, 4))
    assert len(runs) == (0 if dims[0].name == "N" else 2)


@pytest.mark.parametrize("context", [SimpleNamespace(), SimpleNamespace(enqueue=print)])
@pytest.mark.parametrize("places", [(True, True), (True, False), (False, False)])
def test_a_run_stays_on_the_gpu_if_the_engine_queues_runs_and_all_inputs_are_there(context, places):
    inputs = {str(number): SimpleNamespace(is_cuda=is_cuda) for number, is_cuda in enumerate(places)}
    assert file._stays_on_gpu(context, inputs) is (hasattr(context, "enqueue") and places == (True, True))
