"""All repairs together: a broken export computes what its network computes; what onnxruntime computes as meant stays as it is."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.node_tests import load_cases
from pytrtplugins.errors import UsageError
from pytrtplugins.mxnet import from_mxnet
from pytrtplugins.passes import REPAIRS, repair
from tests.engines.exported_models import MODELS
from tests.mxnet.files import face
from tests.passes.repairs.exports import old_export, refused, repairs_of, run

SHARED = Path(__file__).parents[4] / "shared" / "data" / "face" / "mobilefacenet-y1"
EVERY = 97  # of ONNX's tests, in `make test`
WITHOUT_EFFECT = {"leftovers", "shape-arithmetic", "weight-inputs", "doubled-transposes"}


def test_a_face_network_as_mxnet_1_3_wrote_it_is_mended(tmp_path):
    net = face()
    broken = old_export(net)
    x = np.random.default_rng(5).uniform(0, 255, (1, 3, 16, 16)).astype(np.float32)
    assert refused(broken, data=x)
    found = repair(broken)
    weights = len(broken.graph.initializer)
    assert repairs_of(found) == {
        "weight-inputs": weights, "label-inputs": 1, "batchnorm-spatial": 5, "channel-vectors": 2, "leftovers": 2,
    }  # fmt: skip
    expected = run(from_mxnet(*net.write(tmp_path)), data=x)
    np.testing.assert_allclose(run(found.model, data=x), expected, rtol=1e-4, atol=1e-5)
    onnx.checker.check_model(found.model, full_check=True)
    assert [info.name for info in found.model.graph.input] == ["data"]
    assert repair(found.model).findings == ()


def test_a_model_is_not_changed_and_comes_back_where_nothing_is_found(tmp_path):
    broken, sound = old_export(face()), from_mxnet(*face().write(tmp_path))
    before = broken.SerializeToString(deterministic=True)
    repair(broken)
    assert broken.SerializeToString(deterministic=True) == before
    assert repair(sound).model is sound


def test_repairs_are_chosen_by_name():
    broken = old_export(face())
    assert repairs_of(repair(broken, only=["label-inputs"])) == {"label-inputs": 1}
    assert "label-inputs" not in repairs_of(repair(broken, skip=["label-inputs"]))
    assert repair(broken, only=["leftovers"], skip=["leftovers"]).findings == ()
    with pytest.raises(UsageError, match=r"no repair 'labels'\.\nRepairs: weight-inputs, label-inputs"):
        repair(broken, only=["labels"])


def test_every_repair_says_why():
    assert all(each.why.endswith(".") and each.name == name for name, each in REPAIRS.items())


def unchanged(model, samples):
    """Require that nothing was at fault, and that what was removed changes no bit."""
    found = repair(model)
    assert not any(each.fault for each in found.findings), found.findings
    assert {each.repair for each in found.findings} <= WITHOUT_EFFECT
    if found.findings:
        for inputs in samples:
            expected = run(model, **inputs)
            if isinstance(expected, np.ndarray):
                np.testing.assert_array_equal(run(found.model, **inputs), expected)


@pytest.mark.parametrize("name", MODELS)
def test_models_of_other_exporters_stay_as_they_are(name):
    unchanged(*MODELS[name]())


def check_cases(cases):
    for case in cases:
        names = [info.name for info in case.model.graph.input]
        samples = [dict(zip(names, inputs, strict=False)) for inputs, _ in case.data]
        arrays = all(isinstance(value, np.ndarray) for sample in samples for value in sample.values())
        try:
            sound = (
                arrays and not any(refused(case.model, **sample) for sample in samples) and "random" not in case.name
            )
            unchanged(case.model, samples if sound else ())
        except AssertionError as error:
            raise AssertionError(f"{case.name}: {error}") from error


def test_some_of_onnx_s_tests_stay_as_they_are():
    check_cases(load_cases()[::EVERY])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_all_of_onnx_s_tests_stay_as_they_are():
    check_cases(load_cases())


def test_a_published_network_is_mended_to_the_bit():
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED} is missing: the files of a published network, which may not be shipped")
    found = repair(SHARED / "mobilefacenet-y1.mxnet-slope.onnx")
    assert repairs_of(found) == {"channel-vectors": 33}
    x = np.random.default_rng(0).uniform(0, 255, (2, 3, 112, 112)).astype(np.float32)
    np.testing.assert_array_equal(run(found.model, data=x), run(onnx.load(SHARED / "mobilefacenet-y1.onnx"), data=x))
