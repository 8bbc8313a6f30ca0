"""A plugin with `int8 = "requantize"` between two convolutions: engines hand its `enqueue` codes, with the scales of the table."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import onnx
import pytest

import pytrtplugins as ptp
from pytrtplugins.calibration.table import CalibrationTable
from pytrtplugins.engines import build
from pytrtplugins.engines.registry import engine_class
from pytrtplugins.passes import quantize
from tests.check.plugins.hard_swish import HardSwish as WithKernel
from tests.engines.model_parts import parsed
from tests.engines.networks import run as run_once
from tests.user_plugins import Copy

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")
ENGINES = ("cpu", "onnxruntime", "reference")
NAME = "requantize::HardSwish"
SEEN: list[tuple[str, tuple[float | None, float | None]]] = []


@ptp.plugin(namespace="requantize")
class HardSwish(Copy):
    """x * min(max(x + 3, 0), 6) / 6, of numbers or of codes."""

    int8: ClassVar[str] = "requantize"

    def compute(self, x):
        return (x * np.clip(x + 3, 0, 6) / 6).astype(x.dtype)

    def configure(self, inputs, outputs):
        self.scales = (inputs[0].scale, outputs[0].scale)
        SEEN.append((str(inputs[0].dtype), self.scales))

    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (y,) = inputs, outputs
        if x.dtype == np.int8:
            given, wanted = self.scales
            y[...] = np.clip(np.rint(self.compute(x.astype(np.float32) * given) / wanted), -128, 127)
        else:
            y[...] = self.compute(x)


def network(reader=False, plugin=None):
    """Convolution → plugin → convolution; with ``reader`` the plugin's result is also added behind them, in float."""
    rng = np.random.default_rng(1)
    dims = {"w0": (8, 3, 3, 3), "w1": (8, 8, 1, 1), "w2": (4, 8, 1, 1)}
    weights = {name: rng.standard_normal(shape).astype(np.float32) * 0.3 for name, shape in dims.items()}
    node = (plugin or HardSwish()).as_node(["a"], ["b"], "swish")
    text = f"""(float[1,3,6,6] x) => (float[1,4,6,6] y) {{
        a = Conv <pads = [1, 1, 1, 1]> (x, w0)  b = {node.domain}.{node.op_type} (a)  c = Conv (b, w1)
        d = {"Sum (c, b)" if reader else "Identity (c)"}  y = Conv (d, w2) }}"""
    model = parsed(text, 18, 10, [node.domain], **weights)
    model.graph.node[1].CopyFrom(node)
    return onnx.shape_inference.infer_shapes(model)


AMAX = np.float32(4 / 127), np.float32(3 / 127)
TABLE = CalibrationTable(dict.fromkeys("xbcdy", AMAX[1]) | {"a": AMAX[0]})
X = {"x": np.random.default_rng(2).standard_normal((1, 3, 6, 6)).astype(np.float32)}


def expected(model, engine=""):
    """What the model with Q/DQ says, literally: ONNX's own HardSwish in float between DequantizeLinear and QuantizeLinear."""
    options = engine_class(engine).quantize_options("int8") if engine in ENGINES else {}
    written = quantize(model, TABLE, weight_levels=options.get("weight_levels"))
    (node,) = [node for node in written.graph.node if node.domain]
    node.domain = ""
    del node.attribute[:]
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(written.SerializeToString(), options).run(None, X)[0]


@pytest.mark.parametrize("reader", [False, True], ids=["alone", "read in float too"])
@pytest.mark.parametrize("engine", [*ENGINES, "cuda on the host"])
def test_enqueue_gets_codes_and_the_result_is_that_of_the_float_form(engine, reader):
    model = network(reader)
    SEEN.clear()
    if engine.startswith("cuda"):
        from pytrtplugins.passes import prepare
        from tests.engines.cuda.host import run_on_host

        found = run_on_host(prepare(quantize(model, TABLE)), X)[0]["y"]
    else:
        found = run(model, engine, "enqueue")
    assert {(kind, np.float32(given), np.float32(wanted)) for kind, (given, wanted) in SEEN} == {("int8", *AMAX)}
    np.testing.assert_allclose(found, expected(model, engine), atol=3 / 127, rtol=0)


def run(model, engine, form):
    settings = {"int8": "always"} if engine in ("cpu", "onnxruntime") else {}
    options = {"calibration": TABLE, "plugins": {NAME: form}, "settings": settings, "progress": False}
    return run_once(build(model, engine=engine, precision="int8", **options), X)["y"]


@pytest.mark.parametrize("engine", ENGINES)
def test_compute_stays_in_float_between_the_pairs(engine):
    SEEN.clear()
    found = run(network(), engine, "compute")
    assert {kind for kind, _ in SEEN} <= {"float32"}
    np.testing.assert_allclose(found, expected(network(), engine), atol=3 / 127, rtol=0)


def test_what_the_plugin_reads_is_quantized_where_its_result_is_read_as_int8_and_only_there():
    def quantized(model):
        return [node.input[0] for node in quantize(model, TABLE).graph.node if node.op_type == "QuantizeLinear"]

    assert quantized(network()) == ["x", "a", "b"]
    model = network()
    del model.graph.node[2].input[1]
    model.graph.node[2].op_type = "Sigmoid"  # instead of the second convolution
    assert quantized(model) == ["x"]


@pytest.mark.gpu
def test_a_kernel_of_codes_runs_in_the_graph_of_a_gpu(gpu):
    model = network(plugin=WithKernel())
    built = build(model, engine=gpu, precision="int8", calibration=TABLE, settings={"float": "float32"}, progress=False)
    with built.create_context() as context:
        for _ in range(2):
            np.testing.assert_allclose(context.run(X)["y"], expected(model), atol=3 / 127, rtol=0)
