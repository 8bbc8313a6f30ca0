"""Forms of operators with each parameter at, below and beyond its limits: sizes, ends, ties, negative axes, empty parts.

The generator of forms (benchmarks/forms) draws what a schema allows; these are the values at which results change. `expected` has
the right values: onnxruntime's, node by node, or a formula where onnxruntime refuses forms that ONNX describes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.engines.operators import f, ints, literal, model_of

Case = tuple[list[Any], dict[str, Any], int]
"""Inputs, attributes, number of outputs."""
ROW = np.arange(1, 7, dtype=np.float32)
TABLE = np.arange(12, dtype=np.float32).reshape(3, 4)
TIES = np.array([[3, 1, 3, 2], [1, 1, 1, 1], [0, 2, 2, 0]], np.float32)
IMAGE = f(1, 2, 5, 6)


def _options(**values: Any) -> Iterator[dict[str, Any]]:
    """Each combination of the values, without those that are None."""
    for chosen in itertools.product(*values.values()):
        yield {name: value for name, value in zip(values, chosen, strict=True) if value is not None}


def _slices() -> Iterator[Case]:
    places = (-(2**63), -5, -4, -3, -1, 0, 3, 4, 5, 2**62)
    for begin, end, step in itertools.product(places, places, (-3, -1, 2)):
        yield [TABLE, ints(begin), ints(end), ints(-1), ints(step)], {}, 1
    yield [TABLE, ints(-1, 0), ints(-5, 2), ints(1, 0), ints(-1, 1)], {}, 1
    yield [TABLE, ints(1, 1), ints(3, 3)], {}, 1


def _pads() -> Iterator[Case]:
    for mode, begin, end in itertools.product(("constant", "edge", "reflect", "wrap"), range(-2, 4), range(-1, 4)):
        if mode != "constant" and min(begin, end) < 0 and max(begin, end) > 1:
            continue  # onnxruntime refuses what reaches behind what is left
        yield [TABLE, ints(0, begin, 1, end), np.float32(-7)], {"mode": mode}, 1
        yield [TABLE, ints(begin, end), np.float32(-7), ints(-1)], {"mode": mode}, 1


def _windows(op: str) -> Iterator[Case]:
    extra: dict[str, Any] = {"ceil_mode": (None, 1)}
    if op == "MaxPool":
        extra |= {"dilations": (None, [2, 1])}
    if op == "AveragePool":
        extra |= {"count_include_pad": (None, 1)}
    if op == "LpPool":
        extra |= {"p": (None, 1, 3)}
    for options in _options(kernel_shape=([1, 1], [2, 3], [3, 2]), strides=(None, [2, 2], [1, 3]), **extra):
        for pads in ({}, {"pads": [1, 0, 0, 1]}, {"pads": [0, 1, 1, 1]}, {"auto_pad": "SAME_UPPER"},
                     {"auto_pad": "SAME_LOWER"}, {"auto_pad": "VALID"}):  # fmt: skip
            if "pads" in pads and max(pads["pads"]) >= min(options["kernel_shape"]):
                continue
            if "auto_pad" in pads and (
                "dilations" in options
                or "ceil_mode" in options
                or min(options["kernel_shape"]) < max(options.get("strides", [1]))
            ):
                continue  # onnxruntime counts no dilation, rounds up where ONNX does not, and has negative pads
            yield [np.round(4 * IMAGE)], options | pads, 1


def _convolutions(op: str) -> Iterator[Case]:
    for group, kernel, bias in itertools.product((1, 2), ((1, 1), (2, 3), (3, 4)), (False, True)):
        weights = f(4, 2 // group, *kernel) if op == "Conv" else f(2, 4 // group, *kernel)
        for options in _options(strides=(None, [2, 3]), dilations=(None, [2, 1]), group=(group,)):
            pads: list[dict[str, Any]] = [{}, {"pads": [1, 0, 0, 1]}, {"auto_pad": "SAME_UPPER"}]
            pads += [{"auto_pad": "SAME_LOWER"}, {"auto_pad": "VALID"}]
            if "dilations" in options or min(kernel) < 3:  # onnxruntime refuses these, or gives other dims than ONNX
                pads = [each for each in pads if "SAME" not in each.get("auto_pad", "")]
            pads += [{"output_padding": [1, 0]}] if op == "ConvTranspose" and "strides" in options else []
            for each in pads:
                yield [IMAGE, weights, *([f(4)] if bias else [])], options | each, 1


def _reductions(op: str) -> Iterator[Case]:
    x = abs(TIES - 1) + 1 if op in ("ReduceLogSum", "ReduceProd") else TIES - 1
    for axes, options in itertools.product(
        (None, [0], [1], [-1], [-2], [0, 1], [1, 0]), _options(keepdims=(None, 0), noop_with_empty_axes=(None, 1))
    ):
        yield [x, *([] if axes is None else [ints(*axes)])], options, 1


def _choices(op: str) -> Iterator[Case]:
    for options in _options(axis=(None, 0, 1, -1, -2), keepdims=(None, 0), select_last_index=(None, 1)):
        yield [TIES], options, 1


def _cumulative(op: str) -> Iterator[Case]:
    for axis, options in itertools.product((0, 1, -1, -2), _options(exclusive=(None, 1), reverse=(None, 1))):
        yield [TABLE + 1, np.int64(axis)], options, 1


def _top_k() -> Iterator[Case]:
    for options in _options(axis=(None, 0, -2), largest=(None, 0)):
        for count in range(1, (4 if "axis" not in options else 3) + 1):
            yield [TIES, ints(count)], options, 2


def _lrn() -> Iterator[Case]:
    for size, alpha, beta, bias in itertools.product(range(1, 7), (None, 0.5), (None, 0.5), (None, 2.0)):
        yield [f(2, 5, 2, 3)], next(_options(size=(size,), alpha=(alpha,), beta=(beta,), bias=(bias,))), 1


def _scatters(op: str) -> Iterator[Case]:
    for reduction in ("none", "add", "mul", "min", "max"):
        indices = np.array([[0, -1, 1], [1, 2, -3]]) if reduction == "none" else np.array([[0, -1, 0], [1, 1, -3]])
        updates = np.array([[5, -2, 3], [0.5, 4, 2]], np.float32)
        if op == "ScatterElements":
            for axis in (None, 0, 1, -1):
                rows = indices.T.copy() if axis in (1, -1) else indices
                values = updates.T.copy() if axis in (1, -1) else updates
                yield [f(3, 3), rows, values], next(_options(axis=(axis,), reduction=(reduction,))), 1
        else:
            for places in (indices[:, 1:], indices[:, :1], indices[..., None]):
                shape = (*places.shape[:-1], *(3, 2)[places.shape[-1] :])
                yield [f(3, 2) if places.shape[-1] == 1 else f(3, 3),
                       places, f(*(places.shape[:-1] if places.shape[-1] == 2 else shape))], {"reduction": reduction}, 1  # fmt: skip


def _one_hots() -> Iterator[Case]:
    for axis, depth in itertools.product((None, 0, 1, 2, -2, -3), (1, 3)):
        indices = np.array([[0, -1, depth - 1], [-depth, depth, -depth - 1]])
        yield [indices, np.int64(depth), np.float32([-2, 7])], next(_options(axis=(axis,))), 1


def _triangles() -> Iterator[Case]:
    for offset, upper in itertools.product((None, *range(-4, 6)), (None, 0)):
        yield [TABLE, *([] if offset is None else [np.int64(offset)])], next(_options(upper=(upper,))), 1


def _reversed_sequences() -> Iterator[Case]:
    for lengths in itertools.product((0, 1, 2, 3), repeat=3):
        if min(lengths):
            yield [np.stack([TABLE[:, :3], -TABLE[:, :3]], -1), ints(*lengths)], {"time_axis": 0, "batch_axis": 1}, 1
            yield [np.stack([TABLE[:, :3], -TABLE[:, :3]], -1), ints(*lengths)], {"time_axis": 1, "batch_axis": 0}, 1


def _resizes() -> Iterator[Case]:
    nearest = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    places = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    for size, place, rounding in itertools.product((1, 2, 3, 4, 6, 9, 12), places, nearest):
        at = {"mode": "nearest", "coordinate_transformation_mode": place, "nearest_mode": rounding}
        yield [ROW.reshape(1, 1, 1, 6), None, None, ints(1, 1, 1, size)], at, 1
    for size, place, mode in itertools.product((1, 2, 3, 4, 6, 9, 12), places, ("linear", "cubic")):
        at = {"mode": mode, "coordinate_transformation_mode": place}
        yield [np.stack([ROW, ROW**2]).reshape(1, 1, 2, 6), None, None, ints(1, 1, 2, size)], at, 1


def _lrn_values(x: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Any:
    """ONNX's formula; onnxruntime refuses even sizes."""
    channels = x.shape[1]
    runs = [slice(max(0, c - (size - 1) // 2), min(channels - 1, c + -(-(size - 1) // 2)) + 1) for c in range(channels)]
    sums = np.stack([(x[:, run].astype(np.float64) ** 2).sum(1) for run in runs], 1)
    return (x / (bias + alpha / size * sums) ** beta).astype(x.dtype)


def _codes(op: str) -> Iterator[Case]:
    halves = np.arange(-600, 600, dtype=np.float32).reshape(2, 2, 300) / 2
    for kind, axis in itertools.product((np.uint8, np.int8), (None, 0, 1, -2)):
        many = axis is not None
        scale = np.float32([1, 2]) if many else np.float32(1)
        zero = np.array([3, 100], kind) if many else np.array(3, kind)
        x = halves if op == "QuantizeLinear" else np.arange(-128, 128).astype(kind).reshape(2, 2, 64)
        yield [x, scale, zero], next(_options(axis=(axis,))), 1


def _suppressions() -> Iterator[Case]:
    half = np.array([[[0, 0, 2, 4], [0, 1, 2, 5], [0, 2, 2, 6], [0, 9, 2, 13], [2, 4, 0, 0]]], np.float32)  # 6/10, 4/12
    scores = np.array([[[0.5, 0.75, 0.25, 0.125, 0.5], [0.25, 0.25, 0.25, 0.25, 0.25]]], np.float32)
    for most, overlap, least in itertools.product((0, 1, 2, 5), (0.0, 1 / 3, 0.6, 1.0), (None, 0.125, 0.25, 0.75)):
        limits = [ints(most), np.float32([overlap]), *([] if least is None else [np.float32([least])])]
        yield [half, scores, *limits], {}, 1
    centred = np.concatenate([(half[..., :2] + half[..., 2:]) / 2, abs(half[..., 2:] - half[..., :2])], -1)
    yield [centred, scores, ints(5), np.float32([0.5])], {"center_point_box": 1}, 1


def _gathers() -> Iterator[Case]:
    for axis, indices in itertools.product(
        (None, 0, 1, -1), (np.int64(-1), ints(0, 2, -3), np.array([[-1], [1]], np.int32))
    ):
        yield [TABLE, indices], next(_options(axis=(axis,))), 1


def _splits() -> Iterator[Case]:
    for sizes in ((1, 3), (4, 0), (0, 4), (2, 1, 1)):
        yield [TABLE, ints(*sizes)], {"axis": -1}, len(sizes)
    yield [TABLE, ints(1, 2)], {}, 2


def _blocks(op: str) -> Iterator[Case]:
    x = np.arange(96, dtype=np.float32)
    if op == "SpaceToDepth":
        yield [x.reshape(2, 3, 4, 4)], {"blocksize": 2}, 1
        return
    for mode in (None, "DCR", "CRD"):
        yield [x.reshape(2, 8, 2, 3)], next(_options(blocksize=(2,), mode=(mode,))), 1


REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
SWEEPS: dict[str, list[Case]] = {
    "Slice": list(_slices()),
    "Pad": list(_pads()),
    **{op: list(_windows(op)) for op in ("MaxPool", "AveragePool", "LpPool")},
    **{op: list(_convolutions(op)) for op in ("Conv", "ConvTranspose")},
    **{f"Reduce{name}": list(_reductions(f"Reduce{name}")) for name in REDUCTIONS},
    **{op: list(_choices(op)) for op in ("ArgMax", "ArgMin")},
    "CumSum": list(_cumulative("CumSum")),
    "TopK": list(_top_k()),
    "LRN": list(_lrn()),
    **{op: list(_scatters(op)) for op in ("ScatterElements", "ScatterND")},
    "OneHot": list(_one_hots()),
    "Trilu": list(_triangles()),
    "ReverseSequence": list(_reversed_sequences()),
    "Resize": list(_resizes()),
    **{op: list(_codes(op)) for op in ("QuantizeLinear", "DequantizeLinear")},
    "NonMaxSuppression": list(_suppressions()),
    "Gather": list(_gathers()),
    "Split": list(_splits()),
    **{op: list(_blocks(op)) for op in ("DepthToSpace", "SpaceToDepth")},
}
"""Operator → its forms, of opset 18."""


def expected(op: str, case: Case) -> list[Any]:
    """The outputs of a form."""
    inputs, attributes, outputs = case
    if op == "LRN":
        return [_lrn_values(*inputs, **attributes)]
    return list(literal(model_of(op, inputs, attributes, outputs), {"x0": inputs[0]}))


def assert_right(op: str, compute: Callable[..., Any]) -> None:
    """Compare what a function of attributes, expected outputs and inputs gives for each form of an operator."""
    for case in SWEEPS[op]:
        wanted = expected(op, case)
        with np.errstate(all="ignore"):
            results = compute(case[1], wanted, *case[0])
        results = results if isinstance(results, list) else [results]
        shown = f"{op} {case[1]} of {[value if np.size(value) < 13 else np.shape(value) for value in case[0][1:]]}"
        assert [np.shape(each) for each in results] == [each.shape for each in wanted], shown
        for result, each in zip(results, wanted, strict=True):
            np.testing.assert_allclose(result, each, rtol=1e-5, atol=1e-5, err_msg=shown)
