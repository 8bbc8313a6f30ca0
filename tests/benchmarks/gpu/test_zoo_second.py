"""The second zoo's own networks compute in ONNX what they compute in PyTorch, for any batch."""

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from benchmarks.gpu.zoo import NETWORKS, Network, chosen, exported
from benchmarks.gpu.zoo_second import SECOND
from benchmarks.gpu.zoo_third import THIRD

SMALL = {
    "unet_3d": (1, 8, 8, 8),
    "crnn": (3, 32, 40),
    "tasnet": (1, 512),
    "pointnet": (3, 16),
    "super_resolution": (3, 8, 8),
}


@pytest.mark.parametrize("name", SMALL)
def test_the_export_computes_what_the_module_does_for_any_batch(name):
    onnxruntime = pytest.importorskip("onnxruntime")
    network = Network(name, SECOND[name]["module"], dims=SMALL[name])
    module = network.make()
    session = onnxruntime.InferenceSession(
        exported(network, module).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for count in (1, 3):
        x = network.inputs(count)
        with torch.inference_mode():
            wanted = module(torch.from_numpy(x)).numpy()
        np.testing.assert_allclose(session.run(["y"], {"x": x})[0], wanted, rtol=1e-3, atol=1e-4)


def test_the_zoos_are_chosen_by_their_names(monkeypatch):
    monkeypatch.setenv("BENCHMARK_ZOO", "second, resnet18")
    assert chosen() == (*SECOND, "resnet18")
    monkeypatch.setenv("BENCHMARK_ZOO", "third")
    assert chosen() == tuple(THIRD)
    monkeypatch.setenv("BENCHMARK_ZOO", "")
    assert set(chosen()) == set(NETWORKS) - set(SECOND) - set(THIRD)
