"""Attention as one step, on a GPU."""

import numpy as np
import onnxruntime
import pytest

import pytrtplugins as ptp
from tests.engines.cuda.lower.test_attention import WRITERS, B, D, Graph, H, S, scaled_before_moving

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]

BOUNDS = {"fp32": 3e-6, "tf32": 2e-3, "fp16": 3e-3}


OWN = ["cudnn-kernels"]


@pytest.mark.parametrize(
    "disable", [[], OWN, [*OWN, "handwritten-kernels"], ["attention"]], ids=["all", "own", "plain", "without"]
)
@pytest.mark.parametrize("precision", list(BOUNDS))
@pytest.mark.parametrize("write", WRITERS)
def test_it_gives_onnxruntimes_numbers(write, precision, disable):
    net = Graph(S, 3 * H * D)
    model = net.model(write(net))
    batch = 1 if write is scaled_before_moving else B
    x = {"data": np.random.default_rng(1).standard_normal((batch, S, 3 * H * D), dtype=np.float32)}
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, x)
    settings = {"disable": ["tactics", *disable], "batch": batch}
    with ptp.build(model, engine="cuda", precision=precision, settings=settings).create_context() as context:
        for _ in range(3):
            (found,) = context.run(x).values()
            np.testing.assert_allclose(found, wanted, rtol=BOUNDS[precision], atol=BOUNDS[precision])
