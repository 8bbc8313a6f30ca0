"""What TensorRT makes, in files: timing caches and engines."""

import pytest

import pytrtplugins as ptp
from pytrtplugins.engines.tensorrt import _api, engine
from pytrtplugins.errors import EngineFileError, RegistryError
from pytrtplugins.export.triton import export_triton
from tests.engines.networks import Affine, conv_net

from .builds import build
from .checked import HostMemory
from .fake_gpu import fake_device


def required(trt, **changes):
    """What an engine file asks for."""
    return {"tensorrt": trt.version, "compute_capability": "9.0", "plugins": [], **changes}


def test_the_timing_cache_is_kept_and_given_to_the_next_build(tensorrt, tmp_path):
    given = []
    make = tensorrt.trt.proxy
    tensorrt.answers["IBuilderConfig.create_timing_cache"] = lambda data: (
        given.append(bytes(data)) or make("ITimingCache")
    )
    tensorrt.answers["ITimingCache.serialize"] = HostMemory(b"times")
    for settings in ({}, {}, {"timing_cache": str(tmp_path / "own.timing")}, {"timing_cache": ""}):
        build(conv_net(), settings=settings)
    assert given == [b"", b"times", b""]
    assert (tmp_path / "own.timing").read_bytes() == b"times"
    (path,) = (tmp_path / "cache" / "pytrtplugins").iterdir()
    assert path.name == f"tensorrt-{tensorrt.version}-Test-GPU.timing"


@pytest.mark.parametrize("damaged", [False, True])
def test_a_timing_cache_that_tensorrt_refuses_is_made_anew(tensorrt, tmp_path, caplog, damaged):
    path = tmp_path / "own.timing"
    path.write_bytes(b"of another GPU")
    make, given = tensorrt.trt.proxy, []

    def create(data):
        return None if damaged and data else make("ITimingCache")

    def take(cache, ignore_mismatch):
        given.append(cache)
        return damaged or len(given) > 1

    tensorrt.answers["IBuilderConfig.create_timing_cache"] = create
    tensorrt.answers["IBuilderConfig.set_timing_cache"] = take
    tensorrt.answers["ITimingCache.serialize"] = HostMemory(b"times")
    build(conv_net(), settings={"timing_cache": path})
    assert "a new one is written" in caplog.text
    assert None not in given
    assert path.read_bytes() == b"times"


def test_a_timing_cache_that_cannot_be_written_costs_no_engine(tensorrt, tmp_path, caplog):
    (tmp_path / "file").write_text("no folder")
    assert build(conv_net(), settings={"timing_cache": str(tmp_path / "file" / "x.timing")}).plan == b"plan"
    assert "cannot be written" in caplog.text


@pytest.fixture
def saved(tensorrt, tmp_path):
    path = tmp_path / "x.engine"
    build(conv_net(Affine(3.0), batch="N"), settings={"batch": (1, 2, 4)}).save(path)
    return path


def test_an_engine_file_holds_the_plan_and_is_loaded_without_a_build(tensorrt, saved):
    tensorrt.calls.clear()
    loaded = ptp.load_engine(saved)
    assert loaded.plan == b"plan"
    assert loaded.options.settings == {"batch": [1, 2, 4]}
    assert "Builder.build_serialized_network" not in tensorrt.calls
    assert "Runtime.deserialize_cuda_engine" in tensorrt.calls
    assert loaded.requirements()["plugins"] == [["test.engines", "Affine", "1"]]


def test_an_engine_for_another_gpu_or_version_is_refused_with_the_command(tensorrt, saved, monkeypatch):
    monkeypatch.setattr(engine, "find_device", lambda name=None: fake_device("8.6"))
    words = r"built for Test GPU .*9\.0\); here is Test GPU.*8\.6[\s\S]*Do: pytrt build MODEL.onnx --engine tensorrt --precision fp32 -o"
    with pytest.raises(EngineFileError, match=words):
        ptp.load_engine(saved)
    monkeypatch.undo()
    compatible_versions = (("10.3.0", False, False), ("10.3.0", True, tensorrt.major == 10), ("9.9", True, False))
    for version, compatible, ok in compatible_versions:
        requirements = required(tensorrt, tensorrt=version, version_compatible=compatible)
        monkeypatch.setattr(_api, "load", lambda package: tensorrt)
        monkeypatch.setattr(engine, "find_device", lambda name=None: fake_device())
        reason = engine.TensorrtEngine.check_requirements(requirements)
        assert (reason == "") == ok
        assert ok or f"built with TensorRT {version}; here is {tensorrt.version}" in reason


def test_a_package_that_only_runs_engines_needs_version_compatible_ones(api, monkeypatch):
    if api.builds:
        pytest.skip("the full package")
    monkeypatch.setattr(engine, "find_device", lambda name=None: fake_device())
    requirements = required(api)
    reason = engine.TensorrtEngine.check_requirements(requirements)
    assert reason == f"it was built without the setting version_compatible=true, which {api.name} needs"
    assert engine.TensorrtEngine.check_requirements({**requirements, "version_compatible": True}) == ""


def test_a_plugin_that_the_engine_names_and_nobody_registered_is_named(tensorrt):
    requirements = required(tensorrt, plugins=[["test.engines", "Afine", "1"]])
    with pytest.raises(RegistryError, match=r"Near: test\.engines::Affine[\s\S]*Do: import the module"):
        engine.TensorrtEngine.check_requirements(requirements)


def test_an_engine_is_checked_on_the_gpu_that_it_was_built_for(runtime, monkeypatch):
    asked = []
    monkeypatch.setattr(engine, "find_device", lambda name=None: asked.append(name) or fake_device())
    requirements = required(runtime, version_compatible=True)
    assert engine.TensorrtEngine.check_requirements({**requirements, "cuda": "cuda:1"}) == ""
    assert engine.TensorrtEngine.check_requirements(requirements, "cuda:1") == ""
    assert asked == ["cuda:1", "cuda:1"]


@pytest.mark.parametrize("plugins", [None, "Affine", [1], [["a", "b"]], [["a", "b", 3]]])
def test_forged_requirements_are_refused(tensorrt, plugins):
    assert "damaged" in engine.TensorrtEngine.check_requirements(required(tensorrt, plugins=plugins))


@pytest.mark.parametrize(
    ("member", "answer", "words"),
    [
        ("get_tensor_mode", lambda trt, name: trt.TensorIOMode.NONE, "has no tensor 'data': it is another model's"),
        ("get_tensor_dtype", lambda trt, name: trt.DataType.HALF, "made it float16, the model float32"),
        ("is_shape_inference_io", lambda trt, name: True, "holds sizes of other tensors"),
    ],
)
def test_a_plan_that_does_not_fit_the_model_is_refused(tensorrt, saved, member, answer, words):
    trt = tensorrt.trt
    tensorrt.answers[f"ICudaEngine.{member}"] = lambda name: answer(trt, name)
    with pytest.raises(EngineFileError, match=words):
        ptp.load_engine(saved)


def test_an_engine_that_tensorrt_cannot_load_says_why(tensorrt, saved):
    tensorrt.answers["Runtime.deserialize_cuda_engine"] = lambda data: None
    with pytest.raises(EngineFileError, match=r"cannot load the engine[\s\S]*Do: pytrt build"):
        ptp.load_engine(saved)


def test_a_saved_engine_is_served_by_its_plan(tensorrt, saved, tmp_path):
    library = tmp_path / "libaffine.so"
    library.write_bytes(b"\x7fELF")
    written = export_triton(saved, tmp_path / "models", libraries=[library])
    assert (tmp_path / "models" / "x" / "1" / "model.plan").read_bytes() == b"plan"
    assert "max_batch_size: 4" in written.config
    assert written.needs == (f"TensorRT {tensorrt.version}", "a GPU of compute capability 9.0 (Test GPU)")
