"""What a convolution of the engine takes over from ONNX's node."""

import numpy as np
import pytest

from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.passes import prepare
from tests.engines.cuda.host import run_on_host
from tests.engines.operators import literal, model_of


@pytest.mark.parametrize("rule", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize(
    ("size", "kernel", "stride"), [(5, 2, 1), (5, 3, 2), (6, 3, 2), (6, 4, 3), (7, 4, 3), (4, 4, 1)]
)
def test_the_pads_of_a_convolution_follow_onnxs_rule(rule, size, kernel, stride):
    """An odd pad stands below and at the right, or above and at the left."""
    weights = np.random.default_rng(0).standard_normal((2, 3, kernel, kernel), dtype=np.float32)
    x = np.random.default_rng(1).standard_normal((1, 3, size, size + 1), dtype=np.float32)
    model = model_of("Conv", [x, weights], {"auto_pad": rule, "strides": [stride, stride]})
    (conv,) = (node for node in lower(prepare(model), disable=("patches",)).graph if node.op_type == "Conv")
    total = [max((-(-side // stride) - 1) * stride + kernel - side, 0) for side in (size, size + 1)]
    less, more = [pad // 2 for pad in total], [pad - pad // 2 for pad in total]
    pads = {"SAME_UPPER": less + more, "SAME_LOWER": more + less, "VALID": [0] * 4}[rule]
    assert list(conv.attributes.get_ints("pads")) == pads
    found, (wanted,) = run_on_host(prepare(model), {"x0": x})[0]["y0"], literal(model, {"x0": x})
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
