"""The columns of a first convolution's windows as channels, on a GPU: in each element type, and as codes."""

import pytest

import pytrtplugins as ptp
from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.engines import calibrate
from pytrtplugins.passes import prepare, quantize
from tests.engines.cuda.host import assert_near, by_reference
from tests.engines.cuda.lower.test_patches import WINDOWS, First, gathered, image

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]

BOUNDS = {"fp32": 2e-6, "fp16": 4e-3, "int8": 5e-3}


def assert_right(model, precision):
    wanted = by_reference(model, image(), precision if precision == "int8" else "fp32")
    engine = ptp.build(model, engine="cuda", precision=precision, settings={"disable": ["tactics"]})
    with engine.create_context() as context:
        for _ in range(3):  # the first is captured
            assert_near(context.run(image()), wanted, BOUNDS[precision])
        assert "Patches" in [step.op for step in next(iter(context._ready.values())).execution.plan.steps]


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("window", [window for window, _ in WINDOWS.values()], ids=WINDOWS)
def test_columns_become_channels(window, precision):
    net = First()
    model = prepare(net.model(net.first(**window)))
    assert gathered(model)[1]
    assert_right(model, precision)


@pytest.mark.parametrize("window", [window for window, _ in WINDOWS.values()], ids=WINDOWS)
def test_codes_are_made_on_the_way(window):
    net = First()
    model = prepare(net.model(net.first(**window)))
    table = calibrate(model, MinMaxCalibrator([image(count=1)]), progress=False)
    assert_right(quantize(model, table), "int8")
