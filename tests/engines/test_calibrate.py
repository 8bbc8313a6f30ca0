"""What a calibration sees: every float tensor of every image of every batch; against onnxruntime on whole batches."""

import sys

import numpy as np
import onnx
import onnxruntime
import pytest

import pytrtplugins as ptp
from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.engines import calibrate
from pytrtplugins.engines.calibrate import _has_images, network_runs
from pytrtplugins.errors import NoDataError, UsageError
from pytrtplugins.tensor import AnyDims
from tests.engines.model_parts import parsed
from tests.engines.networks import conv_net, image, run
from tests.randomness import generator


def batches():
    """Of the first batch the last image has the largest values, of the second the one in the middle."""
    first, second = image(3, seed=1), image(3, seed=2)
    first[2] *= 3
    second[1] *= -2
    return [{"data": first}, {"data": second}]


def largest(model, given):
    """The largest magnitude of each tensor, by onnxruntime."""
    tapped = onnx.ModelProto()
    tapped.CopyFrom(model)
    names = [node.output[0] for node in model.graph.node]
    del tapped.graph.output[:]
    tapped.graph.output.extend(onnx.helper.make_tensor_value_info(name, 1, None) for name in names)
    session = onnxruntime.InferenceSession(tapped.SerializeToString(), providers=["CPUExecutionProvider"])
    found = {"data": max(np.abs(batch["data"]).max() for batch in given)}
    for batch in given:
        for name, value in zip(names, session.run(names, batch), strict=True):
            found[name] = max(found.get(name, 0), np.abs(value).max())
    return found


@pytest.mark.parametrize("engine", ["cpu", "onnxruntime", "reference"])
@pytest.mark.parametrize("batch", [1, 2, 3, 4, "N"])
def test_scales_are_those_of_the_largest_values_of_all_images(engine, batch):
    """The last image is repeated where they do not fill a fixed batch, which changes no largest value."""
    given = batches()
    table = calibrate(conv_net(batch=batch), MinMaxCalibrator(given), engine=engine, progress=False)
    wanted = largest(conv_net(batch="N"), given)
    assert list(table) == list(wanted)
    for name, value in wanted.items():
        assert table[name] == pytest.approx(value / 127, rel=1e-5), name


@pytest.mark.parametrize("engine", ["cpu", "onnxruntime", "reference"])
def test_int8_prepares_the_network_once(engine, monkeypatch):
    """What is calibrated is the network that is quantized, not prepared a second time."""
    model, given = conv_net(), batches()
    table = calibrate(model, MinMaxCalibrator(given), progress=False)
    monkeypatch.setattr(sys.modules[network_runs.__module__], "prepare", None)
    options = {"engine": engine, "precision": "int8", "progress": False}
    models = [ptp.build(model, calibration=each, **options).model for each in (MinMaxCalibrator(given), table)]
    assert models[0] == models[1]


@pytest.mark.parametrize("count", range(1, 10))
@pytest.mark.parametrize("batch", [1, 4, "N"])
def test_runs_have_all_images_once_in_order_and_count_them(batch, count):
    """A fixed batch is filled with the last image, which does not count."""
    images = np.arange(count)[:, None]
    size = 4 if batch == 4 else 1
    runs = list(network_runs({"x": images, "y": -images}, {"x": (batch, 1), "y": (batch, 1)}))
    assert [number for _, number in runs] == [min(size, count - begin) for begin in range(0, count, size)]
    for begin, (feeds, _) in zip(range(0, count, size), runs, strict=True):
        wanted = [min(begin + place, count - 1) for place in range(size)]
        assert (feeds["x"].ravel().tolist(), (-feeds["y"]).ravel().tolist()) == (wanted, wanted)


def test_each_image_runs_alone():
    """A plugin that adds over the batch would see more than one."""

    @ptp.plugin(namespace="test.calibrate")
    class Sum(ptp.Plugin):
        def output_dims(self, x):
            return x

        def compute(self, x):
            return x + x.sum(axis=0, keepdims=True)

    table = calibrate(conv_net(Sum(), batch="N"), MinMaxCalibrator(batches()), engine="reference", progress=False)
    assert table["p0"] == pytest.approx(2 * table["a1"], rel=1e-6)


def test_inputs_without_an_axis_of_images_run_as_they_are():
    parts = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 18]> net (float[1, 3] data, float[4] row, float factor) => (float[4, 3] y)'
        " { col = Constant <value_ints = [1]> () c = Unsqueeze(row, col) p = Mul(c, data) y = Mul(p, factor) }"
    )
    arrays = {"data": [[1, -2, 3]], "row": [1, 2, 3, -5], "factor": 2}
    given = [{name: np.array(values, np.float32) for name, values in arrays.items()}]
    table = calibrate(parts, MinMaxCalibrator(given), engine="reference", progress=False)
    assert {name: round(table[name] * 127) for name in table} == {
        "data": 3, "row": 5, "factor": 2, "c": 5, "p": 15, "y": 30,
    }  # fmt: skip
    with pytest.raises(UsageError, match=r"or of the network's dims"):
        calibrate(parts, MinMaxCalibrator([given[0] | {"row": image()}]), engine="reference", progress=False)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([{"other": image()}], r"for the inputs \['data'\]; found other: \(1, 3, 8, 8\)"),
        ([{}], r"for the inputs \['data'\]"),
    ],
)
def test_batches_without_the_networks_inputs_are_refused(given, words):
    with pytest.raises(UsageError, match=words):
        calibrate(conv_net(), MinMaxCalibrator(given), engine="reference", progress=False)


def test_no_batches_are_no_data():
    with pytest.raises(NoDataError):
        calibrate(conv_net(), MinMaxCalibrator([]), engine="reference", progress=False)


RNG = generator(0)
W = RNG.standard_normal((4, 4)).astype(np.float32)
X = RNG.standard_normal((5, 4)).astype(np.float32)
WITHOUT_IMAGES = {
    "a name in two axes": (
        parsed(
            "(float[N,4] x, float[N,N] z) => (float[N,4] y) { q = MatMul (z, x) a = MatMul (q, w) y = MatMul (a, w) }",
            w=W,
        ),
        {"x": X, "z": RNG.standard_normal((5, 5)).astype(np.float32)},
    ),
    "weights without elements": (
        parsed(
            "(float[5,4] x) => (float[5,4] y, float[5,0] e) { a = MatMul (x, w) y = MatMul (a, w) e = MatMul (y, v) }",
            w=W,
            v=np.zeros((4, 0), np.float32),
        ),
        {"x": X},
    ),
    "layers without elements": (
        parsed(
            "(float[5,4] x) => (float[5,3] y) { a = MatMul (x, w) b = MatMul (a, u) y = MatMul (b, v) }",
            w=W,
            u=np.zeros((4, 0), np.float32),
            v=np.zeros((0, 3), np.float32),
        ),
        {"x": X},
    ),
    "float64": (
        parsed("(double[5,4] x) => (double[5,4] y) { a = MatMul (x, w) y = MatMul (a, w) }", w=W.astype(np.float64)),
        {"x": X.astype(np.float64)},
    ),
    "float16": (
        parsed("(float16[5,4] x) => (float16[5,4] y) { a = MatMul (x, w) y = MatMul (a, w) }", w=W.astype(np.float16)),
        {"x": X.astype(np.float16)},
    ),
}


@pytest.mark.parametrize("name", WITHOUT_IMAGES)
@pytest.mark.parametrize("engine", ["cpu", "onnxruntime"])
def test_networks_without_images_are_calibrated_and_run(name, engine):
    model, feeds = WITHOUT_IMAGES[name]
    options = {"precision": "int8", "calibration": MinMaxCalibrator([feeds]), "settings": {"int8": "always"}}
    built = ptp.build(model, engine=engine, progress=False, **options)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, feeds)
    found = run(built, feeds)
    for array, right in zip(found.values(), expected, strict=True):
        assert (array.dtype, array.shape) == (right.dtype, right.shape)
        assert np.abs(array - right).max(initial=0) <= 0.05 * np.abs(right).max(initial=0)


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ({"x": ("N", 3)}, True),
        ({"x": ("N", "M"), "y": ("N",)}, True),
        ({"x": ("N", "N")}, False),
        ({"x": ("N", 3), "y": (2, "N")}, False),
        ({"x": ("N", 3), "y": AnyDims()}, False),  # one of which nothing is known is enough
        ({"x": AnyDims()}, False),
    ],
)
def test_the_first_axis_is_one_of_images_where_all_inputs_say_so(inputs, told):
    assert _has_images(inputs) is told
