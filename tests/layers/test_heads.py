"""Region and Yolo against libdarknet and against their formulas."""

import ctypes

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytrtplugins.errors import DimsError, FieldError
from pytrtplugins.layers import Region, Yolo
from pytrtplugins.tensor import SymbolicDim

# darknet's library is compiled with -Ofast: its exponentials come from libm's float and vector functions, up to 4 ulp
# off. The logistic is computed in double there, as here, and comes out equal or 1 ulp off; a softmax divides two such sums.
LOGISTIC_ULP, SOFTMAX_ULP = 1, 8
FROM_DARKNET = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def ulps(left, right):
    """Distance in steps of float32; both are of one sign here."""
    return int(np.abs(left.view(np.int32).astype(np.int64) - right.view(np.int32)).max(initial=0))


def darknet(library, folder, section, x):
    """Output of a network that is this head alone."""
    _, c, h, w = x.shape
    cfg = folder / "head.cfg"
    cfg.write_text(f"[net]\nbatch=1\nchannels={c}\nheight={h}\nwidth={w}\n{section}")
    with library.load(cfg) as net:
        return net.predict(x[0]).reshape(x.shape)


def raw_values(plugin_channels, h, w, seed=0):
    return (np.random.default_rng(seed).standard_normal((1, plugin_channels, h, w)) * 6).astype(np.float32)


@given(st.tuples(*[st.integers(1, 4)] * 3), st.integers(1, 30), st.booleans(), st.booleans())
@FROM_DARKNET
def test_region_equals_libdarknet(libdarknet, tmp_path, dims, classes, softmax, background):
    num, h, w = dims
    region = Region(classes=classes, num=num, softmax=softmax, background=background)
    x = raw_values(num * region.entries, h, w)
    anchors = ",".join(["1"] * 2 * num)
    section = (
        f"[region]\nclasses={classes}\nnum={num}\nsoftmax={softmax:d}\nbackground={background:d}\nanchors={anchors}\n"
    )
    y = region.all_outputs([x])[0]
    assert ulps(y, darknet(libdarknet, tmp_path, section, x)) <= (SOFTMAX_ULP if softmax else LOGISTIC_ULP)


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 20))
@FROM_DARKNET
def test_yolo_equals_libdarknet(libdarknet, tmp_path, h, w, classes):
    yolo = Yolo(anchors=range(12), mask=(3, 1), classes=classes)
    x = raw_values(2 * yolo.entries, h, w)
    anchors = ",".join(map(str, range(12)))
    section = f"[yolo]\nmask=3,1\nanchors={anchors}\nclasses={classes}\nnum=6\n"
    assert ulps(yolo.all_outputs([x])[0], darknet(libdarknet, tmp_path, section, x)) <= LOGISTIC_ULP


TREE = (-1, -1, -1, 0, 0, 2, 2, 2)


def test_a_softmax_tree_is_darknets_softmax_on_each_group(libdarknet):
    # darknet's CPU head divides by a temperature that it leaves at 0; its GPU form calls the softmax like this
    softmax = ctypes.CDLL(str(libdarknet.path)).softmax_cpu
    pointer = np.ctypeslib.ndpointer(np.float32)
    softmax.argtypes = [pointer, *[ctypes.c_int] * 6, ctypes.c_float, pointer]
    softmax.restype = None
    region = Region(classes=len(TREE), num=3, tree=TREE)
    x = raw_values(3 * region.entries, 2, 5)
    expected, size = x.copy(), 2 * 5
    for begin, count in ((5, 3), (8, 2), (10, 3)):
        at = begin * size
        softmax(x.ravel()[at:], count, 3, region.entries * size, size, 1, size, 1, expected.reshape(-1)[at:])
    classes = (slice(None), slice(None), slice(5, None))
    shape = (1, 3, region.entries, 2, 5)
    found = np.ascontiguousarray(region.compute(x).reshape(shape)[classes])
    assert ulps(found, np.ascontiguousarray(expected.reshape(shape)[classes])) <= SOFTMAX_ULP


def test_each_group_of_a_tree_sums_to_one_for_every_anchor():
    region = Region(classes=len(TREE), num=3, tree=TREE)
    x = raw_values(3 * region.entries, 2, 2)
    y = region.compute(x).reshape(3, region.entries, 2, 2)[:, 5:]
    raw = np.exp(x.astype(np.float64)).reshape(3, region.entries, 2, 2)[:, 5:]
    for group in (slice(0, 3), slice(3, 5), slice(5, 8)):
        np.testing.assert_allclose(y[:, group], raw[:, group] / raw[:, group].sum(1, keepdims=True), rtol=1e-6)


def test_width_and_height_stay_raw_and_extra_coordinates_too():
    region = Region(classes=2, coords=6)
    x = raw_values(9, 2, 2)
    np.testing.assert_array_equal(region.compute(x)[:, 2:6], x[:, 2:6])


def test_large_values_give_zero_and_one_without_a_warning():
    y = Yolo(anchors=(1, 1), mask=(0,), classes=1).compute(np.full((1, 6, 1, 2), (-1e4, 1e4), np.float32))
    np.testing.assert_array_equal(y[0, [0, 1, 4, 5], 0], [[0, 1]] * 4)


def test_float16_stays_float16():
    region = Region(classes=3, softmax=True)
    x = raw_values(8, 2, 2).astype(np.float16)
    y = region.all_outputs([x])[0]
    assert y.dtype == np.float16
    np.testing.assert_allclose(y, region.compute(x.astype(np.float32)), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("head", [Region(classes=20, num=5), Yolo(anchors=range(12), mask=(0, 1, 2, 3, 4), classes=20)])
def test_channels_that_do_not_fit_are_refused_with_both_numbers(head):
    n = SymbolicDim("N")
    assert head.output_dims((n, 125, 13, 13)) == (n, 125, 13, 13)
    with pytest.raises(DimsError, match="must be 125, found 124"):
        head.output_dims((n, 124, 13, 13))
    with pytest.raises(DimsError, match="4 axes"):
        head.output_dims((125, 13, 13))


def test_fields_that_are_not_given_are_darknets():
    """Of parse_region and parse_yolo in src/parser.c; without anchors widths and heights stay as they are."""
    assert Region() == Region(anchors=(), classes=20, coords=4, num=1, softmax=False, background=False, tree=())
    yolo = Yolo(anchors=(1, 2), mask=(0,))
    assert yolo == Yolo(anchors=(1, 2), mask=(0,), classes=20, scale_x_y=1.0, new_coords=False)


def test_a_head_may_have_no_classes():
    assert Yolo(anchors=(1, 2), mask=(0,), classes=0).output_dims((1, 5, 3, 3)) == (1, 5, 3, 3)
    assert Region(classes=0).output_dims((1, 5, 3, 3)) == (1, 5, 3, 3)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Region(classes=-1), "classes"),
        (lambda: Region(coords=1), "coords"),
        (lambda: Region(num=0), "num"),
        (lambda: Region(anchors=(1, 2, 3), num=2), "anchors"),
        (lambda: Region(classes=2, tree=(-1,)), "tree"),
        (lambda: Region(classes=2, tree=(-1, 1)), "tree"),
        (lambda: Yolo(anchors=(1, 1), mask=(1,)), "mask"),
        (lambda: Yolo(anchors=(1, 1), mask=()), "mask"),
        (lambda: Yolo(anchors=(1, 1), mask=(0,), classes=-1), "classes"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(make, name):
    with pytest.raises(FieldError) as caught:
        make()
    assert caught.value.name == name
