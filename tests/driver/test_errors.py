"""What a plugin throws reaches somebody: the caller in Python, TensorRT's log from C++; TensorRT gets its error code."""

from ctypes import byref, c_int32

import numpy as np
import pytest

from pytrtplugins.engines.tensorrt.collected import collecting
from pytrtplugins.engines.tensorrt.creators import register, unregister
from pytrtplugins.tensor import DType

from .driver import Refused
from .user_plugins import Faulty

PLACES = {
    "output_dims": "output_dims",
    "output_dtypes": "output_types",
    "supports_format": "accepts",
    "workspace_size": "workspace",
    "configure": "shape_change",
    "initialize": "shape_change",
    "enqueue": "enqueue",
}


def fields(where):
    return [
        ("where", "CHAR", np.frombuffer(where.encode(), np.int8)),
        ("pytrtplugins_outputs", "INT32", np.ones(1, np.int32)),
    ]


def visit_everything(driver, where):
    """Make each call in TensorRT's order; the names of those that failed, as far as their results tell."""
    x, tensor, tensors = example(driver)
    made = driver.create(Faulty, fields(where))
    context = driver.made("attach", made)
    failed = []
    for name, call in {
        "output_types": lambda: driver.output_types(made, [0]),
        "output_dims": lambda: driver.output_dims(made, [tensor]),
        "accepts": lambda: driver.accepts(made, tensors) or failed.append("accepts"),
        "workspace": lambda: driver.call("workspace", made, byref(tensors)),
        "shape_change": lambda: driver.checked("shape_change", context, byref(tensors)),
        "enqueue": lambda: driver.enqueue(context, tensors, [x.ctypes.data], [x.ctypes.data], 0),
    }.items():
        try:
            call()
        except Refused:
            failed.append(name)
    driver.destroy(context, made)
    return failed


def example(driver):
    """An array, its description, and those of one as input and output."""
    x = np.zeros((2, 3), np.float32)
    tensor = driver.tensor(x.shape, DType.FLOAT32)
    return x, tensor, driver.tensors([tensor], [tensor])


@pytest.mark.parametrize("where", PLACES)
def test_python_raises_the_original_exception(driver, where):
    register(Faulty)
    failed = []
    with pytest.raises(IndexError, match=f"wrong in {where}") as caught, collecting():
        failed += visit_everything(driver, where)
    unregister(Faulty)
    assert caught.traceback[-1].name == "visit"
    if where != "workspace_size":  # TensorRT takes 0 bytes for an answer: only `collecting` tells
        assert failed[0] == PLACES[where]


def test_python_raises_what_the_constructor_raises(driver):
    register(Faulty)
    with pytest.raises(IndexError, match="wrong in validate"), collecting(), pytest.raises(Refused, match="create"):
        driver.create(Faulty, fields("validate"))
    unregister(Faulty)


@pytest.mark.parametrize("where", PLACES)
def test_cpp_logs_the_message_with_plugin_and_place(driver, where):
    with driver.offered(Faulty, "c++"):
        made = driver.create(Faulty, fields(where))
        driver.destroy(made)
        assert driver.log() == ""
        x, tensor, tensors = example(driver)
        made = driver.create(Faulty, fields(where))
        calls = {
            "output_dims": lambda: driver.output_dims(made, [tensor]),
            "output_types": lambda: driver.output_types(made, [0]),
            "accepts": lambda: (
                driver.checked("configure", made, byref(tensors)) or refuse(driver.accepts(made, tensors))
            ),
            "workspace": lambda: refuse(driver.call("workspace", made, byref(tensors))),
            "shape_change": lambda: driver.checked("shape_change", made, byref(tensors)),
            "enqueue": lambda: run(driver, made, tensors, x),
        }

        def refuse(answer):
            assert answer == 0
            raise Refused(where, driver.log())

        with pytest.raises(Refused) as refused:
            calls[PLACES[where]]()
        assert "test.driver::Faulty version 1: " in str(refused.value)
        assert f"wrong in {where}" in str(refused.value)
        driver.destroy(made)


def run(driver, made, tensors, x):
    driver.checked("shape_change", made, byref(tensors))
    driver.enqueue(made, tensors, [x.ctypes.data], [x.ctypes.data], 0)


def test_cpp_survives_what_is_no_exception(driver):
    x, _, tensors = example(driver)
    with driver.offered(Faulty, "c++"):
        made = driver.create(Faulty, [])
        with pytest.raises(Refused, match="enqueue: an exception of unknown type"):
            run(driver, made, tensors, x)
        driver.destroy(made)


def test_enqueue_before_the_dims_are_known_is_an_error(driver):
    x, _, tensors = example(driver)
    with driver.offered(Faulty, "c++"):
        made = driver.create(Faulty, [])
        with pytest.raises(Refused, match="enqueue before the dims are known"):
            driver.enqueue(made, tensors, [x.ctypes.data], [x.ctypes.data], 0)
        driver.destroy(made)


def test_an_unknown_tactic_is_refused_in_both_languages(driver):
    for language in ("python", "c++"):
        with driver.offered(Faulty, language):
            made = driver.create(Faulty, fields(""))
            with pytest.raises((Exception), match="tactic 3 is unknown"), collecting():
                driver.checked("set_tactic", made, c_int32(3))
            driver.destroy(made)
