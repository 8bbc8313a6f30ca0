"""MergePads: borders of minus infinity around pools."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import pytrtplugins as ptp
from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.passes import MergePads, prepare, to_ir, to_proto
from tests.passes.nets import Net, image, passed, run

LOW = np.float32(-np.inf)


def pool_net(border=(0, 0, 0, 1, 0, 0, 1, 1), value=LOW, axes=None, opset=18, mode="constant", outputs=1, **pool):
    """A border around an image, and a pool; both images are signed."""
    net = Net(opset=opset)
    x = net.add("Sub", ["data", net.constant("half", np.float32(0.5))], "x")
    operands = [net.constant("pads", np.int64(border))] + ([] if value is None else [net.constant("value", value)])
    if axes is not None:
        operands.append(net.constant("axes", np.int64(axes)))
    padded = net.add("Pad", [x, *operands], "padded", mode=mode)
    y = net.add("MaxPool", [padded], "y", **{"kernel_shape": [3, 3], "strides": [2, 2], **pool})
    model = net.model(net.add("Neg", [y], "last"))
    if outputs > 1:
        node = next(node for node in model.graph.node if node.op_type == "MaxPool")
        node.output.append("places")
        model.graph.output.append(helper.make_tensor_value_info("places", onnx.TensorProto.INT64, None))
    return model


MERGED = [
    pool_net(),
    pool_net(opset=13),
    pool_net((1, 0, 1, 2), axes=[3, 2]),
    pool_net((1, 0, 1, 2), axes=[-2, -1]),
    pool_net((0, 0, 1, 0, 0, 0, 1, 2), axes=[-4, -3, -2, -1]),
    pool_net(pads=[1, 0, 0, 1]),
    pool_net(pads=[1, 1, 1, 0], auto_pad="NOTSET", dilations=[1, 2]),
    pool_net(value=LOW.reshape(1)),
]


@pytest.mark.parametrize("model", MERGED, ids=range(len(MERGED)))
def test_the_pool_has_the_border_and_the_same_values(model):
    changed, modified = passed(model, MergePads())
    assert modified
    (pool,) = (node for node in changed.graph.node if node.op_type == "MaxPool")
    assert pool.input[0] == "x"
    x = image(model)
    np.testing.assert_array_equal(run(changed, x, ["last"])["last"], run(model, x, ["last"])["last"])


def test_widths_may_be_computed_from_constants():
    """As PyTorch's exporter writes them."""
    model = pool_net()
    pads = next(node for node in model.graph.node if node.op_type == "Pad")
    reverse = helper.make_node("Slice", ["pads", "last_place", "before", "axis", "back"], ["reversed"])
    again = helper.make_node("Slice", ["reversed", "last_place", "before", "axis", "back"], ["widths"])
    pads.input[1] = "widths"
    model.graph.node.insert(0, again)
    model.graph.node.insert(0, reverse)
    for name, number in (("last_place", -1), ("before", -100), ("axis", 0), ("back", -1)):
        model.graph.initializer.append(numpy_helper.from_array(np.int64([number]), name))
    changed, modified = passed(model, MergePads())
    assert modified
    assert "Slice" not in {node.op_type for node in changed.graph.node}
    (pool,) = (node for node in changed.graph.node if node.op_type == "MaxPool")
    assert (pool.input[0], helper.get_node_attr_value(pool, "pads")) == ("x", [0, 1, 1, 1])
    x = image(model)
    np.testing.assert_array_equal(run(changed, x, ["last"])["last"], run(model, x, ["last"])["last"])


@pytest.mark.parametrize(
    "model",
    [
        pool_net(value=np.float32(0)),
        pool_net(value=np.float32(np.inf)),
        pool_net(value=None),
        pool_net(mode="edge"),
        pool_net((0, 1, 0, 1, 0, 0, 1, 1)),
        pool_net((0, 0, 0, -1, 0, 0, 1, 1)),
        pool_net((0, 0, 0, 3, 0, 0, 1, 1)),
        pool_net(pads=[0, 2, 0, 0]),
        pool_net((1, 1), axes=[7]),
        pool_net((1, 1), axes=2),
        pool_net((1, 1, 1, 1), axes=[[2], [3]]),
        pool_net((1, 0, 1), axes=[2, 3]),
        pool_net(value=np.int64(-1)),
        pool_net(ceil_mode=1),
        pool_net(auto_pad="SAME_UPPER"),
        pool_net(outputs=2),
    ],
)
def test_everything_else_stays(model):
    assert passed(model, MergePads()) == (to_proto(to_ir(model)), False)


def test_such_a_network_can_be_calibrated():
    model = pool_net()
    assert "Pad" not in {node.op_type for node in prepare(model).graph.node}
    x = image(model)
    engine = ptp.build(model, precision="int8", calibration=MinMaxCalibrator([{"data": x}]))
    with engine.create_context() as context:
        found = context.run({"data": x})["last"]
    assert np.abs(found - run(model, x, ["last"])["last"]).max() < 0.02
