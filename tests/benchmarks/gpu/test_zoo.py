"""The zoo's networks, their order, and the rows of those that fail, without a GPU."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from benchmarks.gpu import zoo
from benchmarks.gpu.zoo import NETWORKS, Network, chosen, exported


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


@pytest.mark.parametrize("dynamo", [False, True], ids=["torchscript", "dynamo"])
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
    assert chosen() == tuple(NETWORKS)
    monkeypatch.setenv("BENCHMARK_ZOO", "resnet18,resnet19")
    with pytest.raises(ValueError, match="resnet19 unknown"):
        chosen()
