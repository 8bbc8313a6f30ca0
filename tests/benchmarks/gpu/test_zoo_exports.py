"""Networks that worker processes make and export: the same as those made here, and what fails is said by the row."""

import importlib.util
import os

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from benchmarks.gpu.zoo import NETWORKS
from benchmarks.gpu.zoo_exports import FOLDER, Exports


def test_workers_export_what_a_process_would_make_itself(tmp_path, monkeypatch):
    onnxruntime = pytest.importorskip("onnxruntime")
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setattr(os, "cpu_count", lambda: 1)  # one worker, since each imports PyTorch
    missing = [] if importlib.util.find_spec("timm") else ["repvgg_a2"]
    with Exports(["pointnet", *missing]) as exports:
        module, model = exports.load("pointnet")
        for name in missing:
            with pytest.raises(pytest.skip.Exception, match="timm"):
                exports.load(name)
    network = NETWORKS["pointnet"]
    torch.testing.assert_close(module.state_dict(), network.make().state_dict())  # other threads sum in another order
    x = network.inputs(1)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with torch.inference_mode():
        np.testing.assert_allclose(session.run(None, {"x": x})[0], module(torch.from_numpy(x)), rtol=1e-3, atol=1e-4)
    monkeypatch.setattr(Exports, "_begin", None)  # files of an earlier session are taken as they are
    with Exports(["pointnet"]) as exports:
        assert exports.load("pointnet")[1] == model
