"""Every network of Debian's darknet through lowering, planning and the steps around convolutions, on NumPy arrays."""

from contextlib import suppress

import numpy as np
import pytest

import pytrtplugins as ptp
from darknet2caffe import read_network, to_onnx
from pytrtplugins.errors import CfgError
from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType
from tests.engines.cuda.conftest import DARKNET
from tests.engines.cuda.host import run_on_host, run_shuffled
from tests.measures import relative

SMALL = ["writing", "yolov3-tiny"]
CASES = [pytest.param(name, marks=[] if name in SMALL else pytest.mark.slow) for name in
         sorted(path.stem for path in DARKNET.glob("*.cfg"))]  # fmt: skip
HALF = 6e4  # nothing that FP16 holds is larger


def small_model(cfg):
    """The network for images of 64 x 64, where it takes them."""
    try:
        network = read_network(cfg).with_random_weights(0)
    except CfgError as error:
        pytest.skip(str(error).splitlines()[0])
    with suppress(CfgError):
        return prepare(to_onnx(network, input_size=(64, 64)))
    return prepare(to_onnx(network))


@pytest.mark.skipif(not CASES, reason=f"{DARKNET} is missing (apt-get install darknet)")
@pytest.mark.parametrize("name", CASES)
def test_a_network_is_right_in_any_order_of_its_streams(name):
    model = small_model(DARKNET / f"{name}.cfg")
    dims = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    inputs = {"data": np.random.default_rng(0).random(dims, dtype=np.float32)}
    with ptp.build(model, engine="onnxruntime").create_context() as context:
        wanted = context.run(inputs)
    _, whole = run_on_host(model, inputs, disable=("reuse",))
    largest = max(np.abs(whole.tensors[step.outputs[0]].view).max() for step in whole.plan.steps)
    for float_type, bound in [(DType.FLOAT32, 5e-6), (DType.FLOAT16, 3e-2)][: 1 + (largest < HALF)]:
        found, execution = run_on_host(model, inputs, float_type)
        again, _ = run_shuffled(execution, inputs, seed=1)
        for output, values in wanted.items():
            assert relative(found[output], values) < bound
            np.testing.assert_array_equal(again[output], found[output])
