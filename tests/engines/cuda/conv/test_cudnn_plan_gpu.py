"""Plans of cuDNN that are read from the disk compute the same bits as those that were built, on a GPU."""

import numpy as np
import pytest
from onnx import helper, numpy_helper

import pytrtplugins as ptp
from pytrtplugins.cuda import cache as kernels
from pytrtplugins.engines.cuda.conv import cache as choices
from pytrtplugins.engines.cuda.conv.cudnn import CudnnProvider
from pytrtplugins.engines.cuda.run.cudnn_attention import CudnnAttention
from tests.engines.cuda.lower.test_attention import WRITERS, D, Graph, H, S

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]
CUDNN_ALONE = ["handwritten-kernels", "cublaslt-kernels", "patches", "network-timing"]


def attention_net():
    net = Graph(S, 3 * H * D)
    return net.model(WRITERS[0](net))


def convolution():
    """256 to 256 channels, which the plain kernel takes much longer for than cuDNN."""
    weights = numpy_helper.from_array(
        np.random.default_rng(1).standard_normal((256, 256, 3, 3), dtype=np.float32) / 48, "w"
    )
    inputs, outputs = ([helper.make_tensor_value_info(name, 1, ["N", 256, 32, 32])] for name in ("data", "y"))
    node = helper.make_node("Conv", ["data", "w"], ["y"], "conv", pads=[1] * 4)
    graph = helper.make_graph([node], "net", inputs, outputs, [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize(
    ("make", "dims", "owner", "step"),
    [
        (attention_net, (2, S, 3 * H * D), CudnnAttention, "_build"),
        (convolution, (2, 256, 32, 32), CudnnProvider, "_make_graph"),
    ],
    ids=["attention", "convolution"],
)
def test_a_second_build_reads_the_plans_and_computes_the_same(make, dims, owner, step, monkeypatch, tmp_path):
    for module in (kernels, choices):
        monkeypatch.setattr(module, "cache_folder", lambda kind="kernels": tmp_path)
    model, built = make(), []
    x = {"data": np.random.default_rng(0).standard_normal(dims, dtype=np.float32)}
    real = getattr(owner, step)
    monkeypatch.setattr(owner, step, lambda *given: built.append(given) or real(*given))
    results = []
    for _ in range(2):
        count = len(built)
        settings = {"batch": 2, "disable": CUDNN_ALONE}
        with ptp.build(model, engine="cuda", precision="fp16", settings=settings).create_context() as context:
            results.append([next(iter(context.run(x).values())) for _ in range(3)])
    assert count > 0  # cuDNN was asked in the first build
    assert len(built) == count  # and not in the second
    assert list(tmp_path.glob("*.plan"))
    for values in (*results[0], *results[1]):
        np.testing.assert_array_equal(values, results[0][0])
