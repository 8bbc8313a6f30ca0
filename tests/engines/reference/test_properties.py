"""The reference engine's windows, slices and sizes on random attributes, against onnxruntime."""

import numpy as np
import onnxruntime as ort
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.engines.operators import both, f, ints


def pairs(low, high):
    return st.lists(st.integers(low, high), min_size=2, max_size=2)


def agree(op, inputs, attributes, tolerance=0.0):
    (found,), (wanted,) = both(op, inputs, attributes)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


WINDOWS = st.fixed_dictionaries(
    {
        "kernel": pairs(1, 3),
        "dims": pairs(1, 7),
        "strides": pairs(1, 3),
        "pads": st.lists(st.integers(0, 2), min_size=4, max_size=4),
        "dilations": pairs(1, 2),
        "group": st.sampled_from([1, 2, 4]),
    }
)


def said(case, *others):
    """Attributes of a case: those of every window, and others."""
    return {name: case[name] for name in ("strides", "pads", "dilations", *others)}


def room(case, dilated=True):
    """How many pixels the padded image has beyond one window: negative where it does not fit."""
    reach = [(k - 1) * (d if dilated else 1) + 1 for k, d in zip(case["kernel"], case["dilations"], strict=True)]
    return [
        d + case["pads"][k] + case["pads"][k + 2] - r for k, (d, r) in enumerate(zip(case["dims"], reach, strict=True))
    ]


def with_small_pads(case):
    """The case with pads that are smaller than the kernel, as onnxruntime requires of pools."""
    pads = [min(p, k - 1) for p, k in zip(case["pads"], case["kernel"] * 2, strict=True)]
    return {**case, "pads": pads}


@given(WINDOWS)
def test_convolutions_equal_onnxruntimes(case):
    assume(min(room(case)) >= 0)
    weight = f(8, 4 // case["group"], *case["kernel"])
    agree("Conv", [f(2, 4, *case["dims"]), weight, f(8)], said(case, "group"), 1e-5)


@given(WINDOWS, pairs(0, 1))
def test_transposed_convolutions_equal_onnxruntimes(case, extra):
    extra = [min(e, s - 1) for e, s in zip(extra, case["strides"], strict=True)]  # less than a stride
    whole = [(d - 1) * s + (k - 1) * step + 1 + e for d, s, k, step, e in zip(
        case["dims"], case["strides"], case["kernel"], case["dilations"], extra, strict=True)]  # fmt: skip
    assume(all(size > low + high for size, low, high in zip(whole, case["pads"][:2], case["pads"][2:], strict=True)))
    weight = f(4, 6 // (1 if case["group"] == 1 else 2), *case["kernel"])
    attributes = {**said(case, "group"), "output_padding": extra}
    agree("ConvTranspose", [f(2, 4, *case["dims"]), weight], attributes, 1e-5)


@given(WINDOWS.map(with_small_pads), st.booleans())
def test_max_pools_equal_onnxruntimes(case, ceil):
    assume(min(room(case)) >= 0)
    attributes = {**said(case), "ceil_mode": int(ceil), "kernel_shape": case["kernel"]}
    agree("MaxPool", [f(2, 3, *case["dims"])], attributes)


@given(WINDOWS.map(with_small_pads), st.booleans(), st.booleans())
def test_average_pools_equal_onnxruntimes(case, ceil, counted):
    assume(min(room(case, dilated=False)) >= 0)
    if ort.__version__.startswith("1.23."):
        ceil = ceil and not counted  # it counts what ceil_mode adds, too
    attributes = {"strides": case["strides"], "pads": case["pads"], "kernel_shape": case["kernel"]}
    attributes |= {"ceil_mode": int(ceil), "count_include_pad": int(counted)}
    agree("AveragePool", [f(2, 3, *case["dims"])], attributes, 2e-6)


BOUND = st.integers(-12, 12)
BOUNDS = st.lists(st.tuples(BOUND, BOUND, st.sampled_from([-3, -2, -1, 1, 2, 3])), min_size=2, max_size=2)


@given(pairs(1, 6), BOUNDS, st.booleans())
def test_slices_equal_onnxruntimes(dims, bounds, counted_back):
    starts, ends, steps = (ints(*column) for column in zip(*bounds, strict=True))
    agree("Slice", [f(*dims), starts, ends, ints(-1, -2) if counted_back else ints(1, 0), steps], {})


@given(pairs(1, 5), st.lists(st.integers(-2, 3), min_size=4, max_size=4))
def test_pads_that_add_and_cut_equal_onnxruntimes(dims, pads):
    assume(all(d + min(low, 0) + min(high, 0) > 0 for d, low, high in zip(dims, pads[:2], pads[2:], strict=True)))
    agree("Pad", [f(*dims), ints(*pads), np.float32(7)], {})


PLACES = st.sampled_from(["asymmetric", "half_pixel", "align_corners"])
ROUNDINGS = st.sampled_from(["floor", "ceil"])  # the others differ where a place is within rounding of a half


def counted(dims):
    return np.arange(np.prod(dims), dtype=np.float32).reshape(1, 1, *dims)


@given(pairs(1, 13), pairs(1, 29), PLACES, ROUNDINGS)
def test_resizing_to_sizes_equals_onnxruntimes(dims, wanted_dims, place, rounding):
    attributes = {"mode": "nearest", "coordinate_transformation_mode": place, "nearest_mode": rounding}
    agree("Resize", [counted(dims), None, None, ints(1, 1, *wanted_dims)], attributes)


@given(pairs(1, 13), st.lists(st.floats(0.25, 4, width=32), min_size=2, max_size=2))
def test_resizing_by_factors_equals_onnxruntimes(dims, factors):
    wanted_dims = [int(np.float32(d) * np.float32(s)) for d, s in zip(dims, factors, strict=True)]
    assume(min(wanted_dims) > 0 and wanted_dims != dims)  # onnxruntime copies where no dim changes, as 2 by 1.25
    attributes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    agree("Resize", [counted(dims), None, np.array([1, 1, *factors], np.float32)], attributes)


@given(pairs(1, 3), st.lists(st.booleans(), min_size=2, max_size=2), *[st.integers(1, 4)] * 3)
def test_batched_matrix_products_equal_onnxruntimes(batch, shared, rows, inner, columns):
    other = [1 if same else size for size, same in zip(batch, shared, strict=True)]
    agree("MatMul", [f(*batch, rows, inner), f(*other, inner, columns)], {}, 1e-5)
