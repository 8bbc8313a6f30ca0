"""caffe files read back: networks of others as OpenCV computes them, and what is refused."""

import logging

import numpy as np
import onnx
import pytest

from darknet2caffe import to_caffe
from darknet2caffe._caffe_graph import CONVERTERS, CaffeGraph
from darknet2caffe.from_caffe import from_caffe
from pytrtplugins.errors import ModelError, UsageError
from tests.darknet2caffe.caffe import run_opencv, write_caffe
from tests.darknet2caffe.networks import image, run
from tests.darknet2caffe.test_to_caffe import LAYERS, small
from tests.measures import relative_error
from tests.randomness import generator

HEADER = 'name: "other" input: "data" input_shape { dim: 2 dim: 4 dim: 7 dim: 6 }\n'
R = generator(5)


def w(*shape):
    return R.normal(0, 0.5, shape).astype(np.float32)


def layer(kind, fields="", bottoms="data", tops="a", name=None):
    """The text of a layer, which has the name of its first top."""
    blobs = [f'bottom: "{blob}"' for blob in bottoms.split()] + [f'top: "{blob}"' for blob in tops.split()]
    return f'layer {{ name: "{name or tops.split()[0]}" type: "{kind}" {" ".join(blobs)} {fields} }}'


CONVOLUTION = layer("Convolution", "convolution_param { %s }")
POOLING = layer("Pooling", "pooling_param { %s }")
OTHERS = {
    "kernel_h, pad_w and dilation": (
        CONVOLUTION
        % "num_output: 3 kernel_h: 3 kernel_w: 2 pad_h: 1 pad_w: 0 stride: 2 weight_filler { type: 'xavier' }",
        {"a": [w(3, 4, 3, 2), w(3)]},
    ),
    "kernel_size twice": (
        CONVOLUTION % "num_output: 4 kernel_size: [3, 1] dilation: 2 group: 2 bias_term: false engine: CAFFE",
        {"a": [w(4, 2, 3, 1)]},
    ),
    "a bias with old dims": (CONVOLUTION % "num_output: 3 kernel_size: 1", {"a": [w(3, 4, 1, 1), w(1, 1, 1, 3)]}),
    "deconvolution in groups": (
        CONVOLUTION.replace("Convolution", "Deconvolution") % "num_output: 6 group: 2 kernel_size: 3 stride: 2 pad: 1",
        {"a": [w(4, 3, 3, 3), w(6)]},
    ),
    "deconvolution by channel": (
        CONVOLUTION.replace("Convolution", "Deconvolution")
        % "num_output: 4 group: 4 kernel_size: 4 stride: 2 pad: 1 bias_term: false",
        {"a": [w(4, 1, 4, 4)]},
    ),
    "deconvolution of oblong windows side by side": (
        CONVOLUTION.replace("Convolution", "Deconvolution")
        % "num_output: 4 group: 4 kernel_h: 2 kernel_w: 3 stride_h: 2 stride_w: 3 bias_term: false",
        {"a": [np.full((4, 1, 2, 3), 0.5, np.float32)]},
    ),
    "inner product of a map": (
        layer("InnerProduct", "inner_product_param { num_output: 5 }"),
        {"a": [w(1, 1, 5, 168), w(5)]},
    ),
    "max pooling rounds up": (POOLING % "kernel_size: 3 stride: 2", {}),
    "max pooling with padding": (POOLING % "pool: MAX kernel_size: 3 stride: 2 pad: 1", {}),
    "mean pooling rounds up": (POOLING % "pool: AVE kernel_size: 2 stride: 2", {}),
    "mean pooling with padding": (POOLING % "pool: AVE kernel_size: 3 stride: 1 pad: 1", {}),
    "mean pooling with padding below": (POOLING % "pool: 1 kernel_h: 3 kernel_w: 2 stride_h: 2 stride_w: 2 pad: 1", {}),
    "global pooling": (POOLING % "pool: MAX global_pooling: true", {}),
    "lrn": (layer("LRN", "lrn_param { local_size: 3 alpha: 2 beta: .6 }"), {}),
    "prelu": (layer("PReLU"), {"a": [w(4)]}),
    "batch norm with a factor": (layer("BatchNorm", "param { lr_mult: 0 }"), {"a": [w(4), abs(w(4)), [0.25]]}),
    "batch norm and scale apart": (
        layer("BatchNorm", "batch_norm_param { eps: 0.1 }", tops="n")
        + layer("Scale", "scale_param { bias_term: true }", bottoms="n", name="s"),
        {"n": [w(4), abs(w(4)), [1]], "s": [w(4), w(4)]},
    ),
    "scale without bias": (layer("Scale", name="s"), {"s": [w(4)]}),
    "eltwise of three": (
        layer("ReLU", tops="r")
        + layer("TanH", tops="t")
        + layer("Eltwise", "eltwise_param { operation: SUM coeff: 1 coeff: -.5 coeff: 2 }", bottoms="data r t"),
        {},
    ),
    "eltwise max": (
        layer("Sigmoid", tops="r") + layer("Eltwise", "eltwise_param { operation: MAX }", bottoms="data r"),
        {},
    ),
    "slice without points": (layer("Slice", tops="x y", name="s") + layer("Concat", bottoms="y x"), {}),
    "split, in place and dropout": (
        layer("Split", tops="x y", name="s")
        + layer("Power", "power_param { scale: 2 shift: .5 power: 2 }", bottoms="y", tops="z", name="p")
        + layer("ReLU", "relu_param { negative_slope: 0.2 }", bottoms="z", tops="z", name="r")
        + layer("Dropout", "dropout_param { dropout_ratio: .5 }", bottoms="z", tops="z", name="d")
        + layer("BNLL", bottoms="z", tops="z", name="b")
        + layer("Eltwise", bottoms="x z"),
        {},
    ),
    "layers of training": (
        layer("ELU", "elu_param { alpha: .3 } include { phase: TEST }", name="r")
        + layer("SoftmaxWithLoss", "include { phase: TRAIN }", bottoms="a", tops="loss", name="l")
        + layer("Accuracy", "exclude { phase: TEST }", bottoms="a", tops="accuracy", name="m"),
        {},
    ),
    "flatten and softmax": (
        layer("Flatten", "flatten_param { axis: 2 }", tops="f")
        + layer("Softmax", "softmax_param { axis: -1 }", bottoms="f"),
        {},
    ),
    "reshape of some axes": (layer("Reshape", "reshape_param { shape { dim: 3 dim: -1 } axis: 2 num_axes: 2 }"), {}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_networks_of_others_give_the_numbers_of_opencv(tmp_path, name):
    text, weights = OTHERS[name]
    files = write_caffe(tmp_path, HEADER + text, **weights)
    x = R.normal(0, 1, (2, 4, 7, 6)).astype(np.float32)
    model = from_caffe(*files)
    onnx.checker.check_model(model, full_check=True)
    assert [value.name for value in model.graph.output] == ["a"]
    expected = _opencv(files, x)
    found = run(model, x)["a"]
    assert found.shape == expected.shape
    assert relative_error(found, expected) < 1e-5


def test_lrn_has_the_defaults_of_caffes_schema(tmp_path):
    """Not OpenCV's, whose alpha is another."""
    x = R.normal(0, 1, (2, 4, 7, 6)).astype(np.float32)
    full = "lrn_param { local_size: 5 alpha: 1 beta: 0.75 k: 1 norm_region: ACROSS_CHANNELS }"
    found, expected = (
        run(from_caffe(*write_caffe(tmp_path, HEADER + layer("LRN", parameters))), x)["a"] for parameters in ("", full)
    )
    np.testing.assert_array_equal(found, expected)


def test_phases_may_be_written_as_numbers(tmp_path):
    text, weights = OTHERS["layers of training"]
    numbers = text.replace("TRAIN", "0").replace("TEST", "1")
    by_name, by_number = (from_caffe(*write_caffe(tmp_path, HEADER + each, **weights)) for each in (text, numbers))
    assert by_number.graph == by_name.graph


def _opencv(files, x):
    """OpenCV's importer knows no ``include`` rules, so a copy goes without layers of training."""
    import cv2

    text = "\n".join(line for line in files[0].read_text().replace("}layer", "}\nlayer").splitlines() if "TRAIN" not in line
                     and "exclude" not in line)  # fmt: skip
    net = cv2.dnn.readNetFromCaffe(np.frombuffer(text.encode(), np.uint8), np.fromfile(files[1], np.uint8))
    net.setInput(x, "data")
    return net.forward()


def test_inner_products_may_be_transposed_and_scales_come_from_blobs(tmp_path):
    text = layer("InnerProduct", "inner_product_param { num_output: 4 transpose: true }", tops="g") + layer(
        "Scale", "scale_param { axis: 0 bias_term: true }", bottoms="data g"
    )
    matrix, bias, shift = w(168, 4), w(4), w(2, 4)
    x = R.normal(0, 1, (2, 4, 7, 6)).astype(np.float32)
    model = from_caffe(*write_caffe(tmp_path, HEADER + text, g=[matrix, bias], a=[shift]))
    factors = x.reshape(2, 168) @ matrix + bias
    expected = x * factors[:, :, None, None] + shift[:, :, None, None]
    np.testing.assert_allclose(run(model, x)["a"], expected, rtol=1e-4, atol=1e-5)


def test_the_old_header_gives_the_input(tmp_path):
    text = 'input: "data" input_dim: 1 input_dim: 2 input_dim: 3 input_dim: 4\nlayer{name:"a" type:"ReLU" bottom:"data" top:"a"}'
    model = from_caffe(*write_caffe(tmp_path, text))
    assert [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim] == [1, 2, 3, 4]
    assert model.graph.name == "net"


def test_a_blob_that_is_changed_in_place_is_read_as_it_was_at_that_point(tmp_path):
    text = HEADER + (
        layer("Power", "power_param { shift: 1 }", tops="x", name="p")
        + layer("Power", "power_param { scale: 3 }", bottoms="x", tops="early", name="s")
        + layer("Power", "power_param { scale: 2 }", bottoms="x", tops="x", name="q")
        + layer("Power", "power_param { shift: 5 }", bottoms="x", tops="x", name="r")
        + layer("ReLU", tops="data", name="d")
    )
    x = R.normal(0, 1, (2, 4, 7, 6)).astype(np.float32)
    model = from_caffe(*write_caffe(tmp_path, text))
    onnx.checker.check_model(model, full_check=True)
    assert [value.name for value in model.graph.output] == ["data.ReLU", "x", "early"]
    got = run(model, x)
    np.testing.assert_allclose(got["early"], 3 * (x + 1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got["x"], 2 * (x + 1) + 5, rtol=1e-6)
    np.testing.assert_array_equal(got["data.ReLU"], np.maximum(x, 0))


def test_outputs_can_be_chosen(tmp_path):
    text, weights = OTHERS["split, in place and dropout"]
    files = write_caffe(tmp_path, HEADER + text, **weights)
    model = from_caffe(*files, outputs=["z", "data", "z"])
    onnx.checker.check_model(model, full_check=True)
    assert [value.name for value in model.graph.output] == ["z", "data.output"]
    for wrong in (["nothing"], []):
        with pytest.raises(UsageError, match="there are data, x, y, z, a"):
            from_caffe(*files, outputs=wrong)


def test_a_silenced_piece_can_be_an_output(tmp_path):
    net = small(LAYERS["crop of rows"])
    files = to_caffe(net, tmp_path / "a")
    x = image(net)
    model = from_caffe(*files, outputs=["0_crop", "0_crop.after"])
    np.testing.assert_array_equal(run(model, x)["0_crop.after"], x[:, :, 7:])
    np.testing.assert_array_equal(run_opencv(*files, x, "0_crop"), x[:, :, 1:7])


def test_weights_that_no_layer_has_are_told_of(tmp_path, caplog):
    text, _ = OTHERS["eltwise max"]
    with caplog.at_level(logging.WARNING):
        from_caffe(*write_caffe(tmp_path, HEADER + text, loss=[[1.0]]))
    assert "weights of layers that the network has not: loss" in caplog.text


RELU = layer("ReLU", "%s")
WRONG = {
    "expected a number that float32": RELU % "relu_param { negative_slope: MAX }",
    "the field clip is not supported": RELU % "relu_param { clip: 6 }",
    "the field slope is not supported": RELU % "slope: 6",
    "neither caffe nor a registered plugin": layer("Permute"),
    "which no layer before it writes": layer("ReLU", bottoms="b"),
    "a layer before it has written": f"{RELU % ''} {RELU % ''}",
    "it writes a blob twice": layer("Slice", tops="a a"),
    "it reads 2 blobs, expected 1": layer("ReLU", bottoms="data data"),
    "it reads 0 blobs, expected one or more": layer("Concat", bottoms=""),
    "num_output=0 group=1": CONVOLUTION % "kernel_size: 1",
    "the .caffemodel has no blobs for it": CONVOLUTION % "num_output: 2 kernel_size: 1",
    "is as large as the window": POOLING % "kernel_size: 2 pad: 2",
    "each must be at least 1": POOLING % "kernel_size: 9 stride: 2",
    "its last window lies outside": POOLING % "kernel_size: 1 stride: 5",
    "its output would be": CONVOLUTION % "num_output: 2 kernel_size: 1 stride: 1 pad: 2147483647",
    "one does not divide the other": CONVOLUTION % "num_output: 2 kernel_size: 1 group: 3",
    r"kernel_size is \[0, 2\]": CONVOLUTION % "num_output: 2 kernel_size: 0 kernel_size: 2",
    r"stride is \[1, 0\]": CONVOLUTION % "num_output: 2 kernel_size: 1 stride: 1 stride: 0",
    "kernel_size is missing": CONVOLUTION % "num_output: 2",
    "not both": CONVOLUTION % "num_output: 2 kernel_size: 1 kernel_h: 2 kernel_w: 1",
    "num_output is there 2 times": CONVOLUTION % "num_output: 2 num_output: 2",
    "a whole number from 0": CONVOLUTION % "num_output: -2",
    "one of MAX, AVE": POOLING % "pool: MIN kernel_size: 2",
    "true or false": POOLING % 'global_pooling: "true"',
    "use_global_stats": layer("BatchNorm", "batch_norm_param { use_global_stats: false }"),
    "does not cut 4 values": layer("Slice", "slice_param { slice_point: 9 }", tops="a b"),
    "which do not fit": layer("Reshape", "reshape_param { shape { dim: 5 } }"),
    "axis 4 of 4 axes": layer("Softmax", "softmax_param { axis: 4 }"),
    "only axis: 1": layer("InnerProduct", "inner_product_param { num_output: 1 axis: 2 }"),
    "of one shape": layer("Flatten", tops="b") + layer("Eltwise", bottoms="data b"),
    "1 coeff of 2 blobs": layer("Eltwise", "eltwise_param { coeff: 2 }", bottoms="data data"),
    "2 coeff of 2 blobs": layer("Eltwise", "eltwise_param { operation: MAX coeff: 1 coeff: 2 }", bottoms="data data"),
    "different numbers of axes": layer("Flatten", tops="b") + layer("Concat", bottoms="data b"),
    "unknown parameters": layer("Reorg", "reorg_param { steps: 2 }"),
    "expected at least 1": layer("Reorg", "reorg_param { stride: 0 }"),
    "expected int": layer("Reorg", "reorg_param { stride: { a: 1 } }"),
    "height": layer("Reorg", "reorg_param { stride: 2 }"),
    "it writes 2 blobs": layer("ShuffleChannel", tops="a b"),
    "of caffe's old form": 'layers { name: "a" type: RELU bottom: "data" top: "a" }',
    "each of another name": layer("Input", "input_param { shape { dim: 1 } }", bottoms="", tops="data", name="a"),
    "1 tops of 1 shapes": layer("Input", "input_param { shape { dim: 1 } }", tops="b"),
    "it has no layers": "",
    "a text in quotes": "layer { name: a }",
    "fields in braces": "layer: 4",
    "the field stage is not supported": RELU % 'include { stage: "x" }',
}


@pytest.mark.parametrize("window", ["stride: 2", "pad: 1", "kernel_size: 1", "kernel_h: 1", "kernel_w: 1"])
def test_global_pooling_has_no_window(tmp_path, window):
    with pytest.raises(ModelError, match="global_pooling with a window"):
        from_caffe(*write_caffe(tmp_path, HEADER + POOLING % f"global_pooling: true {window}"))


@pytest.mark.parametrize("message", WRONG)
def test_what_is_not_converted_is_refused_with_its_line(tmp_path, message):
    files = write_caffe(tmp_path, HEADER + WRONG[message])
    with pytest.raises(ModelError, match="(?s)" + message.replace(".", r"\.")) as caught:
        from_caffe(*files)
    assert caught.value.path == str(files[0])
    assert 1 <= caught.value.line <= 2
    assert str(caught.value).startswith(f"{files[0]}:{caught.value.line}: ")


NEEDED = {
    "Convolution": "num_output: 2 kernel_size: 1",
    "Deconvolution": "num_output: 2 kernel_size: 1",
    "InnerProduct": "num_output: 2",
    "Pooling": "kernel_size: 1",
    "Reshape": "shape { dim: 0 dim: -1 }",
}
MESSAGES = {
    **{name: f"{name.lower()}_param" for name in CONVERTERS if name not in ("Silence", "Split")},
    "Deconvolution": "convolution_param",
    "InnerProduct": "inner_product_param",
    "BatchNorm": "batch_norm_param",
}


@pytest.mark.parametrize("kind", MESSAGES)
def test_no_parameter_of_a_layer_is_passed_over(tmp_path, kind):
    bottoms = "data data" if kind == "Eltwise" else "data"
    odd = f"{MESSAGES[kind]} {{ {NEEDED.get(kind, '')} odd: 1 }}"
    files = write_caffe(tmp_path, HEADER + layer(kind, odd, bottoms))
    with pytest.raises(ModelError, match="the field odd is not supported"):
        from_caffe(*files)


def test_an_unknown_type_says_what_to_do(tmp_path):
    files = write_caffe(tmp_path, HEADER + WRONG["neither caffe nor a registered plugin"])
    with pytest.raises(ModelError, match=r"layer 'a' \(Permute\).*Convolution.*\nDo: register a plugin") as caught:
        from_caffe(*files)
    assert caught.value.layer == "a"


def test_weights_of_another_shape_are_refused(tmp_path):
    text = CONVOLUTION % "num_output: 2 kernel_size: 1"
    for blobs in ([w(2, 4, 1, 2), w(2)], [w(2, 4, 1, 1)], [w(2, 4, 1, 1), w(2), w(2)], [w(4, 2, 1, 1), w(2)]):
        with pytest.raises(ModelError, match=r"layer 'a' \(Convolution\).*\(2, 4, 1, 1\)"):
            from_caffe(*write_caffe(tmp_path, HEADER + text, a=blobs))
    with pytest.raises(ModelError, match="layers of this type do not have"):
        from_caffe(*write_caffe(tmp_path, HEADER + RELU % "", a=[w(2)]))


def test_a_negative_variance_is_refused(tmp_path):
    for factor, variance in ((1, -1), (1e-40, 1e30), (-1, 1)):
        with pytest.raises(ModelError, match="variance"):
            from_caffe(*write_caffe(tmp_path, HEADER + layer("BatchNorm"), a=[w(4), [variance] * 4, [factor]]))


def test_a_factory_that_makes_no_plugin_is_refused(tmp_path):
    class Wrong:
        def is_plugin(self, layer_type):
            return True

        def create_plugin(self, layer_type, parameters):
            return "no plugin"

    with pytest.raises(ModelError, match="which is not a plugin"):
        from_caffe(*write_caffe(tmp_path, HEADER + RELU % ""), plugin_factory=Wrong())


def test_a_model_may_have_constants_up_to_a_mebibyte_below_two_gibibytes():
    graph = CaffeGraph("huge", {"c"})
    graph.bytes = 2**31 - 1 - 2**20 - 8  # as if they were there
    assert [graph.constant("a", np.float32([value])) for value in (1, 2)] == ["a", "a.2"]
    assert [graph.unique(name) for name in ("a", "c")] == ["a.3", "c.2"]
    with pytest.raises(ModelError, match="huge: the weights have 2 GiB and more"):
        graph.constant("b", np.uint8([1]))
