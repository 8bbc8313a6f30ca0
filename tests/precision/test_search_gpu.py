"""The search on a GPU: engine cuda names the layers with the planted defects."""

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.engines import calibrate
from pytrtplugins.engines.cuda import CudaEngine
from pytrtplugins.precision import Network, parse_tolerance, search
from tests.precision.planted import cancelling, chain, outlier_activations, outlier_weights, overflowing, samples

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]

COSINE = parse_tolerance("cosine=0.9995")


def run(model, precision="fp16", tolerance=COSINE, **more):
    return search(Network(model, "cuda"), samples(model), tolerance, precision, **more)


def run_int8(model, **more):
    table = calibrate(model, MinMaxCalibrator(samples(model)), engine="cuda", progress=False)
    return run(model, "int8", parse_tolerance("cosine=0.99"), tables={"minmax": table}, **more)


def outputs(engine, x):
    with engine.create_context() as context:
        return context.run(x)["head"]


@pytest.mark.parametrize(
    ("make", "offenders", "layers"),
    [(overflowing, ("conv3",), {"conv3"}), (cancelling, ("add",), {"left", "right", "add"}), (chain, (), set())],
)
def test_in_float16_the_planted_layer_is_named(make, offenders, layers):
    result = run(make())
    assert result.offenders == offenders
    assert result.holds
    assert set(result.precisions.layers) == layers


def test_in_int8_an_outlier_among_weights_gets_scales_per_channel():
    result = run_int8(outlier_weights(), per_tensor=True)
    assert result.offenders == ("conv3",)
    assert result.holds
    assert {name: layer.strategy for name, layer in result.precisions.layers.items()} == {"conv3": "per-channel"}


def test_in_int8_an_outlier_channel_is_kept_in_float():
    result = run_int8(outlier_activations())
    assert result.offenders == ("conv3",)
    assert result.holds
    assert {name: layer.strategy for name, layer in result.precisions.layers.items()} == {"conv3": "pin"}


@pytest.mark.parametrize("make", [overflowing, cancelling])
def test_an_engine_of_the_usual_kernels_that_follows_the_file_holds_too(make, tmp_path):
    model = make()
    run(model).precisions.write(tmp_path / "precision.yaml")
    settings = {"disable": "tactics"}  # no search for each layer
    engine = ptp.build(model, engine="cuda", precision=tmp_path / "precision.yaml", settings=settings)
    exact = ptp.build(model, engine="reference")
    assert max(COSINE.error(outputs(engine, x), outputs(exact, x)) for x in samples(model)) <= 1


def test_fused_layers_are_no_less_exact_than_layers_one_by_one():
    """Why there is no intervention that takes fused layers apart: it only adds a rounding in between."""
    model = chain(12)
    exact = ptp.build(model, engine="reference")
    fusing = ["activations", "residuals", "pools", "horizontal-fusion", "stem"]
    errors = []
    for disable in ([], fusing):
        settings = {"disable": [*CudaEngine.fast_build["disable"], *disable]}
        engine = ptp.build(model, engine="cuda", precision="fp16", settings=settings)
        found = [np.linalg.norm(outputs(engine, x) - outputs(exact, x)) for x in samples(model, 8)]
        errors.append(float(np.mean(found)))
    assert errors[0] < errors[1]
