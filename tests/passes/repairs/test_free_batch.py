"""A batch that is fixed everywhere is freed on request: each sample then gets the numbers that it had alone; or nothing is done."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from pytrtplugins.errors import ModelError
from pytrtplugins.passes import repair
from tests.mxnet.files import face
from tests.passes.repairs.exports import exported, old_export, repairs_of, run

X = np.random.default_rng(15).normal(size=(3, 2, 4, 5)).astype(np.float32)


def network(*shapes, batch=1):
    """Reshapes one behind the other."""
    reshapes = " ".join(f"r{number} = Reshape (r{number - 1}, s{number})" for number, _ in enumerate(shapes, 1))
    weights = {f"s{number}": np.array(shape, np.int64) for number, shape in enumerate(shapes, 1)}
    text = f"r0 = Relu (data) {reshapes} y = Neg (r{len(shapes)})"
    return exported(text, weights, [batch, 2, 4, 5], "y", opset=13)


@pytest.mark.parametrize("shapes", [[(1, 40)], [(1, -1)], [(1, 8, 5), (1, -1, 4), (1, 40)], [(0, -1)], [(-1, 40)]])
def test_each_sample_gets_the_numbers_that_it_had_alone(shapes):
    model = network(*shapes)
    found = repair(model, also=["free-batch"])
    assert repairs_of(found) == {"free-batch": 1 + sum(shape[0] == 1 for shape in shapes)}
    alone = np.concatenate([run(model, data=X[number : number + 1]) for number in range(3)])
    np.testing.assert_array_equal(run(found.model, data=X), alone)
    assert found.model.graph.output[0].type.tensor_type.shape.dim[0].dim_param == "N"
    assert repair(found.model, also=["free-batch"]).findings == ()


def test_a_broken_export_is_mended_and_freed_in_one_go():
    broken = old_export(face())
    x = np.random.default_rng(16).uniform(0, 255, (3, 3, 16, 16)).astype(np.float32)
    fixed, free = repair(broken).model, repair(broken, also=["free-batch"]).model
    alone = np.concatenate([run(fixed, data=x[number : number + 1]) for number in range(3)])
    np.testing.assert_allclose(run(free, data=x), alone, rtol=1e-4, atol=1e-5)


def test_it_runs_on_request_alone():
    assert repair(network((1, 40))).findings == ()
    assert repairs_of(repair(network((1, 40)), only=["free-batch"])) == {"free-batch": 2}


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (network((8, 5)), "node 'r1' (Reshape) gives dims [8, 5], and the batch is not certainly the first"),
        (network((2, 20), batch=4), "node 'r1' (Reshape) gives dims [2, 20]"),
        (network((-1,)), "the first dim of the output 'y' does not follow"),
        (exported("y = ReduceSum <keepdims = 0> (data)", {}, [1, 2], "y", opset=11), "the first dim of the output 'y'"),
    ],
)
def test_what_is_not_certain_is_refused_as_a_whole(model, text):
    before = model.SerializeToString(deterministic=True)
    with pytest.raises(ModelError, match="\nDo: leave out free-batch") as caught:
        repair(model, also=["free-batch"])
    assert text in str(caught.value)
    assert model.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("batch", [1, "n"])
def test_inputs_of_several_batches_are_refused(batch):
    model = exported("y = Add (data, more)", {}, [batch, 2], "y", opset=13)
    model.graph.input.append(helper.make_tensor_value_info("more", TensorProto.FLOAT, [2, 2]))
    with pytest.raises(ModelError, match=f"the first dims of the inputs are data {batch}, more 2; expected one number"):
        repair(model, also=["free-batch"])
