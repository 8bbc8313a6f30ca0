"""Which nodes of a network an engine runs as one kernel, as onnxruntime, OpenVINO and a plan of engine cuda tell it."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from onnx import numpy_helper

import pytrtplugins as ptp
from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.engines.base.fusion import Fusion, Part, fusion_of
from pytrtplugins.engines.base.fusion_chart import draw_fusion
from tests.onnx_parts import info, model, node
from tests.randomness import generator

RANDOM = generator(0)


def weights(**shapes):
    arrays = {name: RANDOM.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return [numpy_helper.from_array(array, name) for name, array in arrays.items()]


def residual():
    """Two convolutions with an activation each, a subtraction in front, an addition of what the first gives."""
    return model(
        node("Sub", "x mean", "centred"),
        node("Conv", "centred v", "first", pads=[1, 1, 1, 1]),
        node("Relu", "first", "act"),
        node("Conv", "act w", "second", pads=[1, 1, 1, 1]),
        node("PRelu", "second slope", "bent"),
        node("Add", "act bent", "y"),
        node("Shape", "w", "constant"),
        weights=weights(mean=(1,), v=(8, 3, 3, 3), w=(8, 8, 3, 3), slope=(8, 1, 1)),
        inputs=[info("x", (1, 3, 8, 8))],
    )


def groups(found):
    return [tuple(found.names[place] for place in kernel.nodes) for kernel in found.computing]


def test_nodes_between_what_a_part_reads_and_writes_belong_to_it():
    parts = [
        Part("a", "Reorder", ("x",), ("x_nhwc",)),
        Part("b", "Convolution", ("centred",), ("act",)),
        Part("c", "Convolution", ("act",), ("bent",)),
        Part("d", "Add", ("act", "bent"), ("y",)),
    ]
    found = fusion_of(residual(), parts)
    assert groups(found) == [("centred", "first", "act"), ("second", "bent"), ("y",)]
    assert [kernel.name for kernel in found.computing] == ["b", "c", "d"]
    assert [found.names[place] for place in found.before] == ["constant"]
    assert (2, 5) in found.edges
    assert (0, 1) in found.edges


def test_a_node_that_several_kernels_read_and_none_names_belongs_to_none():
    shared = model(node("Neg", "x", "a"), node("Abs", "a", "b"), node("Exp", "a", "c"), outputs=("b", "c"))
    found = fusion_of(shared, [Part("1", "Abs", ("a",), ("b",)), Part("2", "Exp", ("a",), ("c",))])
    assert groups(found) == [("b",), ("c",)]
    assert [found.names[place] for place in found.before] == ["a"]


def test_quantized_tensors_are_those_that_they_were_made_of():
    quantized = model(
        node("QuantizeLinear", "x s z", "x_q"),
        node("DequantizeLinear", "x_q s z", "x_dq"),
        node("Relu", "x_dq", "y"),
        weights=[*weights(s=(1,)), numpy_helper.from_array(np.zeros(1, np.int8), "z")],
    )
    plain = model(node("Relu", "x", "y"))
    parts = [Part("q", "Quantize", ("x",), ("x_q",)), Part("r", "QLinearRelu", ("x_q",), ("y",))]
    assert groups(fusion_of(plain, parts, quantized)) == [("y",)]


def fused(engine, **options):
    network = residual()
    built = ptp.build(network, engine=engine, progress=False, **options)
    return fusion_of(network, built.parts(), built.model_without_weights)


@pytest.mark.parametrize(
    ("engine", "wanted"),
    [
        ("reference", [("centred",), ("first",), ("act",), ("second",), ("bent",), ("y",)]),
        ("onnxruntime", [("centred",), ("first", "act"), ("second",), ("bent",), ("y",)]),
    ],
)
def test_engines_tell_what_they_fuse(engine, wanted):
    assert groups(fused(engine)) == wanted


def test_openvino_tells_what_it_fuses():
    found = groups(fused("cpu"))
    assert found[:2] == [("centred",), ("first", "act")]
    assert found[2][:2] == ("second", "bent")  # and the addition, where the processor's kernels can add
    assert sorted(name for group in found for name in group) == ["act", "bent", "centred", "first", "second", "y"]


def test_int8_kernels_are_traced_back_to_the_float_network():
    calibrator = MinMaxCalibrator([{"x": RANDOM.random((1, 3, 8, 8), np.float32)}])
    found = groups(fused("cpu", precision="int8", calibration=calibrator, settings={"int8": "always"}))
    assert sorted(name for group in found for name in group) == ["act", "bent", "centred", "first", "second", "y"]
    assert ("first", "act") in [group[-2:] for group in found]


def test_the_picture_has_a_box_for_each_node_and_each_kernel(tmp_path):
    found = fused("cpu")
    draw_fusion(found, tmp_path / "f.svg", "a <network>")
    root = ElementTree.parse(tmp_path / "f.svg").getroot()
    name = "{http://www.w3.org/2000/svg}"
    titles = [each.text for each in root.iter(f"{name}title")]
    assert [text for text in titles if text.startswith("Conv  ")] == ["Conv  first", "Conv  second"]
    assert len(titles) == len(found.names) + len(found.computing)
    assert "a <network>" in [each.text for each in root.iter(f"{name}text")]
    boxes = [each for each in root.iter(f"{name}rect") if each.get("rx")]
    tops = sorted(float(each.get("y", 0)) for each in boxes if float(each.get("x", 0)) > 400)
    assert tops == sorted(set(tops))
    grey = [each for each in boxes if each.get("fill") == "#b8b8b8"]
    assert len(grey) == len(found.before) == 1


def test_arcs_are_the_wider_the_more_nodes_they_skip_and_lie_within_the_picture(tmp_path):
    edges = ((0, 1), (0, 2), (0, 4), (0, 90))
    found = Fusion(("n",) * 91, ("Relu",) * 91, edges, (), tuple(range(91)))
    draw_fusion(found, tmp_path / "f.svg")
    curves = re.findall(r"M(\d+) \S+ C(-?\d+) ", (tmp_path / "f.svg").read_text())
    widths = [int(left) - int(control) for left, control in curves]
    assert widths == sorted(set(widths))
    assert min(int(control) for _, control in curves) > 0
