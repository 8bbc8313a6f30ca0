"""onnxruntime's own calibrator and quantizer, on the same inputs, as oracle."""

import numpy as np
import onnx
import pytest

from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.engines import calibrate
from pytrtplugins.passes import prepare, quantize
from tests.measures import sqnr
from tests.passes.nets import run, tiny_yolo
from tests.precision.planted import samples

quantization = pytest.importorskip("onnxruntime.quantization")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


class Reader(quantization.CalibrationDataReader):  # type: ignore[name-defined]
    def __init__(self, items):
        self.items = iter(items)

    def get_next(self):
        return next(self.items, None)


@pytest.fixture(scope="module")
def quantized(tmp_path_factory):
    """(float model, ours, onnxruntime's, our table)."""
    folder = tmp_path_factory.mktemp("quantizer")
    model = prepare(tiny_yolo())
    data = samples(model, 6)
    onnx.save(model, folder / "float.onnx")
    quantization.quantize_static(
        str(folder / "float.onnx"),
        str(folder / "int8.onnx"),
        Reader(data),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=True,
        activation_type=quantization.QuantType.QInt8,
        weight_type=quantization.QuantType.QInt8,
        op_types_to_quantize=["Conv", "MaxPool", "Concat"],
        nodes_to_exclude=["e"],
        extra_options={"ActivationSymmetric": True, "WeightSymmetric": True},
    )
    table = calibrate(model, MinMaxCalibrator(data), engine="onnxruntime", progress=False)
    return model, quantize(model, table), onnx.load(folder / "int8.onnx"), table


def scales(model):
    """Tensor that a QuantizeLinear reads → its scale."""
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    return {
        node.input[0]: float(constants[node.input[1]]) for node in model.graph.node if node.op_type == "QuantizeLinear"
    }


def test_min_max_scales_are_onnxruntimes(quantized):
    _, _, theirs, table = quantized
    found = {name: scale for name, scale in scales(theirs).items() if name in table and name != "data"}
    assert len(found) >= 4
    for name, scale in found.items():
        assert scale == pytest.approx(float(table[name]), rel=1e-5), name


def test_our_model_is_no_less_exact_than_onnxruntimes(quantized):
    model, ours, theirs, _ = quantized
    ratios = []
    for made in (ours, theirs):
        pairs = [(run(model, x["data"], ["e"])["e"], run(made, x["data"], ["e"])["e"]) for x in samples(model, 6)]
        ratios.append(sqnr(np.concatenate([a for a, _ in pairs]), np.concatenate([b for _, b in pairs])))
    assert ratios[0] > ratios[1] - 0.5
