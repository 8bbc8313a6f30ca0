"""Pooling of caffe files in every small window, against caffe's loops (src/caffe/layers/pooling_layer.cpp)."""

import itertools

import numpy as np
import pytest

from darknet2caffe.from_caffe import from_caffe
from pytrtplugins.errors import ModelError
from tests.darknet2caffe.caffe import write_caffe
from tests.darknet2caffe.networks import run
from tests.darknet2caffe.test_from_caffe_others import layer

HEADER, SIZES = 'input: "data" input_dim: [1, 2, 5, 4] ', (5, 4)
X = np.random.default_rng(0).normal(0, 1, (1, 2, *SIZES)).astype(np.float32)
WINDOWS = [w for w in itertools.product((1, 2, 3), (1, 2, 3), (0, 1)) if w[2] < w[0]]  # size, stride, pad of one axis


def spans(size, window, padded, up):
    """First and last position of each window in the padded axis, as caffe counts them."""
    kernel, stride, pad = window
    count = int((np.ceil if up else np.floor)((size + 2 * pad - kernel) / stride)) + 1
    if padded and (count - 1) * stride >= size + pad:
        count -= 1
    begins = [place * stride - pad for place in range(count)]
    return [(begin, min(begin + kernel, size + pad)) for begin in begins]


def pooled(kind, axes):
    """Largest or mean value of each window; a mean divides by what lies in the padded map."""
    out = np.empty((*X.shape[:2], *map(len, axes)), np.float32)
    for (i, (top, bottom)), (j, (left, right)) in itertools.product(*map(enumerate, axes)):
        inside = X[:, :, max(top, 0) : min(bottom, SIZES[0]), max(left, 0) : min(right, SIZES[1])]
        mean = inside.sum((2, 3)) / ((bottom - top) * (right - left))
        out[:, :, i, j] = mean if kind == "AVE" else inside.max((2, 3))
    return out


@pytest.mark.parametrize("kind", ["MAX", "AVE"])
@pytest.mark.parametrize("mode", ["CEIL", "FLOOR"])
def test_windows_are_those_of_caffe(tmp_path, kind, mode):
    text, expected = HEADER, {}
    for number, window in enumerate(itertools.product(WINDOWS, WINDOWS)):
        padded, names = any(pad for _, _, pad in window), ("kernel", "stride", "pad")
        axes = [spans(size, part, padded, mode == "CEIL") for size, part in zip(SIZES, window, strict=True)]
        sides = [f"{name}_{side}: {value}" for side, part in zip("hw", window) for name, value in zip(names, part)]  # noqa: B905
        pooling = layer(
            "Pooling", f"pooling_param {{ pool: {kind} round_mode: {mode} {' '.join(sides)} }}", tops=f"a{number}"
        )
        outside = any(axis[-1][0] >= size for axis, size in zip(axes, SIZES, strict=True))
        partial = any(axis[-1][1] - axis[-1][0] < part[0] for axis, part in zip(axes, window, strict=True))
        if outside or (kind == "AVE" and padded and partial):
            message = "its last window lies outside the map" if outside else "its last mean is of padding in part"
            with pytest.raises(ModelError, match=message):
                from_caffe(*write_caffe(tmp_path, HEADER + pooling))
        else:
            text, expected[f"a{number}"] = f"{text}\n{pooling}", pooled(kind, axes)
    assert len(expected) > 100
    results = run(from_caffe(*write_caffe(tmp_path, text), outputs=list(expected)), X)
    for name, values in expected.items():
        np.testing.assert_allclose(results[name], values, rtol=1e-5, atol=1e-6, err_msg=name)
