"""Precision files: what they hold comes back, makes a model, and fits one network."""

import contextlib

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper

import pytrtplugins as ptp
from pytrtplugins.engines.calibrate import network_digest
from pytrtplugins.errors import FormatError, PytrtpluginsError, UsageError
from pytrtplugins.passes import LayerPrecision, Precisions, layer_names, prepare, quantize
from tests.engines.networks import conv_net
from tests.passes.nets import calibrated, constants, tiny_yolo
from tests.passes.nets import image as images


def image(model):
    return images(model, batch=1)


def precisions(model, precision="fp16", layers=None, **more):
    model = prepare(model)
    return Precisions(precision, network_digest(model), layer_names(model), layers or {}, **more)


def run(engine, x):
    with engine.create_context() as context:
        return next(iter(context.run({"data": x}).values()))


def int8_precisions(model, layers=None, **more):
    table = calibrated(prepare(model))
    return precisions(model, "int8", layers, scales={name: float(scale) for name, scale in table.items()}, **more)


def test_a_file_comes_back_as_it_was_written(tmp_path):
    layers = {
        "conv2": LayerPrecision("fp32", "pin", "own error 3.1", float("inf"), 0.25, 12.5),
        "leaky1": LayerPrecision("fp32"),
    }
    written = precisions(conv_net(), layers=layers, facts={"seed": 3, "tolerance": "cosine=0.999"})
    written.write(tmp_path / "precision.yaml")
    assert Precisions.read(tmp_path / "precision.yaml") == written


def test_scales_keep_every_bit(tmp_path):
    scales = {f"t{k}": float(np.float32(v)) for k, v in enumerate(np.random.default_rng(0).lognormal(0, 9, 300))}
    Precisions("int8", "0", ("a",), scales=scales).write(tmp_path / "p.yaml")
    found = Precisions.read(tmp_path / "p.yaml").scales
    assert [np.float32(found[name]) for name in scales] == [np.float32(value) for value in scales.values()]


def test_build_follows_a_file_on_the_reference_engine(tmp_path):
    model = conv_net()
    everything = {name: LayerPrecision("fp32") for name in layer_names(prepare(model))}
    precisions(model, layers=everything).write(tmp_path / "precision.yaml")
    exact = run(ptp.build(model, engine="reference"), image(model))
    pinned = ptp.build(model, engine="reference", precision=tmp_path / "precision.yaml")
    assert pinned.precision == "fp16"
    np.testing.assert_array_equal(run(pinned, image(model)), exact)
    assert (run(ptp.build(model, engine="reference", precision=precisions(model)), image(model)) != exact).any()


def test_the_strategy_says_how_the_constants_of_a_layer_in_float32_are_stored():
    model, stored = conv_net(), {}
    for strategy in ("pin", "half-weights", "calibrator"):
        layers = {"conv2": LayerPrecision("fp32", strategy)}
        mixed = precisions(model, layers=layers).apply(prepare(model))
        (weights,) = (tensor for tensor in mixed.graph.initializer if tensor.name.startswith("w2"))
        stored[strategy] = weights.data_type
    full, half = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16
    assert stored == {"pin": full, "half-weights": half, "calibrator": full}


def test_an_engine_file_keeps_the_precisions(tmp_path):
    model = conv_net()
    made = ptp.build(model, engine="reference", precision=precisions(model, layers={"conv2": LayerPrecision("fp32")}))
    made.save(tmp_path / "net.engine")
    np.testing.assert_array_equal(run(ptp.load_engine(tmp_path / "net.engine"), image(model)), run(made, image(model)))


@pytest.mark.parametrize("engine", ["reference", "cpu", "onnxruntime"])
def test_an_int8_file_brings_its_scales_to_every_engine(engine):
    model = tiny_yolo()
    x = image(model)[:1]
    exact = run(ptp.build(model, engine=engine), x)
    layers = {name: LayerPrecision("fp32") for name in layer_names(prepare(model))}
    pinned = run(ptp.build(model, engine=engine, precision=int8_precisions(model, layers)), x)
    rounded = run(ptp.build(model, engine=engine, precision=int8_precisions(model)), x)
    np.testing.assert_allclose(pinned, exact, rtol=1e-5, atol=1e-5)
    assert np.abs(rounded - exact).max() > 1e-3


def test_weights_share_a_scale_except_where_the_file_says_per_channel():
    model = prepare(tiny_yolo())
    layers = {"b": LayerPrecision("int8", "per-channel"), "c": LayerPrecision("int8", "calibrator")}
    table = int8_precisions(model, layers, per_tensor=True)
    found = constants(table.apply(model))
    assert len(set(found["c_w_scale"].tolist())) == len(set(found["d_w_scale"].tolist())) == 1
    assert len(set(found["b_w_scale"].tolist())) == len(found["b_w_scale"]) > 1
    exact = constants(model)["d_w"]
    assert found["d_w_scale"][0] == np.float32(np.abs(exact).max() / 127)
    again = constants(quantize(model, calibrated(model)))
    assert len(set(again["d_w_scale"].tolist())) > 1


def test_another_network_is_refused_with_the_names_that_differ():
    table = precisions(conv_net(), layers={"conv2": LayerPrecision("fp32")})
    with pytest.raises(FormatError, match=r"Only in the file: 'conv1'.*Only in the network: 'a'") as caught:
        ptp.build(tiny_yolo(), engine="reference", precision=table)
    assert caught.value.only_in_file == ("conv1", "leaky1", "conv2")
    with pytest.raises(FormatError, match=r"All 3 names of layers agree: the weights or attributes differ"):
        ptp.build(conv_net(seed=5), engine="reference", precision=table)


def test_a_missing_scale_and_a_second_calibration_are_refused():
    model = tiny_yolo()
    with pytest.raises(PytrtpluginsError, match="data"):
        ptp.build(model, engine="reference", precision=precisions(model, "int8"))
    with pytest.raises(UsageError, match="not both"):
        ptp.build(model, engine="reference", precision=int8_precisions(model), calibration=calibrated(prepare(model)))


FP16 = "format: 1\nprecision: fp16\nnetwork: a\nnames: [x]\n"
INT8 = FP16.replace("fp16", "int8")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected format 1, found 'NoneType'"),
        ("format: 1\nmore: 1\nnetwork: a\nother: 2", "unknown key 'more'"),
        ("format: 1\nnames: [x]", "the key 'precision' is missing"),
        ("[1]", "found 'list'"),
        ("format: 2", "expected format 1, found 2"),
        (FP16 + "more: 1", "unknown key 'more'"),
        ("format: 1\nprecision: fp4\nnetwork: a\nnames: [x]", "found 'fp4'"),
        (FP16 + "layers: {y: {precision: fp32}}", "no layer 'y'"),
        (FP16 + "layers: {x: {precision: int8}}", "found 'int8'"),
        (INT8 + "scales: {t: -1}", "scale of 't'"),
        ("!!python/object/apply:os.system ['true']", "tags such as .* are not allowed in line 1"),
        ("a: &a [*a]", "aliases and anchors are not allowed in line 1"),
        ("format: 1\nformat: 1", "the key 'format' appears twice in line 2"),
        ("format: 1\nprecision: fp16\nnetwork: a", "the key 'names' is missing"),
        ("format: 1\nprecision: fp16\nnetwork: a\nnames: [[x]]", "names: expected a text"),
        (FP16 + "layers: {x: 1}", "layer 'x': expected its precision"),
        (FP16 + "layers: {x: {precision: [fp32]}}", "expected a text"),
        (FP16 + "layers: {x: {precision: fp32, y: 1}}", "unknown key 'y'"),
        (INT8 + "scales: {t: a}", "expected a number, found 'a'"),
        ("format: 1\nprecision: int8\nnetwork: a\nnames: x", "names: expected list, found 'x'"),
        ("format: 1\nprecision: int8\nnetwork: 3\nnames: [x]", "network: expected str, found 3"),
        ("format: 1\nprecision: 8\nnetwork: a\nnames: [x]", "precision: expected str, found 8"),
        (INT8 + "layers: []", "layers: expected dict"),
        (INT8 + "scales: 1", "scales: expected dict, found 1"),
        (INT8 + "facts: 1", "facts: expected dict, found 1"),
        (INT8 + "per_tensor: 1", "per_tensor: expected bool, found 1"),
        (INT8 + "algorithm: 1", "algorithm: expected str, found 1"),
        ("format: 1\nnetwork: a\nnames: [x]", "the key 'precision' is missing"),
        ("format: 1\nprecision: fp16\nnames: [x]", "the key 'network' is missing"),
        ("format: 1\nprecision: fp16\nnetwork: a\nnames: [{x: y}]", "names: expected a text"),
        (FP16 + "layers: {x: {strategy: pin}}", "layer 'x': expected its precision"),
        (FP16 + "layers: {x: {precision: fp32, strategy: 1}}", "strategy: expected a text, found 1"),
        (
            FP16 + "layers: {x: {precision: fp32, strategy: up}}",
            "fp32 or fp16, and a strategy of pin, half-weights, per-channel, calibrator; found 'fp32' and 'up'",
        ),
        (FP16 + "layers: {x: {precision: fp32, reason: 1}}", "reason: expected a text, found 1"),
        (FP16 + "layers: {x: {precision: fp32, error_before: a}}", "error_before: expected a number, found 'a'"),
        (FP16 + "layers: {x: {precision: fp32, latency_us: [1]}}", "latency_us: expected a number"),
        (INT8 + "scales: {t: .nan}", "scale of 't'"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, text, message):
    path = tmp_path / "precision.yaml"
    path.write_text(text)
    with pytest.raises(FormatError, match=message) as caught:
        Precisions.read(path)
    assert caught.value.path == path
    assert "Do: pytrt precision search" in str(caught.value)


@given(data=st.binary(max_size=200))
def test_whatever_the_bytes_only_our_errors_come_out(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("hostile") / "precision.yaml"
    path.write_bytes(FP16.encode() + data)
    with contextlib.suppress(FormatError):
        Precisions.read(path)


def test_a_pinned_layer_reads_and_gives_float32_in_the_model():
    model = prepare(conv_net())
    written = precisions(model, layers={"conv2": LayerPrecision("fp32")}).apply(model)
    weights = {tensor.name: tensor.data_type for tensor in written.graph.initializer}
    assert weights["w2"] == onnx.TensorProto.FLOAT
    assert weights["w1_float16"] == onnx.TensorProto.FLOAT16
    np.testing.assert_array_equal(
        numpy_helper.to_array(next(t for t in written.graph.initializer if t.name == "w2")), constants(model)["w2"]
    )


def test_what_is_left_out_of_a_file_has_its_default_and_numbers_may_be_names(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(
        "format: 1\nprecision: int8\nnetwork: a\nnames: [x, 7]\nlayers: {7: {precision: int8}}\nscales: {3: 1}"
    )
    found = Precisions.read(path)
    assert found == Precisions(
        "int8", "a", ("x", "7"), {"7": LayerPrecision("int8", "pin", "", None, None, None)}, {"3": 1.0}
    )
    assert (found.algorithm, found.per_tensor, found.facts, found.pinned()) == ("EntropyCalibration2", False, {}, ())
    assert isinstance(found.scales["3"], float)


def test_files_are_plain_yaml_in_the_order_of_the_fields(tmp_path):
    facts = {
        "seed": 3, "yes": True, "nothing": None, "float": np.float32(0.1), "exact": 1 / 3, "many": (1, [2.5]), "inner": {1: "a"},
        "far": float("inf"), "text": "é" * 112 + " b c d", "text2": "é" * 112 + " b c d",
    }  # fmt: skip
    layers = {"x": LayerPrecision("fp32", "pin", "", None, 0.0, 1.5)}
    path = tmp_path / "p.yaml"
    Precisions("fp16", "a", ("x",), layers, {"t": 0.5}, facts=facts).write(path)
    text = path.read_text(encoding="utf-8")
    assert text.splitlines() == [
        "format: 1",
        "precision: fp16",
        "network: a",
        "names:",
        "- x",
        "layers:",
        "  x:",
        "    precision: fp32",
        "    strategy: pin",
        "    error_after: 0.0",
        "    latency_us: 1.5",
        "scales:",
        "  t: 0.5",
        "algorithm: EntropyCalibration2",
        "per_tensor: false",
        "facts:",
        "  seed: 3",
        "  'yes': true",
        "  nothing: null",
        "  float: 0.100000001",
        "  exact: 0.333333333",
        "  many:",
        "  - 1",
        "  - - 2.5",
        "  inner:",
        "    '1': a",
        "  far: .inf",
        f"  text: {'é' * 112} b",  # a line may end beyond column 120
        "    c d",
        f"  text2: {'é' * 112}",
        "    b c d",
    ]


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("abc", "Only in the file: 'a', 'b', 'c'. Only in the network: 'conv1', 'leaky1', 'conv2'."),
        ("abcd", "Only in the file: 'a', 'b', 'c' (and 1 more). Only in the network: 'conv1', 'leaky1', 'conv2'."),
        ("abcdef", "Only in the file: 'a', 'b', 'c' (and 3 more). Only in the network: 'conv1', 'leaky1', 'conv2'."),
        (("conv1", "conv2"), "Only in the file: none. Only in the network: 'leaky1'."),
        (("conv1", "leaky1", "conv2", "e"), "Only in the file: 'e'. Only in the network: none."),
    ],
)
def test_the_message_about_another_network_names_three_layers_of_each(named, expected):
    model = prepare(conv_net())
    table = Precisions("bf16", "0123456789", tuple(named))
    with pytest.raises(FormatError) as caught:
        table.check_fits(model, "abcdefghij", "here.yaml")
    assert str(caught.value) == (
        "here.yaml was made for another network (file: model 01234567; this network: model abcdefgh).\n"
        f"{expected}\nDo: pytrt precision search MODEL --precision bf16 -o here.yaml"
    )
    assert caught.value.path == "here.yaml"
    table.check_fits(model, "0123456789")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fp32", "a", ("x",)), "precision: expected fp16, bf16, int8, fp8, found 'fp32'"),
        (("fp16", "a", ("x",), {"y": LayerPrecision("fp32")}), "precisions: the network has no layer 'y'"),
        (
            ("fp16", "a", ("x",), dict.fromkeys("yz", LayerPrecision("fp32"))),
            "precisions: the network has no layer 'y'",
        ),
        (("fp16", "a", ("x",), {"x": LayerPrecision("bf16")}), "found 'bf16' and 'pin'"),
        (("fp16", "a", ("x",), {"x": LayerPrecision("fp16", "other")}), "found 'fp16' and 'other'"),
    ],
)
def test_precisions_that_contradict_themselves_are_refused(arguments, message):
    with pytest.raises(UsageError, match=message) as caught:
        Precisions(*arguments)
    if len(arguments) == 4:
        assert caught.value.name == next(iter(arguments[3]))


def test_layers_are_named_in_their_order_without_constants():
    nodes = [
        onnx.helper.make_node("Constant", [], ["c"], "constant", value_float=1.0),
        onnx.helper.make_node("Add", ["x", "c"], ["y"], "add"),
        onnx.helper.make_node("Abs", ["y"], ["z"]),
    ]
    assert layer_names(onnx.ModelProto(graph=onnx.GraphProto(node=nodes))) == ("add", "z")
