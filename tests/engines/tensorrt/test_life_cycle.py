"""Every plugin of the package, and users' own, through a whole life in TensorRT."""

import gc
from typing import Any

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.errors import DimsError, PluginError
from pytrtplugins.layers import Region, Reorg, Yolo
from pytrtplugins.tensor import DType
from tests.user_plugins import Copy

from .user_plugins import Counting, Everything, MeanAndRest, NonZero, Scale, ThirdOfChannels, TwoWays, Weighted

TABLE = np.arange(6, dtype=np.int64).reshape(2, 3)
CASES = [
    (Reorg(stride=2), [(2, 8, 4, 6)]),
    (Reorg(stride=2, reverse=True), [(2, 8, 4, 6)]),
    (Region(classes=3, num=2, softmax=True), [(2, 16, 3, 5)]),
    (Region(classes=4, num=2, tree=(-1, -1, 0, 0)), [(1, 18, 2, 2)]),
    (Yolo(anchors=(1, 2, 3, 4), mask=(0, 1), classes=3), [(1, 16, 3, 3)]),
    (Scale(factor=0.3), [(2, 3, 4)]),
    (MeanAndRest(), [(3, 4, 5, 2)]),
    (Everything(required=7, number=2**40, texts=("x", ""), table=TABLE, numbers=()), [(2, 2)]),
    (Weighted(), [(2, 3), (2, 3)]),
    (TwoWays(), [(1, 2)]),
]


def arrays(dims, dtype=np.float32):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(dtype) for shape in dims]


def test_every_plugin_of_the_package_is_tried():
    own = {key for key in ptp.registered() if ptp.lookup(*key).__module__.startswith("pytrtplugins.layers")}
    assert own <= {plugin.plugin_key() for plugin, _ in CASES}


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("plugin", "dims"), CASES, ids=[repr(plugin) for plugin, _ in CASES])
def test_a_life_in_tensorrt_gives_what_compute_gives(driver, plugin, dims, dtype):
    inputs = arrays(dims, dtype)
    found = driver.run(plugin, inputs)
    for ours, expected in zip(found, plugin.all_outputs(inputs), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=2e-3 if dtype is np.float16 else 1e-6, atol=1e-3)
        assert ours.dtype == expected.dtype


def test_int8_passes_through_reorg_and_never_through_region(driver):
    x = np.arange(-64, 64, dtype=np.int8).reshape(1, 8, 4, 4)
    np.testing.assert_array_equal(driver.run(Reorg(stride=2), [x])[0], Reorg(stride=2).compute(x))
    region = driver.create(Region(classes=1, num=1))
    descs = [driver.desc((1, 6, 2, 2), DType.INT8)] * 2
    assert not driver.accepts(region, descs, 1)


def test_a_plugin_that_computes_on_int8_gets_the_scales(driver):
    made = driver.attach(driver.reload(driver.create(Weighted())))
    x, y = (np.array(values, np.int8) for values in ([[10, -20, 127]], [[4, 5, 100]]))
    out = np.zeros((1, 3), np.int8)
    driver.enqueue(made, [x, y], [out], 0, scales=[0.5, 0.25, 1.0])
    assert out.tolist() == [[6, -9, 88]]


def test_scales_from_the_network_outlive_the_engine_file(v3):
    from pytrtplugins.engines.tensorrt.plugin_fields import Extras, to_fields

    fields = to_fields(v3.api, Weighted(), Extras(1, (0.5, 0.25, 1.0)))
    made = v3.attach(v3.reload(v3.create(Weighted(), fields)))
    out = np.zeros((1, 1), np.int8)
    v3.enqueue(made, [np.full((1, 1), 10, np.int8), np.full((1, 1), 4, np.int8)], [out], 0)
    assert out.tolist() == [[6]]


def test_mixed_types_and_foreign_layouts_are_not_taken(driver):
    made = driver.create(Scale())
    dims = (1, 4, 2, 2)
    assert driver.accepts(made, [driver.desc(dims, DType.FLOAT16)] * 2, 1)
    assert not driver.accepts(made, [driver.desc(dims, DType.FLOAT16), driver.desc(dims, DType.FLOAT32)], 1)
    assert not driver.accepts(made, [driver.desc(dims, DType.INT32)] * 2, 1)
    if hasattr(driver.trt, "TensorFormat"):
        for layout in ("HWC", "CHW32", "HWC8"):
            assert not driver.accepts(made, [driver.desc(dims, DType.FLOAT32, layout=layout)] * 2, 1)


def test_free_dims_become_expressions_of_the_inputs_dims(driver):
    made = driver.create(ThirdOfChannels())
    for n in (1, 5, 8):
        exprs = driver.output_exprs(made, [(n, 9)], free=(0,))[0]
        assert [expr.value for expr in exprs] == list(ThirdOfChannels().output_dims((n, 9)))
        assert [expr.is_constant() for expr in exprs] == [False, False, True]
    assert all(expr.is_constant() for expr in driver.output_exprs(made, [(5, 9)])[0])


def test_a_rule_is_checked_on_the_dims_that_tensorrt_knows(driver):
    made = driver.create(Reorg(stride=2))
    driver.output_exprs(made, [(1, 8, 3, 3)], free=(2, 3))
    with pytest.raises(DimsError, match="height must be a multiple of 2, found 3"):
        driver.output_exprs(made, [(1, 8, 3, 4)], free=(0,))


def test_free_dims_that_must_be_equal_are_taken_for_equal_and_checked_at_run_time(driver):
    made = driver.create(Weighted())
    assert driver.output_exprs(made, [(2, 3), (2, 3)], free=(0,))[0][1].value == 3
    with pytest.raises(DimsError, match="equal dims"):
        driver.output_exprs(made, [(2, 3), (2, 4)], free=(0,))
    out = np.zeros((2, 3), np.float32)
    with pytest.raises(DimsError, match="equal dims"):
        driver.enqueue(driver.attach(made), [out, out[:1]], [out], 0)


def test_a_plugin_whose_output_depends_on_values_is_refused(driver):
    made = driver.create(NonZero())
    with pytest.raises(DimsError, match=r"'count' of output 0[\s\S]*depends on the inputs' values[\s\S]*Do:"):
        driver.output_exprs(made, [(2, 3)])


def test_the_number_of_outputs_is_known_before_any_dims(driver):
    assert driver.create(MeanAndRest()).num_outputs == 2
    assert driver.reload(driver.create(Reorg())).num_outputs == 1


def test_the_workspace_is_that_of_the_largest_dims(driver):
    made = driver.create(MeanAndRest())
    dims = [(2, 3, 4, 4), (2, 3), (2, 3, 16)]
    descs = [driver.desc(shape, DType.FLOAT32) for shape in dims]
    expected = 4 * 2 * 3 * (5 if driver.interface == "v3" else 1)  # V2 is asked with the largest dims already
    assert driver.configure(made, descs[:1], descs[1:], factor=5) == expected


def test_each_context_has_a_state_of_its_own_from_initialize_to_terminate(driver):
    Counting.log.clear()
    engine = driver.reload(driver.create(Counting()))
    contexts = [driver.attach(engine) for _ in range(2)]
    x, out = np.zeros((1, 2), np.float32), np.zeros((1, 2), np.float32)
    seen = list[Any]()
    for context in (0, 0, 1, 0):
        driver.enqueue(contexts[context], [x], [out], 0, changed=len(seen) in (0, 2))
        seen.append(int(out[0, 0]))
    assert seen == [1, 2, 1, 3]
    wide = np.zeros((3, 2), np.float32)
    driver.enqueue(contexts[1], [wide], [wide + 0], 0)
    for context in contexts:
        driver.destroy(context)
        driver.destroy(context)
    configured = [("configure", (1, 2)), "initialize"] * 2
    assert Counting.log == [*configured, ("configure", (3, 2)), ("terminate", 3), ("terminate", 2)]


def test_tactics_are_offered_and_chosen(v3):
    made = v3.create(TwoWays())
    assert v3.capability(made, "BUILD").get_valid_tactics() == [1, 2]
    assert v3.capability(v3.create(Scale()), "BUILD").get_valid_tactics() == []
    for tactic, name in ((0, "slow"), (2, "fast"), (1, "slow")):
        TwoWays.used.clear()
        v3.run(TwoWays(), arrays([(1, 2)]), tactic=tactic)
        assert set(TwoWays.used) == {name}
    with pytest.raises(PluginError, match="tactic 3 is unknown"):
        made.set_tactic(3)


def test_layers_with_other_fields_have_other_timings(v3):
    first, same, other = (v3.create(Scale(factor=factor)).timing_cache_id for factor in (1, 1, 3))
    assert first == same != other
    assert v3.create(Scale(factor=3)).metadata_string == "Scale(factor=3.0)"


def test_clones_are_equal_and_separate(driver):
    made = driver.create(Everything(required=5))
    copy = driver.trt.IPluginV2.clone(made) if driver.interface == "v2" else made.clone()
    assert copy.host.plugin == made.host.plugin
    assert copy.host.plugin is not made.host.plugin
    assert copy.num_outputs == 1


def test_fields_outlive_the_calls_that_give_them(v3):
    plugin = Everything(required=7, text="long enough for the heap " * 9)
    made = [v3.create(plugin) for _ in range(20)]
    collections = [item.get_fields_to_serialize() for item in made]
    gc.collect()
    _ = [np.random.default_rng(0).random(50) for _ in range(2000)]
    for collection in collections:
        texts = [bytes(field.data).decode() for field in collection if field.name == "text"]
        assert texts == [plugin.text]


def test_a_layout_with_channels_innermost_reaches_a_plugin_that_takes_it(driver):
    if not hasattr(driver.trt, "TensorFormat"):
        pytest.skip("the lean package has no TensorFormat")

    class Interleaved(Copy):
        """Takes NHWC only, and computes, which knows the order of axes alone."""

        def supports_format(self, position, descs):
            return descs[position].layout == "nhwc" and descs[position].dtype == DType.FLOAT16

    class Enqueuing(Interleaved):
        """Takes NHWC, and knows what it gets."""

        def enqueue(self, inputs, outputs, workspace, stream):
            outputs[0][...] = inputs[0]

    dims = (1, 4, 2, 2)
    for cls, taken in ((Interleaved, False), (Enqueuing, True)):
        made = driver.create(ptp.plugin(namespace="test.tensorrt")(cls)())
        assert driver.accepts(made, [driver.desc(dims, DType.FLOAT16, layout="HWC")] * 2, 1) == taken
        assert not driver.accepts(made, [driver.desc(dims, DType.FLOAT16)] * 2, 1)
