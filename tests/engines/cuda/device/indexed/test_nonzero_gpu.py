"""NonZero on a GPU: the places that NumPy finds, of one block and of as many as fill the GPU several times."""

import numpy as np
import pytest

import pytrtplugins as ptp
from tests.engines.cuda.device.indexed.test_nonzero import nonzero_model, sparse

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize(
    ("dims", "kind", "share"),
    [
        ((7,), np.float32, 0.5),
        ((1, 21, 300, 300), np.float32, 0.01),
        ((8400, 80), bool, 0.2),
        ((1 << 21,), np.float32, 1),
        ((2, 1000, 999), np.int64, 0),
    ],
)
def test_the_places_are_numpys_in_each_run(dims, kind, share, precision):
    x = sparse(*dims, kind=kind, share=share)
    engine = ptp.build(nonzero_model(x), engine="cuda", precision=precision)
    assert "from 'y0.cut' (Slice)" in engine.choices["run node by node"]
    with engine.create_context() as context:
        for given in (x, sparse(*dims, kind=kind, share=share), x):  # the second is a graph's
            np.testing.assert_array_equal(context.run({"x0": given})["y0"], np.nonzero(given))
