"""The zoo's networks, their order, and the rows of those that fail, without a GPU."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from onnx import helper, numpy_helper

import pytrtplugins as ptp
from benchmarks.gpu import zoo, zoo_darknet, zoo_subject
from benchmarks.gpu.zoo import NETWORKS, SETS, Network, chosen, exported
from benchmarks.gpu.zoo_subject import compiled, folded, graph_or_eager, half_precision
from pytrtplugins.model.decompose import inline_plugins
from tests.darknet2caffe.networks import CFGS


@pytest.fixture
def unet():
    return Network("unet", lambda: zoo._Unet(4, 2), 32)


def test_a_network_is_the_same_each_time_and_its_batch_norms_fit_its_images(unet):
    first, second = unet.make(), unet.make()
    assert all(map(torch.equal, first.state_dict().values(), second.state_dict().values()))
    norm = first.downs[0][1]
    assert not norm.training
    assert len(set(norm.running_var.tolist())) == len(norm.running_var)
    with torch.inference_mode():
        found = first.downs[0][:2](torch.from_numpy(unet.inputs(4)))
    scaled = (found.amax((0, 2, 3)) / norm.weight).abs()
    assert scaled.max() < 30  # values stay in the range of float16 from layer to layer


@pytest.mark.parametrize("dynamo", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["torchscript", "dynamo"])
def test_the_export_computes_what_the_module_does_for_any_batch(unet, dynamo):
    if dynamo:
        pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    module = unet.make()
    model = exported(unet, module, dynamo)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for count in (1, 3):
        x = unet.inputs(count)
        with torch.inference_mode():
            wanted = module(torch.from_numpy(x)).numpy()
        (found,) = session.run(["y"], {"x": x})
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


def test_words_are_whole_numbers():
    words = Network("words", torch.nn.Identity, 0, 128).inputs(2)
    assert words.shape == (2, 128)
    assert words.dtype == np.int64


def test_the_networks_that_the_environment_names_are_chosen(monkeypatch):
    monkeypatch.setenv("BENCHMARK_ZOO", "resnet18, vit_b_16")
    assert chosen() == ("resnet18", "vit_b_16")
    monkeypatch.setenv("BENCHMARK_ZOO", "")
    assert chosen() == SETS["first"]
    monkeypatch.setenv("BENCHMARK_ZOO", "resnet18,resnet19")
    with pytest.raises(ValueError, match="resnet19 unknown"):
        chosen()


def test_darknets_heads_are_one_output_and_the_same_in_pytorch(tmp_path, monkeypatch):
    onnxruntime = pytest.importorskip("onnxruntime")
    if not (CFGS / "yolov3-tiny.cfg").is_file():
        pytest.skip(f"{CFGS / 'yolov3-tiny.cfg'} is missing (apt-get install darknet)")
    text = re.sub(r"^(width|height)=\d+", r"\1=64", (CFGS / "yolov3-tiny.cfg").read_text(), flags=re.MULTILINE)
    thin = re.sub(r"^filters=(1024|512|256|128)$", "filters=16", text, flags=re.MULTILINE)
    (tmp_path / "yolov3-tiny.cfg").write_text(thin)
    monkeypatch.setenv("BENCHMARK_CFGS", str(tmp_path))
    monkeypatch.setitem(zoo_darknet.SIDES, "yolov3-tiny", 64)
    network = replace(NETWORKS["yolov3-tiny"], side=64)
    module = network.make()
    model = inline_plugins(exported(network, module))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = network.inputs(2)
    (found,) = session.run(None, {"data": x})
    with torch.inference_mode():
        wanted = module(torch.from_numpy(x)).numpy()
    assert found.shape == (2, 255 * (2**2 + 4**2))
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


def test_results_of_darknets_convolutions_stay_in_float16s_range():
    made = [helper.make_node("Conv", ["x", "w", "b"], ["y"], "first", pads=[0] * 4, strides=[1, 1])]
    made += [helper.make_node("Conv", ["y", "w", "b"], ["z"], "second", pads=[0] * 4, strides=[1, 1])]
    weights = 1e6 * np.random.default_rng(0).standard_normal((3, 3, 1, 1)).astype(np.float32)
    arrays = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.full(3, 1e6, np.float32), "b")]
    ends = [helper.make_tensor_value_info(name, 1, ["N", 3, 4, 4]) for name in ("x", "z")]
    module = zoo_darknet.DarknetNet(helper.make_model(helper.make_graph(made, "g", ends[:1], ends[1:], arrays)))
    images = torch.rand(2, 3, 4, 4)
    module.even_out(images)
    found = module(images).detach()
    assert found.std() == pytest.approx(1, rel=1e-3)
    with ptp.build(module.as_onnx(), engine="reference").create_context() as context:
        np.testing.assert_allclose(context.run({"x": images.numpy()})["z"], found, rtol=1e-3, atol=1e-3)


def test_many_modules_of_one_class_are_compiled_with_any_batch(monkeypatch):
    """PyTorch leaves a class alone that it has compiled often, without an error."""
    graphs: list[int] = []
    real = torch.compile

    def compiler(graph, examples):
        graphs.append(len(examples[-1]))
        return graph

    monkeypatch.setattr(torch, "compile", lambda module, mode, dynamic: real(module, backend=compiler, dynamic=dynamic))
    limit = torch._dynamo.config.recompile_limit
    for count in range(limit + 2):
        module, x = torch.nn.Sequential(torch.nn.ReLU()), torch.randn(2 + count, 3)
        assert torch.equal(compiled(module, "default")(x), module(x))
    assert graphs == [2 + count for count in range(limit + 2)]


def test_a_network_without_a_cfg_is_left_out(monkeypatch):
    monkeypatch.delenv("BENCHMARK_CFGS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="BENCHMARK_CFGS"):
        NETWORKS["yolov3"].make()


class Keeps(torch.nn.Module):
    """A module that keeps a tensor of its last run, as RAFT keeps its correlations."""

    def __init__(self):
        super().__init__()
        self.inner, self.features = torch.nn.Conv2d(3, 4, 3), None

    def forward(self, x):
        self.features = self.inner(x)
        return self.features.relu()


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of torch.fx's optimization, when it is imported
def test_a_module_that_keeps_tensors_of_a_run_is_copied_behind_its_export():
    network = Network("keeps", Keeps, 8)
    module = network.make()
    exported(network, module)
    x = torch.from_numpy(network.inputs(1))
    assert torch.equal(folded(module)(x), module(x))


def test_a_network_that_cannot_be_captured_runs_eagerly_and_says_why(monkeypatch):
    def refuse(stream, run):
        raise RuntimeError("Cannot copy between CPU and CUDA tensors during CUDA graph capture\nat length")

    monkeypatch.setattr(zoo_subject, "captured", refuse)
    monkeypatch.setattr(zoo_subject, "warm_up", lambda stream, run: run())
    runs = []
    queue, graph, why = graph_or_eager(None, lambda: runs.append(1))
    queue()
    assert (len(runs), graph) == (2, None)
    assert why == "no CUDA graph: Cannot copy between CPU and CUDA tensors during CUDA graph capture"


def test_a_module_that_needs_float32_runs_under_autocast_and_others_in_float16():
    class Mixed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.table = torch.nn.Linear(8, 4), [torch.ones(4, 4)]

        def forward(self, x):
            return torch.nn.functional.linear(self.first(x), self.table[0])

    x = torch.rand(2, 8)
    call, note = half_precision(Mixed().eval(), x)
    assert "autocast" in note
    with torch.inference_mode():
        assert call(x).dtype == torch.float16
    plain = torch.nn.Linear(8, 4)
    exact = plain(x).detach()
    call, note = half_precision(plain, x)
    assert note == ""
    with torch.inference_mode():
        np.testing.assert_allclose(call(x).float().numpy(), exact.numpy(), atol=1e-2)
