"""NonMaxSuppression on a GPU: the rows of onnxruntime, of few boxes and of as many as detectors have."""

import numpy as np
import pytest

import pytrtplugins as ptp
from tests.engines.cuda.device.indexed.test_suppress import boxes, floats, scores, suppression
from tests.engines.operators import ints, literal

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize(
    ("images", "classes", "count", "limits"),
    [
        (2, 3, 90, [ints(5), floats(0.3), floats(0.25)]),
        (1, 80, 8400, [ints(100), floats(0.5), floats(0.85)]),
        (1, 1, 8400, [ints(300), floats(0.45)]),
        (3, 300, 40, [ints(40), floats(0.9)]),
    ],
)
def test_the_rows_are_onnxruntimes_in_each_run(images, classes, count, limits, precision):
    x = boxes(images, count)
    model = suppression([x, scores(images, classes, count), *limits])
    engine = ptp.build(model, engine="cuda", precision=precision)
    assert "from 'y0.cut' (Slice)" in engine.choices["run node by node"]
    with engine.create_context() as context:
        for given in (x, boxes(images, count), x):  # the second is a graph's
            np.testing.assert_array_equal(context.run({"x0": given})["y0"], literal(model, {"x0": given})[0])
