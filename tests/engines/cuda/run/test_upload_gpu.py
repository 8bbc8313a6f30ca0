"""Arrays in ordinary memory, which the host rounds on their way to a GPU, and in page-locked memory, which the GPU reads as they are."""

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins import native
from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.cuda import pinned_empty
from pytrtplugins.engines import calibrate
from pytrtplugins.engines.cuda.conv.tactics import FP8_CAPABILITY
from pytrtplugins.engines.cuda.run.upload import COPY_THREADS
from pytrtplugins.passes import CODES, prepare
from tests.passes.nets import Net

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]


@pytest.mark.parametrize("precision", ["fp32", "fp16", *CODES])
def test_what_the_host_rounds_gives_the_same_numbers(precision, monkeypatch):
    if precision == "fp8" and int(pytest.importorskip("cupy").cuda.Device().compute_capability) < FP8_CAPABILITY:
        pytest.skip("this GPU has no arithmetic in FP8")
    if native.compiled() is None:
        pytest.skip("the native part is not built. Do: python -m pytrtplugins.native")
    monkeypatch.setenv(COPY_THREADS, "2")
    net = Net(channels=3, size=320)
    first = net.conv("data", "first", 16)
    model = prepare(net.model(net.conv(net.conv(first, "second", 16), "last", 8, leaky=False)))
    x = pinned_empty((1, 3, 320, 320))
    x[...] = np.random.default_rng(0).random(x.shape, dtype=np.float32)
    table = calibrate(model, MinMaxCalibrator([{"data": x}]), engine="onnxruntime", progress=False)
    given = table if precision in CODES else None
    engine = ptp.build(
        model, engine="cuda", precision=precision, calibration=given, settings={"disable": ["tactics"]}, progress=False
    )
    with engine.create_context() as context:
        (locked,) = context.run({"data": x}).values()
        (ordinary,) = context.run({"data": np.array(x)}).values()
    np.testing.assert_array_equal(ordinary, locked)
