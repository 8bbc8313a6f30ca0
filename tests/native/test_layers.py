"""The C++ layers against the Python ones, which tests/layers compares with darknet."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pytrtplugins as ptp
from pytrtplugins.check import isolate
from pytrtplugins.errors import PytrtpluginsError
from pytrtplugins.layers import Region, Reorg


@pytest.fixture(scope="module")
def twin(layers):
    """The C++ plugin with the same fields."""

    def twin_(plugin):
        return getattr(layers, type(plugin).__name__)(**plugin.fields())

    return twin_


def test_they_have_the_same_fields_defaults_and_int8(layers):
    for cls in (Reorg, Region):
        other = getattr(layers, cls.__name__)
        assert other.field_specs() == cls.field_specs()
        assert other.int8 == cls.int8


@pytest.mark.parametrize(
    "plugin",
    [
        Reorg(stride=3, reverse=True),
        Region(classes=2, softmax=True, background=True),
        *(
            pytest.param(plugin, marks=pytest.mark.slow)
            for plugin in (
                Reorg(stride=2),
                Region(classes=3, softmax=True, num=2),
                Region(classes=4, tree=(-1, -1, 0, 0)),
            )
        ),
    ],
    ids=str,
)
def test_they_pass_check_plugin(twin, plugin):
    ptp.check_plugin(twin(plugin)).raise_if_failed()


def run_nhwc(plugin, x):
    """Enqueue on memory that has the channels innermost."""

    def innermost(dims):
        return dims[0], *dims[2:], dims[1]

    plugin = plugin.clone()
    (dims,) = plugin.all_output_dims([x.shape])
    y = np.zeros(dims, x.dtype)
    descs = [ptp.TensorDesc(name, array.shape, ptp.DType.of(array), "nhwc") for name, array in (("x", x), ("y", y))]
    assert all(plugin.supports_format(position, descs) for position in (0, 1))
    plugin.configure(descs[:1], descs[1:])
    plugin.initialize()
    plugin.enqueue([np.ascontiguousarray(x.transpose(0, 2, 3, 1)).reshape(x.shape)], [y], None, None)
    plugin.terminate()
    return y.reshape(innermost(dims)).transpose(0, 3, 1, 2)


@given(n=st.integers(0, 2), k=st.integers(1, 3), h=st.integers(1, 4), w=st.integers(1, 4), s=st.integers(1, 3),
       reverse=st.booleans(), dtype=st.sampled_from(["float32", "float16", "int8"]))  # fmt: skip
def test_reorg_is_the_same_permutation_in_either_layout(twin, n, k, h, w, s, reverse, dtype):
    x = np.random.default_rng(0).integers(-128, 128, (n, k * s * s, h * s, w * s)).astype(dtype)
    plugin = Reorg(stride=s, reverse=reverse)
    np.testing.assert_array_equal(twin(plugin).compute(x), plugin.compute(x))
    if n:
        np.testing.assert_array_equal(run_nhwc(twin(plugin), x), plugin.compute(x))


def test_other_layouts_are_refused_by_supports_format(layers):
    plugin = layers.Reorg(stride=2)
    descs = [ptp.TensorDesc("x", (1, 4, 2, 2), layout="chw32"), ptp.TensorDesc("y", (1, 16, 1, 1))]
    assert not plugin.supports_format(0, descs)
    assert plugin.supports_format(0, descs[::-1])
    assert not plugin.supports_format(1, descs[::-1])


REGIONS = [
    Region(classes=3), Region(classes=3, softmax=True, num=2), Region(classes=2, softmax=True, background=True),
    Region(classes=3, background=True), Region(classes=0), Region(coords=2, classes=1, softmax=True),
    Region(classes=6, tree=(-1, -1, 0, 0, 0, 1), num=2), Region(coords=6, classes=0, background=True),
]  # fmt: skip


@pytest.mark.parametrize("plugin", REGIONS, ids=repr)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_region_has_the_same_values(twin, plugin, dtype):
    rng = np.random.default_rng(2)
    x = (rng.standard_normal((2, plugin.num * plugin.entries, 5, 3)) * 8).astype(dtype)
    x[0, :, 0, 0] = -100
    x[1, :, 0, 0] = 70
    expected, found = plugin.compute(x), twin(plugin).compute(x)
    assert found.dtype == expected.dtype
    # one unit in the last place: NumPy's exp in double may differ from the C library's in its last bit
    np.testing.assert_array_max_ulp(found, expected, 1)
    np.testing.assert_array_equal(run_nhwc(twin(plugin), x), found)


@pytest.mark.parametrize("cls", [Reorg, Region])
def test_they_accept_and_refuse_the_same_dims(layers, cls):
    rng = np.random.default_rng(3)
    other = getattr(layers, cls.__name__)
    for _ in range(200):
        fields = (
            {"stride": int(rng.integers(1, 4)), "reverse": bool(rng.integers(2))} if cls is Reorg else {"classes": 1}
        )
        dims = tuple(map(int, rng.integers(1, 19, rng.choice([3, 4, 4, 4, 5]))))
        results = []
        for plugin in (cls(**fields), other(**fields)):
            try:
                results.append(plugin.all_output_dims([dims]))
            except PytrtpluginsError as error:
                results.append((type(error), error.facts.get("by"), error.facts.get("expected")))
        assert results[0] == results[1], (fields, dims)


@pytest.mark.parametrize(("cls", "fields"), [
    (Reorg, {"stride": 0}), (Region, {"classes": -1}), (Region, {"coords": 1}), (Region, {"num": 0}),
    (Region, {"anchors": (1.0,)}), (Region, {"tree": (0,), "classes": 1}), (Region, {"tree": (-1,)})])  # fmt: skip
def test_they_refuse_the_same_fields(layers, cls, fields):
    with pytest.raises(ptp.errors.FieldError) as expected:
        cls(**fields)
    with pytest.raises(ptp.errors.FieldError) as found:
        getattr(layers, cls.__name__)(**fields)
    assert str(found.value) == str(expected.value)


def test_cuda_that_is_in_use_keeps_the_check_in_this_process(layers, monkeypatch):
    plugin = layers.Reorg()
    assert isolate.unavailable_reason(plugin) == ""
    monkeypatch.setattr(isolate, "_cuda_is_initialized", lambda: True)
    monkeypatch.setattr(type(plugin.handle), "runs_on_gpu", lambda handle: True)
    assert "Do: check it before the GPU is used" in isolate.unavailable_reason(plugin)
    monkeypatch.setattr(isolate, "run", lambda *facts: pytest.fail("a process was forked"))
    report = ptp.check_plugin(plugin, shapes=[(1, 4, 2, 2)], engines=[])
    assert report.ok
    skipped = {entry.name: entry.detail for entry in report.entries if entry.skipped}
    assert "C++ code may call CUDA" in skipped["memory"]
