"""Recurrent layers on a GPU: part of the CUDA graph, in every way to spread them over the blocks."""

import numpy as np
import pytest

import pytrtplugins as ptp
import pytrtplugins.engines.cuda.device.recurrent as module
from pytrtplugins.engines.cuda import int8_choice, settings
from pytrtplugins.engines.cuda.conv import cache
from pytrtplugins.engines.cuda.device.recurrent_form import CLUSTER, ONE_BLOCK, WHOLE_GRID, LanesForm, MatrixForm
from pytrtplugins.engines.cuda.settings import PLACEMENT
from pytrtplugins.passes import prepare, quantize
from pytrtplugins.tensor import DType
from tests.engines.cuda.recurrent import BOTH, LAYERS, Layer, language_model, scales, text_recognizer
from tests.engines.operators import literal
from tests.measures import relative

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]

SINGLE, HALF = DType.FLOAT32, DType.FLOAT16
REGISTERS, SHARED, L2 = range(3)
ROOM = {"fp32": 5e-6, "fp16": 4e-3}
OURS = {"disable": ["cudnn-kernels", "cublaslt-kernels"]}


def check(layer, precision):
    """Require onnxruntime's numbers of a layer, in each of several runs of one graph."""
    model, inputs = layer.model()
    engine = ptp.build(model, engine="cuda", precision=precision, settings={"disable": ["tactics"]})
    with engine.create_context() as context:
        for _ in range(3):  # the first is captured
            outputs = context.run(inputs)
            for name, values in layer.wanted().items():
                np.testing.assert_allclose(outputs[name], values, ROOM[precision], ROOM[precision], err_msg=name)
        segments = next(iter(context._ready.values())).execution.segments
        assert len(segments) == 1
        assert segments[0].graph is not None


@pytest.mark.parametrize("precision", list(ROOM))
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_every_form_of_the_node_gives_onnxruntimes_numbers(layer, precision):
    check(layer, precision)


@pytest.mark.parametrize("precision", list(ROOM))
@pytest.mark.parametrize(
    "layer",
    [
        Layer(hidden=256, batch=1, steps=40, width=512, direction=BOTH),
        Layer(hidden=512, batch=20, steps=20, direction=BOTH, lengths=tuple(range(1, 21))),
        Layer(hidden=512, batch=16, steps=20),
        Layer("GRU", hidden=512, batch=32, steps=10),
        Layer("GRU", hidden=1024, batch=2, steps=10, optional="bh"),
        Layer(hidden=1000, batch=1, steps=10),
        Layer("RNN", hidden=2048, batch=64, steps=3, optional="bh"),
    ],
    ids=str,
)
def test_large_layers_too(layer, precision):
    check(layer, precision)


@pytest.mark.parametrize(
    "layer", [Layer(hidden=200, direction=BOTH, lengths=(4, 2, 1)), Layer("GRU", hidden=200, optional="bh")], ids=str
)
@pytest.mark.parametrize(
    "form",
    [
        (ONE_BLOCK, 1, 1, 256, SINGLE, L2),
        (CLUSTER, 8, 1, 256, SINGLE, SHARED),
        (ONE_BLOCK, 1, 3, 512, HALF, L2),
        (CLUSTER, 8, 2, 512, SINGLE, REGISTERS),
        (CLUSTER, 16, 4, 256, SINGLE, REGISTERS),  # more groups than sequences
        (CLUSTER, 16, 1, 256, HALF, REGISTERS),
        (CLUSTER, 4, 1, 256, HALF, SHARED),
        (WHOLE_GRID, 25, 1, 256, SINGLE, REGISTERS),
        (WHOLE_GRID, 7, 3, 512, HALF, L2),
        (ONE_BLOCK, 1, 1, 512, HALF, L2, 4),
        (CLUSTER, 8, 1, 256, HALF, REGISTERS, 4),
        (CLUSTER, 16, 1, 512, HALF, SHARED, 2),
        (WHOLE_GRID, 25, 1, 256, HALF, REGISTERS, 8),
    ],
)
def test_every_way_to_spread_it_gives_the_same(layer, form, monkeypatch):
    kind = MatrixForm if len(form) == 7 else LanesForm
    monkeypatch.setattr(module, "_choose_form", lambda device, problem, max_cluster: kind(problem.shape, *form))
    check(layer, "fp16" if form[4] is HALF else "fp32")


def test_layers_side_by_side_on_streams_of_one_graph_do_not_wait_for_each_other(monkeypatch):
    import onnx

    form = (WHOLE_GRID, 100, 1, 256, SINGLE, REGISTERS)
    monkeypatch.setattr(module, "_choose_form", lambda device, problem, max_cluster: LanesForm(problem.shape, *form))
    layer = Layer(hidden=800, batch=1, steps=20, optional="b", outputs="y")
    model, inputs = layer.model()
    node = onnx.NodeProto()
    node.CopyFrom(model.graph.node[0])
    node.output[0] = "z"
    node.name = "second"
    model.graph.node.append(node)
    info = onnx.ValueInfoProto()
    info.CopyFrom(model.graph.output[0])
    info.name = "z"
    model.graph.output.append(info)
    engine = ptp.build(model, engine="cuda", precision="fp32", settings={"disable": ["tactics", "dead-layers"]})
    with engine.create_context() as context:
        for _ in range(20):
            outputs = context.run(inputs)
        for name in "yz":
            np.testing.assert_allclose(outputs[name], layer.wanted()["y"], 5e-6, 5e-6)


@pytest.mark.parametrize("make", [text_recognizer, language_model])
@pytest.mark.parametrize(("rest", "room"), [("float16", 2e-2), ("float32", 5e-3)])
def test_networks_in_int8_are_near_onnxruntimes_from_the_same_file(make, rest, room):
    """Sizes that the kernels of products take, and others."""
    for options in ({}, {"hidden": 128, "batch": 4}):
        model, inputs = make(**options)
        model = prepare(model)
        quantized = quantize(model, scales(model, inputs), placement=PLACEMENT)
        engine = ptp.build(quantized, engine="cuda", precision="int8", settings={**OURS, "float": rest})
        kinds = engine.arithmetic.layers
        assert [kind for name, kind in kinds.items() if name != "out"] == ["int8"] * (len(kinds) - 1)
        with engine.create_context() as context:
            for _ in range(3):  # the first is captured
                assert relative(context.run(inputs)["out"], literal(quantized, inputs)[0]) < room
            segments = next(iter(context._ready.values())).execution.segments
            assert all(segment.graph is not None for segment in segments)


@pytest.mark.parametrize("make", [text_recognizer, language_model])
def test_what_is_not_faster_in_int8_stays_in_float(make, monkeypatch, tmp_path):
    """Forms are timed, chains of recurrent layers among them, and what is chosen computes right."""
    monkeypatch.setattr(int8_choice, "compares_int8", settings.compares_int8)
    monkeypatch.setattr(cache, "cache_folder", lambda kind: tmp_path)
    model, inputs = make(hidden=128, batch=4)
    table = scales(prepare(model), inputs)
    engine = ptp.build(model, engine="cuda", precision="int8", calibration=table, settings=OURS, progress=False)
    assert "µs" in engine.choices["int8"], engine.choices
    with engine.create_context() as context:
        assert relative(context.run(inputs)["out"], literal(model, inputs)[0]) < 0.05
