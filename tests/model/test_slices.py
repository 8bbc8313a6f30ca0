"""ONNX's slices as Python's, against onnxruntime."""

import itertools

import numpy as np
import pytest

from pytrtplugins.model.slices import bounded_slice
from tests.engines.operators import literal
from tests.onnx_parts import parsed

PLACES = (-9, -5, -4, -3, -1, 0, 1, 3, 4, 5, 9)


@pytest.mark.parametrize("step", [-5, -2, -1, 1, 2, 5])
def test_a_slice_gives_what_onnxruntime_gives(step):
    x, pairs = np.arange(4, dtype=np.float32), list(itertools.product(PLACES, PLACES))
    nodes = " ".join(
        f"y{number} = Slice (x, s{start + 9}, s{end + 9}, axis, step)" for number, (start, end) in enumerate(pairs)
    )
    outputs = ", ".join(f"float[] y{number}" for number in range(len(pairs)))
    constants = {f"s{place + 9}": [place] for place in PLACES}
    model = parsed(f"(float[4] x) => ({outputs}) {{ {nodes} }}", axis=[0], step=[step], **constants)
    for (start, end), wanted in zip(pairs, literal(model, {"x": x}), strict=True):
        np.testing.assert_array_equal(x[bounded_slice(4, start, end, step)], wanted, str((start, end)))
