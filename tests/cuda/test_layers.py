"""The package's kernels against `compute`, on a CPU: the same source that a GPU runs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytrtplugins import DType, TensorDesc, check_plugin
from pytrtplugins.cuda.backends import host as host_backend
from pytrtplugins.layers import Region, Reorg, Yolo

pytestmark = pytest.mark.skipif(not host_backend.available(), reason="no C++ compiler (apt-get install g++)")

FLOATS = ("float32", "float16")
sides = st.integers(1, 6)


def values(shape, dtype, seed):
    rng = np.random.default_rng(seed)
    if dtype == "int8":
        return rng.integers(-128, 128, shape).astype(np.int8)
    return (4 * rng.standard_normal(shape)).astype(dtype)


def to_nhwc(x):
    """The same dims, with the channels innermost in memory, as an engine hands them over: a contiguous buffer."""
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).reshape(x.shape)


def from_nhwc(buffer, dims):
    n, c, h, w = dims
    return buffer.reshape(n, h, w, c).transpose(0, 3, 1, 2)


def run(plugin, x, layout="linear", xp=np):
    """What enqueue writes, in NCHW, on NumPy's arrays or CuPy's."""
    dtype = DType.of(x)
    dims = plugin.all_output_dims([x.shape])[0]
    descs = [TensorDesc("x", x.shape, dtype, layout)], [TensorDesc("y", dims, dtype, layout)]
    plugin.configure(*descs)
    assert all(plugin.supports_format(position, [*descs[0], *descs[1]]) for position in (0, 1))
    y = xp.full(dims, 85 if dtype is DType.INT8 else np.nan, dtype.numpy)
    plugin.enqueue([xp.asarray(to_nhwc(x) if layout == "nhwc" else x)], [y], None, None)
    y = y if xp is np else y.get()
    return from_nhwc(y, dims) if layout == "nhwc" else y


def same_bits(found, expected):
    np.testing.assert_array_equal(found, expected, strict=True)


@given(
    n=st.integers(1, 2), maps=st.sampled_from([1, 2, 3, 4, 8, 16]), h=sides, w=st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 17, 20, 24]),
    stride=st.integers(1, 5), reverse=st.booleans(), dtype=st.sampled_from([*FLOATS, "int8"]),
    layout=st.sampled_from(["linear", "nhwc"]), tall=st.booleans(),
)  # fmt: skip
def test_reorg_moves_each_value_where_compute_does(n, maps, h, w, stride, reverse, dtype, layout, tall):
    rows = h * (1 if reverse else stride * (stride if tall else 1))
    x = values((n, maps * stride**2, rows, w * (1 if reverse else stride)), dtype, maps)
    plugin = Reorg(stride=stride, reverse=reverse)
    same_bits(run(plugin, x, layout), plugin.compute(x))


BOTH, LINEAR, NHWC = ("linear", "nhwc"), ("linear",), ("nhwc",)


@pytest.mark.parametrize("dtype", [*FLOATS, "int8"])
@pytest.mark.parametrize(
    ("plugin", "dims", "layouts"),
    [  # of YOLOv2, and of more than one block; short rows; channels of two rows where 4 does not divide the height
        *((Reorg(stride=2, reverse=reverse), dims, BOTH) for reverse in (False, True)
          for dims in ((2, 64, 26, 26), (1, 256, 32, 64), (1, 64, 10, 24))),
        *((Reorg(stride=2, reverse=True), dims, LINEAR) for dims in ((2, 64, 13, 13), (1, 64, 24, 27))),
        (Reorg(stride=4, reverse=True), (1, 256, 9, 13), LINEAR),
        *((Reorg(stride=2), (2, 32, height, 10), NHWC) for height in (2, 6, 22, 26)),
    ],
    ids=str,
)  # fmt: skip
def test_reorg_of_more_than_one_block_moves_each_value_where_compute_does(plugin, dims, layouts, dtype):
    x = values(dims, dtype, 3)
    for layout in layouts:
        same_bits(run(plugin, x, layout), plugin.compute(x))


@given(
    n=st.integers(1, 2), num=st.integers(1, 3), classes=st.integers(0, 7), coords=st.integers(2, 5), softmax=st.booleans(),
    background=st.booleans(), h=sides, w=sides, dtype=st.sampled_from(FLOATS), layout=st.sampled_from(["linear", "nhwc"]),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_region_has_the_bits_of_compute(n, num, classes, coords, softmax, background, h, w, dtype, layout, seed):
    plugin = Region(classes=classes, coords=coords, num=num, softmax=softmax, background=background)
    x = values((n, num * plugin.entries, h, w), dtype, seed)
    same_bits(run(plugin, x, layout), plugin.compute(x))


@settings(max_examples=20)
@given(
    parents=st.lists(st.integers(0, 3), min_size=1, max_size=12), dtype=st.sampled_from(FLOATS), seed=st.integers(0, 9)
)
def test_region_with_a_tree_has_the_bits_of_compute(parents, dtype, seed):
    tree = tuple(sorted(min(parent, index) - 1 for index, parent in enumerate(parents)))
    plugin = Region(classes=len(tree), num=2, tree=tree)
    x = values((1, 2 * plugin.entries, 3, 5), dtype, seed)
    for layout in ("linear", "nhwc"):
        same_bits(run(plugin, x, layout), plugin.compute(x))


@given(
    n=st.integers(1, 2), boxes=st.integers(1, 3), classes=st.integers(0, 7), h=sides, w=sides,
    scale=st.sampled_from([1.0, 1.05, 1.2, 2.0]), new_coords=st.booleans(), dtype=st.sampled_from(FLOATS),
    layout=st.sampled_from(["linear", "nhwc"]), seed=st.integers(0, 99),
)  # fmt: skip
def test_yolo_has_the_bits_of_compute(n, boxes, classes, h, w, scale, new_coords, dtype, layout, seed):
    plugin = Yolo(
        anchors=(10, 13) * 3, mask=tuple(range(boxes)), classes=classes, scale_x_y=scale, new_coords=new_coords
    )
    x = values((n, boxes * plugin.entries, h, w), dtype, seed)
    same_bits(run(plugin, x, layout), plugin.compute(x))


@pytest.mark.parametrize("extreme", [0.0, -0.0, 88.8, -88.8, 104.0, -104.0, 750.0, -750.0, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", FLOATS)
def test_the_logistic_keeps_its_bits_at_the_ends_of_the_range(extreme, dtype):
    plugin = Region(classes=3)
    x = np.full((1, plugin.entries, 2, 2), extreme, np.float64).astype(dtype)
    same_bits(run(plugin, x), plugin.compute(x))


@pytest.mark.parametrize("plugin", [Reorg(stride=2), pytest.param(Reorg(stride=2, reverse=True), marks=pytest.mark.slow),
                                    Region(classes=3, num=2, softmax=True),
                                    Yolo(anchors=(10, 13, 16, 30), mask=(0, 1), classes=2, scale_x_y=1.2)], ids=repr)  # fmt: skip
def test_check_plugin_compares_enqueue_with_compute(plugin):
    report = check_plugin(plugin, engines=[])
    report.raise_if_failed()
    assert not {entry.name: entry for entry in report.entries}["enqueue"].skipped


def test_a_tensor_of_another_layout_is_refused():
    descs = [TensorDesc("x", (1, 4, 2, 2), DType.FLOAT32, "nhwc"), TensorDesc("y", (1, 16, 1, 1), DType.FLOAT32)]
    assert not Reorg(stride=2).supports_format(1, descs)
    assert not Reorg(stride=2).supports_format(0, [TensorDesc("x", (1, 4, 2, 2), DType.FLOAT32, "chw32")])
    assert not Region().supports_format(0, [TensorDesc("x", (1, 25, 2, 2), DType.INT8)])
