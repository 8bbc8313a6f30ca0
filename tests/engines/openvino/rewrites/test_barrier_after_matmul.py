import numpy as np
import onnx
import pytest

from pytrtplugins.engines.openvino.rewrites.barrier_after_matmul import BarrierAfterMatMul
from pytrtplugins.passes import to_ir, to_proto
from tests.passes.nets import Net, image, passed, path_up, run

ROWS = np.float32([[[1]], [[-2]], [[3]]])
COLUMNS = np.arange(1, 6, dtype=np.float32)


def product_net(*steps, quantized=True, flat=False):
    """A product of images with a matrix, and operators with constants behind it."""
    net = Net()
    matrix = np.arange(40, dtype=np.int8).reshape(8, 5) - 20
    if quantized:
        codes = [
            net.constant(name, value) for name, value in (("m", matrix), ("s", np.float32(0.1)), ("z", np.int8(0)))
        ]
        weights = net.add("DequantizeLinear", codes, "weights", 3)
    else:
        weights = net.constant("m", matrix.astype(np.float32))
    x = net.add("Reshape", ["data", net.constant("flat", np.array([-1, 8]))], "rows") if flat else "data"
    x = net.add("MatMul", [x, weights], "product")
    for index, (op, *operands) in enumerate(steps):
        names = [net.constant(f"c{index}_{place}", value) for place, value in enumerate(operands)]
        x = net.add(op, [x, *names], f"t{index}")
    return net.model(net.add("Neg", [x], "y"))


@pytest.mark.parametrize(
    ("steps", "path"),
    [
        ([("Mul", ROWS)], ["Mul", "Max", "MatMul"]),
        ([("Add", COLUMNS), ("Add", ROWS)], ["Add", "Max", "Add", "MatMul"]),
        ([("Add", ROWS)], ["Add", "Max", "MatMul"]),
        ([("BatchNormalization", *[np.float32([1, 2, 3])] * 4)], ["BatchNormalization", "Max", "MatMul"]),
    ],
)
def test_max_stands_behind_the_product_and_changes_no_value(steps, path):
    model = product_net(*steps)
    changed, modified = passed(model, BarrierAfterMatMul())
    onnx.checker.check_model(changed, full_check=True)
    assert modified
    assert path_up(changed, f"t{len(steps) - 1}", len(path)) == path
    x = image(model)
    np.testing.assert_array_equal(run(changed, x, ["y"])["y"], run(model, x, ["y"])["y"])


@pytest.mark.parametrize("op", ["Add", "Sub"])
def test_max_stands_before_summands_of_rows_behind_a_matrix_that_is_not_quantized(op):
    model = product_net((op, COLUMNS), (op, ROWS), quantized=False)
    changed, modified = passed(model, BarrierAfterMatMul())
    assert modified == (op == "Add")  # a bias is an Add
    model = product_net((op, ROWS), quantized=False)
    changed, modified = passed(model, BarrierAfterMatMul())
    assert modified
    assert path_up(changed, "t0", 3) == [op, "Max", "MatMul"]
    x = image(model)
    np.testing.assert_array_equal(run(changed, x, ["y"])["y"], run(model, x, ["y"])["y"])


@pytest.mark.parametrize(
    "model",
    [
        product_net(("Mul", ROWS), quantized=False),
        product_net(("Add", COLUMNS), quantized=False),
        product_net(("Mul", COLUMNS)),
        product_net(("Mul", np.float32(2))),
        product_net(("Relu",)),
        product_net(("Mul", COLUMNS[None]), flat=True),
    ],
)
def test_everything_else_stays(model):
    assert passed(model, BarrierAfterMatMul()) == (to_proto(to_ir(model)), False)
