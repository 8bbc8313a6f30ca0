"""Attention as one node: as exporters write it, what is not matched, and the numbers of onnxruntime."""

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from onnx import TensorProto, helper

from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.engines.cuda.plan.attention import place_attention
from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import assert_close, run_on_host
from tests.engines.model_parts import model as model_of
from tests.passes.nets import Net

B, S, H, D = 2, 9, 3, 8
TYPES = pytest.mark.parametrize("float_type", [DType.FLOAT32, DType.FLOAT16])
ROOM = {DType.FLOAT32: 2e-6, DType.FLOAT16: 3e-3}


class Graph(Net):
    """Nodes with names that follow from their number."""

    def __init__(self, *dims, opset=18, batch="N"):
        super().__init__(opset=opset)
        self.input = [batch, *dims] if batch else list(dims)

    def op(self, kind, *inputs, **attributes):
        return self.add(kind, [*inputs], f"t{len(self.nodes)}", 1, **attributes)

    def ints(self, *values):
        return self.constant(f"c{len(self.constants)}", np.array(values, np.int64))

    def number(self, value, *dims):
        return self.constant(f"c{len(self.constants)}", np.full(dims, value, np.float32))

    def floats(self, *dims, spread=1.0):
        values = self.random.standard_normal(dims) * spread
        return self.constant(f"c{len(self.constants)}", values.astype(np.float32))

    def transposed(self, x, *perm):
        return self.op("Transpose", x, perm=perm)

    def reshaped(self, x, *dims):
        return self.op("Reshape", x, self.ints(*dims))

    def heads(self, x, *perm):
        """(B, S, H D) → (B, H, S, D), or in the order given."""
        return self.transposed(self.reshaped(x, 0, 0, H, D), *(perm or (0, 2, 1, 3)))

    def split(self, x):
        """Three parts of the last axis."""
        sizes, names = self.ints(*[H * D] * 3), [f"part{index}" for index in range(3)]
        self.nodes.append(helper.make_node("Split", [x, sizes], names, name="split", axis=2))
        return names

    def joined(self, x):
        return self.reshaped(self.transposed(x, 0, 2, 1, 3), 0, 0, H * D)


def fused_qkv(net):
    """One product gives q, k and v; a Gather takes each: torchvision's Swin, timm."""
    whole = net.transposed(net.reshaped("data", 0, 0, 3, H, D), 2, 0, 3, 1, 4)
    q, k, v = (net.op("Gather", whole, net.constant(f"i{index}", np.array(index)), axis=0) for index in range(3))
    scores = net.op("MatMul", net.op("Mul", q, net.number(0.3)), net.transposed(k, 0, 1, 3, 2))
    return net.joined(net.op("MatMul", net.op("Softmax", scores, axis=-1), v))


def scaled_on_both(net):
    """scaled_dot_product_attention of torch.onnx's older exporter, with a mask that may leave nothing: BERT."""
    q, k, v = net.split("data")
    q, k = net.op("Mul", net.heads(q), net.number(0.6)), net.op("Mul", net.heads(k, 0, 2, 3, 1), net.number(0.6))
    mask = np.ones((1, 1, S, S), bool)
    mask[..., 6:], mask[..., 2, :] = False, False
    bias = net.op("Where", net.constant("mask", mask), net.number(0.0), net.number(-np.inf))
    weights = net.op("Softmax", net.op("Add", net.op("MatMul", q, k), bias), axis=-1)
    weights = net.op("Where", net.op("IsNaN", weights), net.number(0.0), weights)
    return net.joined(net.op("MatMul", weights, net.heads(v)))


def dynamo(net):
    """The same of its newer exporter: k is transposed as three axes."""
    q, k, v = (net.heads(part) for part in net.split("data"))
    k = net.reshaped(net.transposed(net.reshaped(k, B * H, S, D), 0, 2, 1), B, H, D, S)
    q, k = (net.op("Mul", x, net.number(0.6, 1)) for x in (q, k))
    scores = net.op("Add", net.op("MatMul", q, k), net.floats(1, 1, S, S))
    return net.joined(net.op("MatMul", net.op("Softmax", scores, axis=-1), v))


def divided_behind(net):
    """Scores that are divided, and masked by a large negative number; Dropout: GPT-2, eager attention of transformers."""
    q, k, v = net.split("data")
    scores = net.op("Div", net.op("MatMul", net.heads(q), net.heads(k, 0, 2, 3, 1)), net.number(2.5))
    causal = net.constant("causal", np.tri(S, dtype=bool)[None, None])
    scores = net.op("Where", causal, scores, net.number(np.finfo(np.float32).min))
    weights = net.op("Dropout", net.op("Softmax", scores, axis=3), net.number(0.1))
    return net.joined(net.op("MatMul", weights, net.heads(v)))


def masked_elsewhere(net):
    """A mask that says where nothing is, its number first."""
    q, k, v = net.split("data")
    scores = net.op("MatMul", net.op("Mul", net.heads(q), net.number(0.3)), net.heads(k, 0, 2, 3, 1))
    scores = net.op("Where", net.constant("later", ~np.tri(S, dtype=bool)), net.number(-np.inf), scores)
    return net.joined(net.op("MatMul", net.op("Softmax", scores, axis=-1), net.heads(v)))


def scaled_before_moving(net):
    """q is scaled, then parted into heads, three axes in all: Whisper, OPT, older transformers."""
    q, k, v = net.split("data")
    q, k, v = (net.reshaped(net.heads(x), -1, S, D) for x in (net.op("Mul", net.number(0.3), q), k, v))
    weights = net.op("Softmax", net.op("MatMul", q, net.transposed(k, 0, 2, 1)), axis=-1)
    return net.joined(net.reshaped(net.op("MatMul", weights, v), -1, H, S, D))


def computed_bias(net):
    """What is added comes from the run, as relative positions do, and a constant is added to that."""
    q, k, v = (net.heads(part) for part in net.split("data"))
    positions = net.op("MatMul", net.op("ReduceMean", q, net.ints(1), keepdims=1), net.floats(D, S))
    scores = net.op("Add", net.op("MatMul", q, net.transposed(k, 0, 1, 3, 2)), positions)
    scores = net.op("Add", net.floats(H, 1, S), scores)
    return net.joined(net.op("MatMul", net.op("Softmax", scores, axis=-1), v))


WRITERS = [fused_qkv, scaled_on_both, dynamo, divided_behind, masked_elsewhere, scaled_before_moving, computed_bias]


def checked(net, output, dims, float_type, steps=1, seed=1):
    """The attention's step in a network whose numbers are onnxruntime's."""
    model = net.model(output)
    inputs = {"data": np.random.default_rng(seed).standard_normal(dims, dtype=np.float32)}
    assert "Softmax" not in [node.op_type for node in lower(prepare(model)).graph]
    found, execution = run_on_host(prepare(model), inputs, float_type)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (wanted,) = session.run(None, inputs)
    np.testing.assert_allclose(found[output], wanted, rtol=ROOM[float_type], atol=ROOM[float_type])
    kinds = [step.kind for step in execution.plan.steps if step.kind != "reformat"]
    assert steps is None or len(kinds) == steps, execution.plan.steps
    (step,) = (step for step in execution.plan.steps if step.kind == "attention")
    return step


@TYPES
@pytest.mark.parametrize("write", WRITERS)
def test_as_exporters_write_it_it_is_one_step(write, float_type):
    net = Graph(S, 3 * H * D)
    others = 3 if write is computed_bias else 0
    batch = 1 if write is scaled_before_moving else B  # heads that are joined with a batch have no one stride
    checked(net, write(net), (batch, S, 3 * H * D), float_type, 1 + others)


MASKS = {
    "nothing": (np.ones((S, S), bool), 3, "nan"),
    "some keys of each row": (np.tri(S, dtype=bool), 4, "nan"),
    "a whole row": (np.arange(S)[:, None] != 2, 4, "zero"),
}


@TYPES
@pytest.mark.parametrize(("shown", "inputs", "empty"), MASKS.values(), ids=MASKS)
def test_a_mask_that_is_known_with_the_batch_costs_what_it_hides(shown, inputs, empty, float_type):
    """transformers 5: a mask for each of the batch, and zeros where it hides a whole row."""
    net = Graph(S, 3 * H * D)
    q, k, v = (net.heads(part) for part in net.split("data"))
    batch = net.op("Slice", net.op("Shape", "data"), net.ints(0), net.ints(1))
    mask = net.constant("mask", np.broadcast_to(shown, (1, 1, S, S)))
    mask = net.op("Expand", mask, net.op("Concat", batch, net.ints(1, S, S), axis=0))
    bias = net.op("Where", mask, net.number(0.0), net.number(-np.inf))
    scores = net.op("MatMul", net.op("Mul", q, net.number(0.3)), net.transposed(k, 0, 1, 3, 2))
    weights = net.op("Softmax", net.op("Add", scores, bias), axis=-1)
    weights = net.op("Where", net.op("IsNaN", weights), net.number(0.0), weights)
    step = checked(net, net.joined(net.op("MatMul", weights, v)), (B, S, 3 * H * D), float_type)
    assert len(step.inputs) == inputs
    assert step.attributes["empty"] == empty


@TYPES
def test_heads_that_are_joined_with_the_batch_are_parted_again(float_type):
    """torch.nn.MultiheadAttention, the sequence first: torchvision's ViT."""
    net = Graph(S, B, 3 * H * D, batch=None)
    whole = net.op("Unsqueeze", net.reshaped("data", S, B, 3, H * D), net.ints(0))
    whole = net.op("Squeeze", net.transposed(whole, 3, 1, 2, 0, 4), net.ints(3))
    parts = [net.op("Gather", whole, net.constant(f"i{index}", np.array(index)), axis=0) for index in range(3)]
    parts = [net.transposed(net.reshaped(part, S, B * H, D), 1, 0, 2) for part in parts]
    q, k, v = (net.reshaped(part, B, H, S, D) for part in parts)
    q, k = (net.op("Mul", x, net.number(0.5)) for x in (q, net.transposed(k, 0, 1, 3, 2)))
    scores = net.op("MatMul", q, k)
    y = net.transposed(net.op("MatMul", net.op("Softmax", scores, axis=-1), v), 2, 0, 1, 3)
    step = checked(net, net.reshaped(y, S * B, H * D), (S, B, 3 * H * D), float_type)
    assert step.attributes["scale"] == pytest.approx(0.25)
    row = B * 3 * H * D
    for index, name in enumerate("qkv"):
        assert step.attributes[name] == [index * H * D, 3 * H * D, D, row, 1]
    assert step.attributes["y"] == [0, H * D, D, B * H * D, 1]


@TYPES
def test_windows_with_a_mask_of_their_own_repeat_for_each_image(float_type):
    """Swin: a bias by head, and a mask by window, added to five axes."""
    windows = 4
    net = Graph(S, 3 * H * D, batch=B * windows)
    whole = net.transposed(net.reshaped("data", 0, S, 3, H, D), 2, 0, 3, 1, 4)
    q, k, v = (net.op("Gather", whole, net.constant(f"i{index}", np.array(index)), axis=0) for index in range(3))
    scores = net.op("MatMul", net.op("Mul", q, net.number(0.3)), net.transposed(k, 0, 1, 3, 2))
    scores = net.reshaped(net.op("Add", scores, net.floats(1, H, S, S)), B, windows, H, S, S)
    mask = np.where(net.random.random((1, windows, 1, S, S)) < 0.3, np.float32(-100), np.float32(0))
    scores = net.reshaped(net.op("Add", scores, net.constant("mask", mask)), -1, H, S, S)
    y = net.joined(net.op("MatMul", net.op("Softmax", scores, axis=-1), v))
    step = checked(net, y, (B * windows, S, 3 * H * D), float_type)
    assert step.attributes["period"] == windows


@TYPES
@pytest.mark.parametrize("rows", [S, 1])
def test_rows_of_a_constant_mask_begin_at_16_bytes(rows, float_type):
    net = Graph(S, 3 * H * D)
    whole = net.transposed(net.reshaped("data", 0, S, 3, H, D), 2, 0, 3, 1, 4)
    q, k, v = (net.op("Gather", whole, net.constant(f"i{index}", np.array(index)), axis=0) for index in range(3))
    scores = net.op("MatMul", net.op("Mul", q, net.number(0.3)), net.transposed(k, 0, 1, 3, 2))
    y = net.joined(net.op("MatMul", net.op("Softmax", net.op("Add", scores, net.floats(1, H, rows, S)), axis=-1), v))
    step = checked(net, y, (B, S, 3 * H * D), float_type)
    pitch = -(-S // 8) * 8
    assert pitch > S
    assert step.attributes["bias"] == [0, 0, rows * pitch, pitch if rows > 1 else 0, 1]


@pytest.mark.parametrize("dims", [(2, 0, 0, 0), (1, 2, 0, 0)], ids=["two axes", "three axes"])
def test_a_single_head_needs_no_axis(dims):
    rank = dims[0] + (dims[1] > 0)
    net = Graph(*([4] if rank == 3 else []), S, D, batch=None)
    swap = (0, 2, 1) if rank == 3 else (1, 0)
    scores = net.op("MatMul", net.op("Mul", "data", net.number(0.4)), net.transposed("data", *swap))
    y = net.op("MatMul", net.op("Softmax", scores, axis=-1), net.op("Neg", "data"))
    checked(net, y, net.input, DType.FLOAT32, 2)


@TYPES
def test_queries_may_be_constants(float_type):
    net = Graph(S, 3 * H * D)
    q, (_, k, v) = net.floats(1, H, 4, D), net.split("data")
    scores = net.op("MatMul", net.op("Mul", q, net.number(0.3)), net.heads(k, 0, 2, 3, 1))
    y = net.op("MatMul", net.op("Softmax", scores, axis=-1), net.heads(v))
    checked(net, net.transposed(y, 0, 2, 1, 3), (B, S, 3 * H * D), float_type, 2)  # a copy of the constant


@pytest.mark.parametrize("attributes", [{}, {"scale": 0.2}, {"is_causal": 1}], ids=["plain", "scale", "causal"])
@pytest.mark.parametrize("rank", [3, 4])
def test_the_operator_that_onnx_has_is_one_step(rank, attributes):
    net = Graph(S, 3 * H * D, opset=23, batch=B)
    q, k, v = net.split("data")
    if rank == 4:
        q, k, v = (net.heads(x) for x in (q, k, v))
    else:
        attributes = {**attributes, "q_num_heads": H, "kv_num_heads": H}
    y = net.op("Attention", q, k, v, **attributes)
    step = checked(net, net.joined(y) if rank == 4 else y, (B, S, 3 * H * D), DType.FLOAT32)
    assert step.inputs[0] == step.inputs[1] == step.inputs[2]


@pytest.mark.parametrize("is_bool", [False, True])
@pytest.mark.parametrize("computed", [False, True])
def test_its_mask_is_added(computed, is_bool):
    net = Graph(S, 3 * H * D, opset=23, batch=B)
    q, k, v = net.split("data")
    if computed:
        mask = net.reshaped(net.op("Slice", "data", net.ints(0), net.ints(S), net.ints(2)), B, 1, S, S)
        mask = net.op("Greater", mask, net.number(0.0)) if is_bool else mask
    else:
        mask = net.constant("mask", np.tri(S, dtype=bool)) if is_bool else net.floats(S, S)
    y = net.op("Attention", q, k, v, mask, q_num_heads=H, kv_num_heads=H)
    checked(net, y, (B, S, 3 * H * D), DType.FLOAT32, None if computed else 1)


def test_a_model_in_float16_may_compute_the_softmax_in_float32():
    half = TensorProto.FLOAT16
    *inputs, y = (helper.make_tensor_value_info(name, half, [B, H, S, D]) for name in "qkvy")
    nodes = [
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "kt"], ["scores"]),
        helper.make_node("Cast", ["scores"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Softmax", ["wide"], ["weights"], axis=-1),
        helper.make_node("Cast", ["weights"], ["narrow"], to=half),
        helper.make_node("MatMul", ["narrow", "v"], ["y"]),
    ]
    model = model_of(nodes, inputs, [y], opset=18, ir=9)
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal((B, H, S, D)).astype(np.float16) for name in "qkv"}
    found, execution = run_on_host(prepare(model), feeds, DType.FLOAT16)
    assert [step.kind for step in execution.plan.steps] == ["attention"]
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    np.testing.assert_allclose(found["y"].astype(np.float32), wanted.astype(np.float32), atol=4e-3)


@TYPES
@pytest.mark.parametrize("write", ["added", "expanded"])
def test_one_key_for_many_values_is_repeated_for_each(write, float_type):
    """The scores have one column, which what is added repeats, or the key is written out: as many as there are values."""
    net = Graph(S, 3 * H * D)
    q, k, v = (net.heads(part) for part in net.split("data"))
    k = net.op("Slice", k, net.ints(0), net.ints(1), net.ints(2))
    if write == "expanded":
        k = net.op("Expand", k, net.ints(1, 1, S, 1))
    scores = net.op("Add", net.op("MatMul", q, net.transposed(k, 0, 1, 3, 2)), net.floats(1, 1, S, S))
    y = net.joined(net.op("MatMul", net.op("Softmax", scores, axis=-1), v))
    step = checked(net, y, (B, S, 3 * H * D), float_type, None)
    assert step.attributes["k"][3] == 0


# -- what does not match ----------------------------------------------------------------------------------------------


def plain(net, **changes):
    """Attention with one thing that is otherwise."""
    q, k, v = (net.heads(part) for part in net.split("data"))
    scores = net.op("MatMul", q, net.transposed(k, 0, 1, 3, 2))
    for kind, other in changes.get("behind", ()):
        scores = net.op(kind, scores, other(net))
    if changes.get("read"):
        net.op("Relu", scores)
    if changes.get("where"):
        scores = net.op("Where", net.constant("kept", np.tri(S, dtype=bool)), scores, net.number(changes["where"]))
    if changes.get("between"):
        scores = net.op(changes["between"], scores)
    weights = net.op("Softmax", scores, axis=changes.get("axis", -1))
    extra = [net.op("Identity", weights)] if changes.get("weights") else []
    return [net.joined(net.op("MatMul", weights, v)), *extra]


@pytest.mark.parametrize(
    "changes",
    [
        {"axis": 2},  # case 1
        {"weights": True},  # case 2
        {"between": "Tanh"},  # case 6
        {"behind": [("Add", lambda net: net.floats(S)), ("Mul", lambda net: net.number(2.0))]},  # case 6
        {"behind": [("Mul", lambda net: net.floats(S))]},  # case 6: no number
        {"where": -10000.0},  # case 7
    ],
    ids=["axis", "weights read", "between", "scale behind", "no number", "small fill"],
)
def test_what_is_something_else_stays(changes):
    net = Graph(S, 3 * H * D)
    kinds = [node.op_type for node in lower(prepare(net.model(*plain(net, **changes)))).graph]
    assert "Softmax" in kinds
    assert "Attention" not in kinds


def stays(net, *outputs):
    return "Softmax" in [node.op_type for node in lower(prepare(net.model(*outputs))).graph]


def test_a_head_of_more_than_256_values_stays():
    net = Graph(S, 300, batch=B)
    scores = net.op("MatMul", "data", net.transposed("data", 0, 2, 1))
    assert stays(net, net.op("MatMul", net.op("Softmax", scores, axis=-1), "data"))  # case 5


def test_dropout_as_in_training_stays():
    net = Graph(S, 3 * H * D)
    q, k, v = (net.heads(part) for part in net.split("data"))
    weights = net.op("Softmax", net.op("MatMul", q, net.transposed(k, 0, 1, 3, 2)), axis=-1)
    dropped = net.op("Dropout", weights, net.number(0.5), net.constant("training", np.array(True)))
    assert stays(net, net.joined(net.op("MatMul", dropped, v)))  # case 8


@pytest.mark.parametrize(("hidden", "expected"), [(0, False), (1, True)])
def test_weights_that_are_set_to_zero_stay(hidden, expected):
    net = Graph(S, 3 * H * D)
    q, k, v = (net.heads(part) for part in net.split("data"))
    weights = net.op("Softmax", net.op("MatMul", q, net.transposed(k, 0, 1, 3, 2)), axis=-1)
    condition = net.constant("condition", np.arange(S) < hidden)
    weights = net.op("Where", condition, net.number(0.0), weights)
    assert stays(net, net.joined(net.op("MatMul", weights, v))) is expected  # case 6


@pytest.mark.parametrize(("dims", "expected"), [((1, 2, 1, S, S), False), ((1, 2, 1, 1, S, S), True)])
def test_a_mask_of_windows_has_five_axes(dims, expected):
    net = Graph(S, 3 * H * D, batch=4)
    q, k, _ = (net.heads(part) for part in net.split("data"))
    scores = net.reshaped(net.op("MatMul", q, net.transposed(k, 0, 1, 3, 2)), 2, 2, H, S, S)
    scores = net.reshaped(net.op("Add", scores, net.floats(*dims)), -1, H, S, S)
    assert stays(net, net.op("MatMul", net.op("Softmax", scores, axis=-1), net.floats(1, 1, S, D))) is expected


def test_scores_that_something_else_reads_stay():
    net = Graph(S, 3 * H * D)
    outputs = plain(net, read=True)
    assert stays(net, *outputs, next(node.output[0] for node in net.nodes if node.op_type == "Relu"))  # case 2


def test_it_can_be_left_out():
    net = Graph(S, 3 * H * D)
    model = prepare(net.model(fused_qkv(net)))
    inputs = {"data": np.random.default_rng(0).standard_normal((B, S, 3 * H * D), dtype=np.float32)}
    with_step, _ = run_on_host(model, inputs)
    without, execution = run_on_host(model, inputs, disable={"attention"})
    assert [step.op for step in execution.plan.steps].count("Rows") == 1
    assert_close(with_step, without, 2e-6)


def test_the_model_is_valid_onnx_before_it_is_lowered():
    for write in WRITERS:
        net = Graph(S, 3 * H * D)
        onnx.checker.check_model(net.model(write(net)), full_check=True)


def test_dims_that_the_run_does_not_tell_leave_the_attention_as_it_is():
    """Names of the file's own that inference has not replaced: the plan says which tensor has them."""
    net = Graph(S, 3 * H * D)
    lowered = lower(prepare(net.model(fused_qkv(net))))
    (attention,) = (node for node in lowered.graph if node.op_type == "Attention")
    for value in (*attention.inputs[:3], attention.outputs[0]):
        value.shape = onnx_ir.Shape(["unk__1", *list(value.shape or ())[1:]])
    place_attention(lowered, {"N": B})
    assert "dims" not in attention.attributes
