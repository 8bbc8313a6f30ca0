"""What goes wrong inside a plugin is what the caller of build or run sees."""

from __future__ import annotations

import logging
import threading
import traceback

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.engines.tensorrt.collected import ErrorLog, collecting
from pytrtplugins.engines.tensorrt.creators import register
from pytrtplugins.engines.tensorrt.plugin_fields import Extras, to_fields
from pytrtplugins.errors import DimsError, PluginError
from pytrtplugins.tensor import DType
from tests.engines.base.world import in_threads
from tests.user_plugins import Copy

from .user_plugins import Scale

X = np.ones((1, 4), np.float32)


class UsersOwnError(Exception):
    """What only the user's code raises."""


def broken(method, value=None, base=Scale):
    """A plugin one of whose methods raises, or returns something wrong."""

    def override(self, *args):
        if value is None:
            raise UsersOwnError(f"from {method}")
        return value

    cls = type(base)("Broken" + method.title().replace("_", ""), (base,), {method: override, "__doc__": "Broken."})
    registered = ptp.plugin(namespace="test.tensorrt", version=str(value))(cls)
    return registered()


RAISING = {
    "validate": lambda driver, made: None,
    "output_dims": lambda driver, made: driver.output_exprs(made, [X.shape]),
    "output_dtypes": lambda driver, made: driver.output_types(made, [DType.FLOAT32]),
    "supports_format": lambda driver, made: driver.accepts(made, [driver.desc(X.shape, DType.FLOAT32)] * 2, 1),
    "workspace_size": lambda driver, made: driver.configure(
        made, *[[driver.desc(X.shape, DType.FLOAT32)]] * 2, factor=2
    ),
    "serialize": lambda driver, made: driver.reload(made),
    "clone": lambda driver, made: driver.attach(made),
    "configure": lambda driver, made: driver.enqueue(driver.attach(made), [X], [X + 0], 0),
    "initialize": lambda driver, made: driver.enqueue(driver.attach(made), [X], [X + 0], 0),
    "enqueue": lambda driver, made: driver.enqueue(driver.attach(made), [X], [X + 0], 0),
}


def make(driver, plugin_class):
    """The adapter, of fields that were written before anything was broken."""
    fields = to_fields(driver.api, Scale(), Extras(1))
    register(plugin_class, interface=driver.interface)
    namespace, name, version = plugin_class.plugin_key()
    found = driver.trt.get_plugin_registry().get_creator(name, version, namespace)
    return found.create_plugin("layer", fields, *([driver.trt.TensorRTPhase.BUILD] * (driver.interface == "v3")))


@pytest.mark.parametrize("method", [name for name in RAISING if name != "validate"])
def test_what_an_override_raises_reaches_the_caller_whatever_tensorrt_makes_of_it(driver, method):
    if method == "serialize" and driver.interface == "v3":
        pytest.skip("IPluginV3 writes fields")
    plugin = broken(method)
    with pytest.raises(UsersOwnError, match=f"from {method}") as caught, collecting():  # noqa: PT012
        made = make(driver, type(plugin))
        try:
            RAISING[method](driver, made)
        except Exception as error:  # as TensorRT does
            traceback.clear_frames(error.__traceback__)
    assert any(entry.name == "override" for entry in caught.traceback)


def test_what_a_constructor_raises_comes_out_of_create_plugin_through_tensorrt(driver, capfd):
    cls = type(Scale)("Picky", (Scale,), {"validate": Scale.validate, "__doc__": "Picky."})
    picky = ptp.plugin(namespace="test.tensorrt", version="picky")(cls)
    plugin = picky()

    def validate(self):
        raise UsersOwnError("from validate")

    picky.validate = validate
    with pytest.raises(UsersOwnError, match="from validate"), collecting():
        driver.create(plugin)


@pytest.mark.parametrize(
    ("method", "value", "kind", "words"),
    [
        ("output_dims", (1, -4), DimsError, "ints of at least 0"),
        ("output_dims", 5, DimsError, "must return a tuple of dims, found 5"),
        ("output_dims", ((1, 4), (1, 4)), DimsError, "gives 2 outputs; expected 1"),
        ("output_dtypes", ("float32", "float32"), PluginError, "gave 2 types for 1 outputs"),
        ("output_dtypes", "float64", PluginError, "gives float64, which is not an element type of plugins"),
        ("workspace_size", -1, PluginError, "must give a number of bytes, found -1"),
        ("workspace_size", 1.5, PluginError, "must give a number of bytes, found 1.5"),
    ],
)
def test_a_wrong_answer_is_named(driver, method, value, kind, words):
    with pytest.raises(kind, match=words):
        RAISING[method](driver, make(driver, type(broken(method, value))))


def test_outputs_of_other_dims_or_types_than_the_rule_gives_stop_before_enqueue(driver):
    context = driver.attach(driver.create(Scale()))
    with pytest.raises(DimsError, match=r"output0 has dims \(1, 3\), output_dims says \(1, 4\)"):
        driver.enqueue(context, [X], [X[:, :3].copy()], 0)
    with pytest.raises(PluginError, match="output0 is float16, output_dtypes says float32"):
        driver.enqueue(context, [X], [X.astype(np.float16)], 0)


def test_a_field_that_cannot_be_serialized_is_refused_where_it_is_declared():
    with pytest.raises(ptp.PytrtpluginsError, match="cannot be a field"):

        @ptp.plugin(namespace="test.tensorrt")
        class Unserializable(Copy):
            anything: dict


def test_types_that_plugins_do_not_get_are_refused(v3):
    made = v3.create(Scale())
    with pytest.raises(PluginError, match=r"cannot take tensors of type DataType\.FP8"):
        made.get_output_data_types([v3.trt.DataType.FP8])
    fp8 = v3.desc(X.shape, DType.INT8)
    fp8.type = v3.trt.DataType.FP8
    assert not v3.accepts(made, [fp8, fp8], 1)


def test_enqueue_before_the_dims_are_known_is_refused(v3):
    made = v3.create(Scale())
    with pytest.raises(PluginError, match="before the dims are known"):
        v3.enqueue(made, [X], [X + 0], 0, changed=False)


def test_the_first_error_wins_and_replaces_tensorrts_own():
    with pytest.raises(UsersOwnError, match="first"), collecting() as log:  # noqa: PT012
        for text in ("first", "second"):
            log.keep(UsersOwnError(text))
        raise TypeError("what TensorRT says")
    with pytest.raises(TypeError), collecting():
        raise TypeError("nothing else went wrong")


def test_threads_that_fail_at_the_same_time_each_get_their_own_error(v3):
    shared = ErrorLog()
    with collecting(shared):
        engine = v3.create(broken("configure"))

    def work(number):
        with pytest.raises(UsersOwnError) as caught, collecting():  # noqa: PT012
            try:
                v3.enqueue(v3.attach(engine), [X], [X + 0], 0)
            except UsersOwnError as error:
                error.args = (number,)
        return caught.value.args[0]

    assert in_threads(work) == [0, 1, 2, 3]
    assert shared.first is None


def test_an_error_in_a_thread_of_tensorrts_own_goes_to_the_build_that_made_the_plugin(v3):
    def work(made):
        with pytest.raises(UsersOwnError):
            v3.accepts(made, [v3.desc(X.shape, DType.FLOAT32)] * 2, 1)

    with pytest.raises(UsersOwnError, match="supports_format"), collecting():  # noqa: PT012
        thread = threading.Thread(target=work, args=(make(v3, type(broken("supports_format"))),))
        thread.start()
        thread.join()


def test_an_error_that_nobody_collects_is_logged(v3, caplog):
    made = make(v3, type(broken("output_dtypes")))
    with caplog.at_level(logging.ERROR), pytest.raises(UsersOwnError):
        v3.output_types(made, [DType.FLOAT32])
    assert "get_output_data_types failed" in caplog.text
    assert "from output_dtypes" in caplog.text
