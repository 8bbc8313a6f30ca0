"""Calls that the real bindings would refuse are refused by what stands for them."""

import pytest

from .checked import SignatureError


@pytest.fixture
def context(runtime):
    return runtime.trt.proxy("IExecutionContext")


def test_what_tensorrt_does_not_have_is_not_there(context, runtime):
    with pytest.raises(AttributeError, match="execute_async_v9"):
        context.execute_async_v9(0)
    with pytest.raises(AttributeError):
        _ = runtime.trt.IInt8Calibratr


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        (("x",), {}, "missing a required argument: 'memory'"),
        (("x", 1, 2), {}, "too many positional arguments"),
        (("x",), {"address": 1}, "missing a required argument: 'memory'"),
        ((1, 1), {}, "name: expected str, found 1"),
        (("x", "1"), {}, "memory: expected typing.SupportsInt"),
    ],
)
def test_arguments_are_held_against_the_signature(context, args, kwargs, words):
    context.set_tensor_address("x", 1)
    with pytest.raises(SignatureError, match=words):
        context.set_tensor_address(*args, **kwargs)


def test_only_properties_with_a_setter_can_be_set(context, runtime):
    context.name = "mine"
    with pytest.raises(SignatureError, match="cannot be set"):
        context.engine = 3
    with pytest.raises(SignatureError, match="logger: expected"):
        runtime.trt.Runtime("no logger")
