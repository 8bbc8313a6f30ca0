"""The whole life of every plugin in TensorRT, driven from C++: in Python, in C++, and built in one and run in the other."""

from ctypes import byref, c_int32

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.engines.tensorrt.collected import collecting
from pytrtplugins.errors import DimsError
from pytrtplugins.layers import Region, Reorg, Yolo
from pytrtplugins.tensor import DType

from .driver import CHW32, FP8, HWC, RUNTIME, Refused
from .user_plugins import Everything, MeanAndRest, NonZero, Rescale, Scale

IN_CPP = (Reorg, Region, Yolo, Scale, MeanAndRest, Everything, NonZero)
TABLE = np.arange(6, dtype=np.int64).reshape(2, 3)
CASES = [
    (Reorg(stride=2), (2, 8, 4, 6)),
    (Reorg(stride=2, reverse=True), (2, 8, 4, 6)),
    (Region(classes=3, num=2, softmax=True, anchors=(1, 2, 3, 4)), (2, 16, 3, 5)),
    (Region(classes=4, num=2, tree=(-1, -1, 0, 0)), (1, 18, 2, 2)),
    (Yolo(anchors=(1, 2, 3, 4), mask=(0, 1), classes=3), (1, 16, 3, 3)),
    (Yolo(anchors=(1, 2, 3, 4), mask=(1,), classes=2, scale_x_y=1.05, new_coords=True), (2, 7, 3, 2)),
    (Yolo(anchors=(1, 2, 3, 4), mask=(1,), classes=2, scale_x_y=1.2), (2, 7, 3, 2)),
    (Scale(factor=0.3), (2, 3, 4)),
    (MeanAndRest(), (3, 4, 5, 2)),
    (Everything(number=2**40, texts=("x", ""), table=TABLE, numbers=(), text="größe"), (2, 2)),
]
LANGUAGES = ("python", "c++")
LIVES = [
    pytest.param(plugin, dims, build, run, id=f"{plugin!r}-{build}-{run}")
    for plugin, dims in CASES
    for build in LANGUAGES
    for run in LANGUAGES
    if isinstance(plugin, IN_CPP) or build == run == "python"
]


def array(dims, dtype=np.float32):
    return np.random.default_rng(0).standard_normal(dims).astype(dtype)


def test_every_layer_of_the_package_is_tried():
    own = {key for key in ptp.registered() if ptp.lookup(*key).__module__.startswith("pytrtplugins.layers")}
    assert own == {plugin.plugin_key() for plugin, _ in CASES if plugin.plugin_key().namespace != "test.driver"}


@pytest.mark.parametrize(("plugin", "dims", "build", "run"), LIVES)
def test_a_life_gives_what_compute_gives(driver, plugin, dims, build, run):
    x = array(dims)
    with driver.offered(type(plugin), build):
        built = driver.build(plugin, [x])
    with driver.offered(type(plugin), run):
        found = driver.run(plugin, built, [x])
    for ours, expected in zip(found, plugin.all_outputs([x]), strict=True):
        assert ours.dtype == expected.dtype
        np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("language", LANGUAGES)
def test_half_precision_and_int8_keep_their_bits_in_reorg(driver, language):
    for dtype in (np.float16, np.int8):
        x = (array((2, 8, 4, 4)) * 30).astype(dtype)
        with driver.offered(Reorg, language):
            (found,) = driver.run(Reorg(stride=2), driver.build(Reorg(stride=2), [x]), [x])
        np.testing.assert_array_equal(found, Reorg(stride=2).compute(x))


@pytest.mark.parametrize("language", LANGUAGES)
def test_types_and_layouts_that_a_plugin_does_not_take_are_refused(driver, language):
    dims = (1, 6, 2, 2)

    def accepts(cls, *descs):
        tensors = driver.tensors(descs[:1], descs[1:])
        return driver.accepts(made[cls], tensors)

    made = {}
    for plugin in (Reorg(stride=1), Region(classes=1, num=1)):
        with driver.offered(type(plugin), language):
            made[type(plugin)] = driver.create(type(plugin), driver.items(plugin))
            single, half, int8 = (driver.tensor(dims, dtype) for dtype in (DType.FLOAT32, DType.FLOAT16, DType.INT8))
            assert accepts(type(plugin), single, single)
            assert accepts(type(plugin), half, half)
            assert accepts(type(plugin), int8, int8) == isinstance(plugin, Reorg)
            assert not accepts(type(plugin), half, single)
            assert not accepts(type(plugin), driver.tensor(dims, FP8), driver.tensor(dims, FP8))
            if language == "c++" or hasattr(driver.api.trt, "TensorFormat"):  # without it Python cannot tell layouts
                assert not accepts(type(plugin), *[driver.tensor(dims, DType.FLOAT32, layout=CHW32)] * 2)
            driver.destroy(made[type(plugin)])


@pytest.mark.parametrize("language", LANGUAGES)
def test_free_dims_become_expressions_of_the_inputs_dims(driver, language):
    with driver.offered(Reorg, language):
        made = driver.create(Reorg, driver.items(Reorg(stride=2)))
        x = driver.tensor((5, 8, 6, 4), DType.FLOAT32, free=(0, 2))
        assert driver.output_dims(made, [x]) == [((-1, 32, -1, 2), (5, 32, 3, 2))]
        fixed = driver.tensor((5, 8, 6, 4), DType.FLOAT32)
        assert driver.output_dims(made, [fixed]) == [((5, 32, 3, 2), (5, 32, 3, 2))]
        driver.destroy(made)


def test_a_rule_is_checked_on_the_dims_that_tensorrt_knows(driver):
    odd = driver.tensor((1, 8, 3, 4), DType.FLOAT32, free=(0,))
    for error, language in ((DimsError, "python"), (Refused, "c++")):
        with pytest.raises(error, match="height must be a multiple of 2, found 3"), driver.offered(Reorg, language):
            driver.output_dims(driver.create(Reorg, driver.items(Reorg(stride=2))), [odd])


def test_a_plugin_whose_output_depends_on_values_is_refused(driver):
    reason = r"'count' of (an )?output[\s\S]*depends on the inputs' values[\s\S]*Do:"
    x = driver.tensor((2, 3), DType.FLOAT32)
    for error, language in ((DimsError, "python"), (Refused, "c++")):
        with pytest.raises(error, match=reason), driver.offered(NonZero, language):
            driver.output_dims(driver.create(NonZero, []), [x])


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_workspace_is_that_of_the_largest_dims(driver, language):
    with driver.offered(MeanAndRest, language):
        built = driver.build(MeanAndRest(), [array((3, 4, 5, 2))], factor=7)
    assert built.workspace == 4 * 3 * 7 * 4


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_context_runs_in_a_thread_that_python_does_not_know(driver, language):
    x = array((2, 3))
    with driver.offered(Scale, language):
        (found,) = driver.run(Scale(), driver.build(Scale(), [x]), [x], aside=True)
    np.testing.assert_array_equal(found, x * 2)


@pytest.mark.parametrize("language", LANGUAGES)
def test_contexts_of_one_engine_have_dims_of_their_own(driver, language):
    inputs = [array((2, 3)), array((4, 3))]
    outputs = [np.zeros_like(x) for x in inputs]
    with driver.offered(Scale, language):
        made = driver.create(Scale, driver.items(Scale(factor=3)), RUNTIME)
        attached = [driver.attach(made, [x], [y]) for x, y in zip(inputs, outputs, strict=True)]
        for (context, tensors), x, y in zip(attached, inputs, outputs, strict=True):
            driver.enqueue(context, tensors, [x.ctypes.data], [y.ctypes.data], 0)
            np.testing.assert_array_equal(y, x * 3)
        driver.destroy(*(context for context, _ in attached), made)


@pytest.mark.parametrize("language", LANGUAGES)
def test_names_and_timing_keys_tell_layers_apart(driver, language):
    with driver.offered(Scale, language):
        plugins = [driver.create(Scale, driver.items(Scale(factor=factor))) for factor in (1, 1, 3)]
        texts = [[driver.call("text", plugin, c_int32(which)) for which in range(4)] for plugin in plugins]
        driver.destroy(*plugins)
    assert [text[:3] for text in texts] == [[b"test.driver", b"Scale", b"1"]] * 3
    assert texts[0][3] == texts[1][3] != texts[2][3]


@pytest.mark.parametrize("language", LANGUAGES)
def test_dims_that_do_not_agree_are_refused_before_they_are_used(driver, language):
    wrong = driver.tensors([driver.tensor((1, 4, 2, 2), DType.FLOAT32)], [driver.tensor((1, 16, 1, 2), DType.FLOAT32)])
    with driver.offered(Reorg, language):
        made = driver.made("attach", driver.create(Reorg, driver.items(Reorg(stride=2))))
        with pytest.raises((DimsError, Refused), match=r"\(1, 16, 1, 1\)"), collecting():
            driver.checked("shape_change", made, byref(wrong))


@pytest.mark.parametrize(("plugin", "dims"), CASES[:5], ids=repr)
def test_channels_may_lie_innermost(driver, plugin, dims):
    x = array(dims)
    (expected,) = plugin.all_outputs([x])
    memory = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    out = np.zeros(expected.transpose(0, 2, 3, 1).shape, np.float32)
    descs = [driver.tensor(shape, DType.FLOAT32, layout=HWC) for shape in (x.shape, expected.shape)]
    tensors = driver.tensors(descs[:1], descs[1:])
    mixed = driver.tensors(descs[:1], [driver.tensor(expected.shape, DType.FLOAT32)])
    with driver.offered(type(plugin), "c++"):
        made = driver.create(type(plugin), driver.items(plugin), RUNTIME)
        assert driver.accepts(made, tensors)
        assert not driver.accepts(made, mixed)
        driver.checked("shape_change", made, byref(tensors))
        driver.enqueue(made, tensors, [memory.ctypes.data], [out.ctypes.data], 0)
        driver.destroy(made)
    np.testing.assert_allclose(out.transpose(0, 3, 1, 2), expected, rtol=1e-6, atol=1e-6)


def test_the_scales_of_the_network_reach_a_plugin_that_needs_them(driver):
    items = [("pytrtplugins_scales", "FLOAT32", np.array([0.5, 0.25], np.float32))]
    x, y = np.array([[10, -20, 127]], np.int8), np.zeros((1, 3), np.int8)
    tensors = driver.tensors(*[[driver.tensor(x.shape, DType.INT8)]] * 2)
    with driver.offered(Rescale, "c++"):
        saved = driver.save(driver.create(Rescale, items))
        made = driver.create(Rescale, saved, RUNTIME)
        driver.checked("shape_change", made, byref(tensors))
        driver.enqueue(made, tensors, [x.ctypes.data], [y.ctypes.data], 0)
        driver.destroy(made)
        foreign = driver.tensors(
            [driver.tensor(x.shape, DType.INT8, scale=0.5)], [driver.tensor(x.shape, DType.INT8, scale=1.0)]
        )
        made = driver.create(Rescale, [], RUNTIME)
        z = np.zeros_like(y)
        driver.checked("shape_change", made, byref(foreign))
        driver.enqueue(made, foreign, [x.ctypes.data], [z.ctypes.data], 0)
        driver.destroy(made)
    assert y.tolist() == [[20, -40, 127]]
    assert z.tolist() == [[5, -10, 63]]
