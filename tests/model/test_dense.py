"""Constants that others write sparsely, or as typed data that libraries misread, have their values on every engine."""

import numpy as np
import onnx
import openvino
import pytest
from onnx import TensorProto, helper, numpy_helper

import pytrtplugins as ptp
from pytrtplugins.errors import ModelError
from pytrtplugins.model.dense import with_dense_constants
from pytrtplugins.model.ir import to_ir
from pytrtplugins.passes import normalize
from tests.engines.model_parts import F, body, info, model, node

ENGINES = ["cpu", "onnxruntime", "reference"]
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def sparse(places=(1, 2), dims=(3,), name="v"):
    values = numpy_helper.from_array(np.float32([3, 5]), name)
    return helper.make_sparse_tensor(values, numpy_helper.from_array(np.array(places), "places"), list(dims))


def summed(constant=None, nodes=(), *, typed=None):
    add = model([*nodes, node("Add", ["x", "v"], ["y"])], [info("x", F, [2, 3])], [info("y", F, [2, 3])])
    if constant is not None:
        add.graph.sparse_initializer.append(constant)
    if typed is not None:
        add.graph.initializer.append(typed)
    return add


def run(network, engine):
    with ptp.build(network, engine=engine, progress=False).create_context() as context:
        return context.run({"x": X})["y"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("form", ["initializer", "constant"])
def test_sparse_constants_are_added_as_dense_ones_are(engine, form):
    constant = node("Constant", [], ["v"], sparse_value=sparse(name="other"))
    network = summed(sparse()) if form == "initializer" else summed(nodes=[constant])
    np.testing.assert_array_equal(run(network, engine), X + np.float32([0, 3, 5]))


@pytest.mark.parametrize(("places", "dims"), [([[0, 1], [1, 2]], (2, 3)), ([1, 5], (2, 3))])
def test_places_may_be_numbers_or_indices(places, dims):
    (tensor,) = with_dense_constants(summed(sparse(places, dims))).graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(tensor), np.float32([[0, 3, 0], [0, 0, 5]]))


@pytest.mark.parametrize("places", [[1, 3], [-1, 0]])
def test_a_place_outside_of_the_dims_is_refused(places):
    with pytest.raises(ModelError, match=r"(?s)sparse constant 'v' of dims \(3,\).*outside.*Do: ") as caught:
        normalize(summed(sparse(places)))
    assert caught.value.facts["tensor"] == "v"


def test_sparse_constants_that_claim_too_much_are_refused_before_memory_is_taken():
    with pytest.raises(ModelError, match=r"(?s)sparse constants .* need 8 GiB.*the limit is 4 GiB.*Do: ") as caught:
        normalize(summed(sparse([1, 2], (1 << 31,))))
    assert (caught.value.found, caught.value.limit) == (1 << 33, 1 << 32)


def test_sparse_constants_in_branches_and_for_passes_are_dense_too():
    inner = body([node("Identity", ["v"], ["b"])], [info("b", F, [3])])
    inner.sparse_initializer.append(sparse())
    network = model(
        [node("If", ["f"], ["y"], then_branch=inner, else_branch=inner)], [info("f", 9, [])], [info("y", F, [3])]
    )
    for attribute in normalize(network).graph.node[0].attribute:
        np.testing.assert_array_equal(numpy_helper.to_array(attribute.g.initializer[0]), np.float32([0, 3, 5]))
    assert "v" in to_ir(summed(sparse())).graph.initializers


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("form", ["initializer", "constant"])
@pytest.mark.parametrize("dtype", [TensorProto.BFLOAT16, TensorProto.UINT32])
def test_typed_data_are_read_right(engine, form, dtype):
    typed = helper.make_tensor("t", dtype, [3], [1, 0, 2])
    cast = node("Cast", ["t"], ["v"], to=F)
    stored = node("Constant", [], ["t"], value=typed)
    network = summed(nodes=[cast], typed=typed) if form == "initializer" else summed(nodes=[stored, cast])
    np.testing.assert_array_equal(run(network, engine), X + np.float32([1, 0, 2]))


TYPED = ["FLOAT", "DOUBLE", "FLOAT16", "INT8", "UINT8", "INT16", "UINT16", "INT32", "INT64", "UINT64", "BOOL", "INT4"]
TYPED += ["UINT4", "FLOAT8E4M3FN", "FLOAT8E5M2", "BFLOAT16", "UINT32"]


@pytest.mark.parametrize("name", TYPED)
def test_openvino_misreads_typed_data_of_two_types_only(name):
    """Once this fails for one of the two, `_MISREAD` in dense.py can lose it."""
    typed = helper.make_tensor("t", TensorProto.DataType.Value(name), [3], [1, 0, 1])
    network = summed(nodes=[node("Cast", ["t"], ["v"], to=F)], typed=typed)
    network.opset_import[0].version, network.ir_version = 21, 10
    core = openvino.Core()
    found = core.compile_model(core.read_model(network.SerializeToString(), b""), "CPU")([X])[0]
    assert np.array_equal(found, X + np.float32([1, 0, 1])) == (name not in ("BFLOAT16", "UINT32"))


def test_other_models_are_not_copied():
    network = summed(typed=helper.make_tensor("v", F, [3], [1, 0, 2]))
    assert with_dense_constants(network) is network
    network = summed(sparse())
    before = onnx.ModelProto.FromString(network.SerializeToString())
    with_dense_constants(network)
    assert network == before


@pytest.mark.parametrize(("limit", "good"), [(48, True), (47, False)])
def test_sparse_constants_are_written_out_up_to_the_limit_to_the_byte(monkeypatch, limit, good):
    monkeypatch.setattr("pytrtplugins.model.dense.MAX_COMPUTED_BYTES", limit)
    made = summed(sparse([3, 5], (12,)))
    if good:
        assert with_dense_constants(made).graph.initializer[0].dims == [12]
    else:
        with pytest.raises(ModelError, match="need 48 bytes where they are written out; the limit is 47 bytes"):
            with_dense_constants(made)
