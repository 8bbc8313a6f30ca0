"""Defaults of caffe.proto and limits of caffe's layers, a row for each field: the last value that is taken, and the first that is not."""

import numpy as np
import pytest

from darknet2caffe.from_caffe import from_caffe
from darknet2caffe.prototxt import parse_prototxt
from pytrtplugins.errors import ModelError
from tests.darknet2caffe.caffe import write_caffe
from tests.darknet2caffe.networks import run
from tests.darknet2caffe.test_from_caffe_others import HEADER, layer, w

X = np.random.default_rng(0).normal(0, 1, (2, 4, 7, 6)).astype(np.float32)
NEEDED = {
    "Convolution": ("num_output: 4 kernel_size: 3", [w(4, 4, 3, 3), w(4)]),
    "Deconvolution": ("num_output: 4 kernel_size: 3", [w(4, 4, 3, 3), w(4)]),
    "InnerProduct": ("num_output: 3", [w(3, 168), w(3)]),
    "BatchNorm": ("", [w(4), abs(w(4)), [1]]),
    "Scale": ("", [w(4)]),
    "PReLU": ("", [w(4)]),
    "Pooling": ("kernel_size: 2", []),
    "Reshape": ("shape { dim: 0 dim: -1 }", []),
}
DEFAULTS = {  # of src/caffe/proto/caffe.proto
    "Convolution": ["bias_term: true", "pad: 0", "stride: 1", "dilation: 1", "group: 1", "axis: 1"],
    "Deconvolution": ["bias_term: true", "pad: 0", "stride: 1", "dilation: 1", "group: 1", "axis: 1"],
    "InnerProduct": ["bias_term: true", "axis: 1", "transpose: false"],
    "BatchNorm": ["use_global_stats: true", "eps: 1e-5"],
    "Scale": ["axis: 1", "num_axes: 1", "bias_term: false"],
    "PReLU": ["channel_shared: false"],
    "Pooling": ["pool: MAX", "global_pooling: false", "stride: 1", "pad: 0"],
    "Pooling stride: 2": ["round_mode: CEIL"],
    "Reshape": ["axis: 0", "num_axes: -1"],
    "LRN": ["local_size: 5", "alpha: 1", "beta: 0.75", "k: 1", "norm_region: ACROSS_CHANNELS"],
    "ReLU": ["negative_slope: 0"],
    "ELU": ["alpha: 1"],
    "Power": ["scale: 1", "shift: 0", "power: 1"],
    "Eltwise": ["operation: SUM"],
    "Concat": ["axis: 1", "concat_dim: 1"],
    "Slice": ["axis: 1", "slice_dim: 1"],
    "Flatten": ["axis: 1", "end_axis: -1"],
    "Softmax": ["axis: 1"],
}
PARAMETERS = {
    "Deconvolution": "convolution_param",
    "InnerProduct": "inner_product_param",
    "BatchNorm": "batch_norm_param",
}


def made(folder, kind, fields="", blobs=None):
    needed, arrays = NEEDED.get(kind, ("", []))
    parameters = f"{PARAMETERS.get(kind, kind.lower() + '_param')} {{ {needed} {fields} }}"
    bottoms, tops = {"Eltwise": "data data", "Concat": "data data"}.get(kind, "data"), "a b" if kind == "Slice" else "a"
    text = HEADER + layer(kind, parameters, bottoms, tops, "a")
    arrays = arrays if blobs is None else blobs
    return from_caffe(*write_caffe(folder, text, **({"a": arrays} if arrays else {})))


@pytest.mark.parametrize("kind", DEFAULTS)
def test_what_is_not_written_has_the_default_of_caffes_schema(tmp_path, kind):
    name, _, needed = kind.partition(" ")
    plain = made(tmp_path, name, needed)
    for field in DEFAULTS[kind]:
        assert made(tmp_path, name, f"{needed} {field}") == plain, field


WORDS = {
    ("Pooling", "pool"): "MAX, AVE, STOCHASTIC",
    ("Pooling", "round_mode"): "CEIL, FLOOR",
    ("LRN", "norm_region"): "ACROSS_CHANNELS, WITHIN_CHANNEL",
    ("Eltwise", "operation"): "PROD, SUM, MAX",
}


@pytest.mark.parametrize(("kind", "field"), WORDS)
def test_words_are_known_by_name_and_by_number_in_the_schemas_order(tmp_path, kind, field):
    words = WORDS[kind, field].split(", ")
    with pytest.raises(ModelError, match=f"{field}: expected one of {WORDS[kind, field]}, found 'ODD'"):
        made(tmp_path, kind, f"{field}: ODD")
    with pytest.raises(ModelError, match=f"{field}: expected one of"):
        made(tmp_path, kind, f"{field}: {len(words)}")
    results = []
    for number, word in enumerate(words):
        for value in (word, number):
            try:
                results.append(
                    made(tmp_path, kind, f"{field}: {value} {'stride: 2' * (kind == 'Pooling')}").SerializeToString()
                )
            except ModelError as error:
                results.append(str(error).partition(": layer")[2])
        assert results[-1] == results[-2], word
    assert len(set(results)) == len(words)


LIMITS = {  # layer → fields that are taken, and fields that are refused with a message
    "Convolution": (
        ["pad: 9", "dilation: 2", "axis: 1"],
        {
            "axis: 0": "axis is not 1",
            "group: 3": "one does not divide",
            "group: 0": "from 1 to",
            "dilation: 4": "at least 1",
            "stride: 0": "stride is [0]",
        },
    ),
    "Concat": (
        ["axis: 3", "axis: -4"],
        {"axis: 4": "axis 4 of 4 axes", "axis: -5": "axis -5 of 4 axes", "axis: 33": "from -32 to 32"},
    ),
    "Softmax": (["axis: 3", "axis: -4"], {"axis: 4": "axis 4 of 4 axes", "axis: -5": "axis -5 of 4 axes"}),
    "Flatten": (
        ["axis: 3", "axis: 2 end_axis: 2", "end_axis: 3", "axis: 0"],
        {"axis: 3 end_axis: 2": "axes 3 to 2 are none", "end_axis: 4": "axis 4 of 4"},
    ),
    "Slice": (
        ["slice_point: 1", "slice_point: 3", "axis: 3", "axis: 3 slice_point: 5", "axis: 0"],
        {
            "slice_point: 0": "does not cut 4",
            "slice_point: 4": "does not cut 4",
            "slice_point: 1 slice_point: 2": "into 2 pieces",
            "axis: 2": "[] does not cut 7",
        },
    ),
    "LRN": (
        ["local_size: 1", "local_size: 7"],
        {"local_size: 4": "is even", "local_size: 0": "from 1 to", "norm_region: WITHIN_CHANNEL": "only norm_region"},
    ),
    "Pooling": (
        [
            "pad: 1",
            "pad: 0 stride: 2",
            "pool: AVE pad: 0",
            "round_mode: FLOOR stride: 2",
            "pool: AVE stride: 2 round_mode: FLOOR pad: 1",
        ],
        {"pad: 2": "as large as the window", "pool: STOCHASTIC": "belongs to training"},
    ),
    "BatchNorm": (["eps: 0"], {"eps: -1e-9": "variance", "use_global_stats: false": "is training"}),
    "InnerProduct": (["axis: -3"], {"axis: 0": "only axis: 1", "axis: 2": "only axis: 1"}),
    "Eltwise": (
        ["coeff: 1 coeff: 1", "operation: MAX", "coeff: 2 coeff: -1"],
        {
            "coeff: 1": "1 coeff of 2",
            "coeff: 1 coeff: 1 coeff: 1": "3 coeff of 2",
            "operation: PROD coeff: 1 coeff: 1": "they belong to operation: SUM",
        },
    ),
}


@pytest.mark.parametrize("kind", LIMITS)
def test_fields_are_taken_up_to_their_limits(tmp_path, kind):
    taken, refused = LIMITS[kind]
    for fields in taken:
        made(tmp_path, kind, fields)
    for fields, text in refused.items():
        with pytest.raises(ModelError) as caught:
            made(tmp_path, kind, fields)
        assert text in str(caught.value), fields


RESHAPES = {  # shape, axis, num_axes → dims, by caffe's documentation of Reshape
    "dim: 0 dim: 0 dim: 42": (2, 4, 42),
    "dim: 2 dim: -1 dim: 3": (2, 56, 3),
    "dim: 336": (336,),
    "dim: 0 dim: 0 dim: 0 dim: 0 dim: 1": (2, 4, 7, 6, 1),
    "dim: 0 dim: 0 dim: 0 dim: 0 dim: 0": None,
    "dim: 28 } axis: 1 num_axes: 2 shape {": (2, 28, 6),
    "dim: 1 } axis: -1 num_axes: 0 shape {": (2, 4, 7, 6, 1),
    "dim: 1 } axis: 0 num_axes: 0 shape {": (1, 2, 4, 7, 6),
    "dim: 2 dim: 3 } axis: 3 shape {": (2, 4, 7, 2, 3),
    "dim: 3 } axis: 3 num_axes: 2 shape {": None,
    "dim: -1 dim: -1": None,
    "dim: 5 dim: -1": None,
    "dim: 1 } axis: 5 shape {": None,
    "dim: 1 } axis: -5 num_axes: 0 shape {": (1, 2, 4, 7, 6),
    "dim: 1 } axis: -6 num_axes: 0 shape {": None,
    "dim: 0 dim: 1 dim: 0 } axis: 2 shape {": None,
    "dim: -2": None,
    "dim: 337": None,
}


@pytest.mark.parametrize("shape", RESHAPES)
def test_reshapes_replace_the_dims_that_caffe_replaces(tmp_path, shape):
    text = HEADER + layer("Reshape", f"reshape_param {{ shape {{ {shape} }} }}".replace("shape { }", ""))
    if RESHAPES[shape] is None:
        with pytest.raises(ModelError):
            from_caffe(*write_caffe(tmp_path, text))
    else:
        model = from_caffe(*write_caffe(tmp_path, text))
        np.testing.assert_array_equal(run(model, X)["a"], X.reshape(RESHAPES[shape]))
        assert tuple(dim.dim_value for dim in model.graph.output[0].type.tensor_type.shape.dim) == RESHAPES[shape]


@pytest.mark.parametrize(
    ("fields", "axis", "shape"),
    [("", 1, (4,)), ("axis: 0", 0, (2,)), ("axis: 2", 2, (7,)), ("axis: -1", 3, (6,)), ("num_axes: 2", 1, (4, 7)),
     ("num_axes: -1", 1, (4, 7, 6)), ("axis: 2 num_axes: 2", 2, (7, 6))],
)  # fmt: skip
@pytest.mark.parametrize("bias", [False, True])
def test_scales_lie_along_their_axes(tmp_path, fields, axis, shape, bias):
    arrays = [w(*shape) for _ in range(1 + bias)]
    model = made(tmp_path, "Scale", f"{fields} bias_term: {str(bias).lower()}", arrays)
    factors, *shifts = (array.reshape(*shape, *[1] * (4 - axis - len(shape))) for array in arrays)
    np.testing.assert_allclose(run(model, X)["a"], X * factors + (shifts[0] if bias else 0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("fields", "is_taken"),
    [
        ("", True),
        ("axis: 1 num_axes: 1", True),
        ("axis: 0", False),
        ("axis: 2", False),
        ("num_axes: 2", False),
        ("num_axes: 0", False),
    ],
)
@pytest.mark.parametrize("bias", [False, True])
def test_a_scale_after_a_batch_norm_lies_along_the_channels_alone(tmp_path, fields, is_taken, bias):
    text = layer("BatchNorm", tops="n") + layer(
        "Scale", f"scale_param {{ {fields} bias_term: {str(bias).lower()} }}", "n", "n", "s"
    )
    mean, variance, *arrays = (abs(w(4)) for _ in range(3 + bias))
    files = write_caffe(tmp_path, HEADER + text, n=[mean, variance, [1]], s=arrays)
    if not is_taken:
        with pytest.raises(ModelError, match="only a scale for each channel is converted"):
            from_caffe(*files)
        return
    model = from_caffe(*files)
    assert [node.op_type for node in model.graph.node] == ["BatchNormalization"]
    mean, deviation, factors, shifts = (
        a.reshape(-1, 1, 1) for a in (mean, np.sqrt(variance + 1e-5), *arrays, np.zeros(4))[:4]
    )
    np.testing.assert_allclose(run(model, X)["n"], (X - mean) / deviation * factors + shifts, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shared", [False, True])
def test_slopes_are_shared_or_lie_along_the_channels(tmp_path, shared):
    slopes = w(1 if shared else 4)
    model = made(tmp_path, "PReLU", f"channel_shared: {str(shared).lower()}", [slopes])
    np.testing.assert_allclose(run(model, X)["a"], np.where(X > 0, X, X * slopes.reshape(-1, 1, 1)), rtol=1e-6)


@pytest.mark.parametrize(
    ("rules", "runs"),
    [("", True), ("include { phase: TEST }", True), ("include { phase: TRAIN }", False), ("exclude { phase: TEST }", False),
     ("exclude { phase: TRAIN }", True), ("include { phase: TRAIN } include { phase: TEST }", True), ("include { }", True),
     ("exclude { phase: TRAIN } exclude { phase: TEST }", False), ("include { phase: 0 }", False), ("include { phase: 1 }", True)],
)  # fmt: skip
def test_layers_run_in_their_phases(tmp_path, rules, runs):
    model = from_caffe(
        *write_caffe(tmp_path, HEADER + layer("TanH", tops="b") + layer("ReLU", rules, bottoms="b", tops="c"))
    )
    assert [node.op_type for node in model.graph.node] == (["Tanh", "Relu"] if runs else ["Tanh"])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2147483647", 2**31 - 1),
        ("0", 0),
        ("2147483648", None),
        ("-1", None),
        ("1.0", None),
        ("true", None),
        ('"1"', None),
    ],
)
def test_whole_numbers_have_31_bits_and_no_sign(text, value):
    message = parse_prototxt(f"a: {text}")
    for read in (lambda: message.integer("a", 7), lambda: message.integers("a")[0]):
        if value is None:
            with pytest.raises(ModelError, match="a: expected a whole number from 0 to 2,147,483,647, found"):
                read()
        else:
            assert read() == value


@pytest.mark.parametrize(
    ("text", "good"),
    [("3.4028234e38", True), ("-3.4028234e38", True), ("3.41e38", False), ("inf", False), ("nan", False)],
)
def test_numbers_are_those_of_float32(text, good):
    message = parse_prototxt(f"a: {text}")
    if good:
        assert message.numbers("a") == [message.number("a", 0)] == [float(text)]
    else:
        with pytest.raises(ModelError, match="a number that float32 can hold"):
            message.number("a", 0)


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("false", False), ("1", True), ("0", False), ("2", None), ("1.0", None), ('"true"', None)],
)
def test_flags_are_words_or_digits(text, value):
    message = parse_prototxt(f"a: {text}")
    for default in (True, False):
        if value is None:
            with pytest.raises(ModelError, match="a: expected true or false"):
                message.flag("a", default)
        else:
            assert message.flag("a", default) is value


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ('input: "data"', "1 input of 0 input_shape and 0 input_dim"),
        ('input: "data" input: "more" input_shape { dim: 1 }', "2 input of 1 input_shape and 0 input_dim"),
        ('input: "data" input_shape { dim: 1 } input_dim: 1', "1 input of 1 input_shape and 1 input_dim"),
        ('input: "data" input: "data" input_shape { dim: 1 } input_shape { dim: 1 }', "each of another name"),
        ('input: "data" input_shape { dim: 0 }', "from 1 to 2,147,483,647"),
        ('input: "data" input_shape { }', "an input of 0 axes"),
        ('input: "data" input_shape { dim: [' + "1, " * 32 + "1] }", "an input of 33 axes"),
    ],
)
def test_each_input_has_a_shape_of_1_to_32_axes(tmp_path, inputs, text):
    with pytest.raises(ModelError) as caught:
        from_caffe(*write_caffe(tmp_path, inputs + "\n" + layer("ReLU")))
    assert text in str(caught.value)


def test_the_old_form_has_four_dims_for_each_input(tmp_path):
    text = (
        'input: "data" input: "more" input_dim: [1, 2, 3, 4, 5, 6, 7, 8]\n'
        + layer("ReLU")
        + layer("TanH", bottoms="more", tops="b")
    )
    model = from_caffe(*write_caffe(tmp_path, text))
    dims = [[dim.dim_value for dim in info.type.tensor_type.shape.dim] for info in model.graph.input]
    assert dims == [[1, 2, 3, 4], [5, 6, 7, 8]]
    axes = from_caffe(*write_caffe(tmp_path, f'input: "data" input_shape {{ dim: [{"1, " * 31}1] }}' + layer("ReLU")))
    assert len(axes.graph.input[0].type.tensor_type.shape.dim) == 32
