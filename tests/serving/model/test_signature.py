"""What a loaded model says that it takes and gives."""

import json

import numpy as np
import pytest

from pytrtplugins import DType, SymbolicDim, TensorDesc
from pytrtplugins.errors import UsageError
from pytrtplugins.serving import Model
from pytrtplugins.serving.model.signature import Signature
from pytrtplugins.tensor import AnyDims
from tests.serving.served import Double, Lists


def model_of(*dims, **options):
    model = Model()
    model.inputs = tuple(TensorDesc(f"x{number}", each) for number, each in enumerate(dims))
    model.outputs = (TensorDesc("y", dims[0][:1]),)
    for name, value in options.items():
        setattr(model, name, value)
    return model


N, M = SymbolicDim("N"), SymbolicDim("M")


def test_requests_are_joined_where_all_first_dims_are_the_same_free_one():
    assert Signature.of(model_of((N, 2), (N, 3)), None).joined
    assert not Signature.of(model_of((N, 2), (M, 3)), None).joined
    assert not Signature.of(model_of((4, 2)), None).joined


@pytest.mark.parametrize(
    ("model", "told", "most"),
    [
        (model_of((N, 2)), None, 32),
        (model_of((N, 2)), 5, 5),
        (model_of((N, 2), max_batch=7), None, 7),
        (model_of((N, 2), max_batch=7), 3, 3),
        (model_of((4, 2)), 8, 1),
        (Lists(), None, 8),
        (Model(), None, 32),
    ],
)
def test_the_largest_batch_is_the_users_then_the_models(model, told, most):
    assert Signature.of(model, told).max_batch == most


def test_it_survives_json():
    model = Double()
    model.load(None)
    signature = Signature.of(model, None)
    assert Signature.from_json(json.loads(json.dumps(signature.to_json()))) == signature


@pytest.mark.parametrize(
    ("model", "most", "message"),
    [
        *((model_of((N, 2), facts=facts), None, r"Model\.facts: expected what JSON can say")
          for facts in ({"names": {1, 2}}, {"scale": float("nan")}, {"array": np.ones(2)})),
        (model_of((N, 2), inputs=(TensorDesc("x", (N, 2), DType.INT4),)), None, "no type int4"),
        (model_of((N, 2)), 1 << 20, "expected 1 to 4096"),
        (model_of((N, 2)), -1, "expected 1 to 4096, found -1"),
        (model_of(AnyDims()), None, r"(?s)input 'x0' is of any rank.*Do: give the input dims in the model"),
    ],
    ids=["a set", "not a number", "an array", "a type that the protocol lacks", "a batch beyond reason", "below", "any rank"],
)  # fmt: skip
def test_what_cannot_be_served_is_refused(model, most, message):
    with pytest.raises(UsageError, match=message):
        Signature.of(model, most)


def test_inputs_of_one_request_have_equally_many_rows():
    signature = Signature.of(model_of((N, 2), (N, 3)), None)
    assert signature.rows({"x0": np.ones((2, 2)), "x1": np.ones((2, 3))}) == 2
    with pytest.raises(UsageError, match=r"input 'x1' batch size does not match other inputs: they have \[1, 2\] rows"):
        signature.rows({"x0": np.ones((1, 2)), "x1": np.ones((2, 3))})
    with pytest.raises(UsageError, match="the inputs x0, x1 have no rows: a request has at least one"):
        signature.rows({"x0": np.ones((0, 2)), "x1": np.ones((0, 3))})


def test_only_requests_of_equal_shapes_fit_together():
    signature = Signature.of(model_of((N, M)), None)
    one, same, other = ({"x0": np.ones((rows, size))} for rows, size in ((1, 2), (3, 2), (1, 4)))
    assert signature.key(one) == signature.key(same) != signature.key(other)
    assert Signature.of(model_of((N, 2)), None).key(one) is None
