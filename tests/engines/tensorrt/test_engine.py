"""The way from ONNX to a run, with every call of TensorRT's held against its real signatures.

What TensorRT would build and compute is not shown here: that needs its builder and a GPU.
"""

from __future__ import annotations

import logging
from collections import Counter

import numpy as np
import onnx
import pytest

import pytrtplugins as ptp
from pytrtplugins.calibration import CalibrationTable, EntropyCalibrator, MinMaxCalibrator, PercentileCalibrator
from pytrtplugins.engines import availability
from pytrtplugins.engines.tensorrt import _api, device, engine
from pytrtplugins.engines.tensorrt.collected import current
from pytrtplugins.engines.tensorrt.creators import creator, unregister
from pytrtplugins.errors import (
    BuildError,
    CalibrationTableError,
    EngineError,
    EngineFileError,
    MissingExtraError,
    NoDataError,
    RegistryError,
    UnavailableError,
    UsageError,
)
from pytrtplugins.passes import prepare
from tests.engines.networks import Affine, OutOfPaperError, conv_net, photo

from .checked import CheckedModule, HostMemory
from .fake_gpu import fake_device


@pytest.fixture
def tensorrt(api, monkeypatch, tmp_path):
    """A package whose calls are checked; ``.answers`` is what TensorRT would say."""
    if not api.builds:
        pytest.skip("the lean package has no builder: TENSORRT_SUBSTRATE=stubs")
    answers = {
        "OnnxParser.num_errors": 0,
        "Builder.build_serialized_network": HostMemory(b"plan"),
        "IExecutionContext.get_tensor_shape": lambda name: api.trt.Dims([1, 4, 8, 8]),
    }
    checked = _api.Api(CheckedModule(api.trt, answers))
    checked.answers, checked.calls, checked.made = answers, checked.trt.calls, checked.trt.made
    monkeypatch.setattr(_api, "load", lambda: checked)
    monkeypatch.setattr(engine, "find_device", lambda name=None: fake_device())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return checked


def build(model, **options):
    return ptp.build(model, engine="tensorrt", **options)


def only(tensorrt, name):
    (made,) = tensorrt.made[name]
    return made


def parsed(tensorrt):
    """The model that the parser was given."""
    models = []
    tensorrt.answers["OnnxParser.parse"] = lambda model: models.append(onnx.ModelProto.FromString(model)) or True
    return models


def test_a_model_is_parsed_built_and_loaded(tensorrt):
    built = build(conv_net(Affine(3.0)))
    assert built.plan == b"plan"
    flags = 0 if tensorrt.major == 11 else 1 << int(tensorrt.trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    assert tensorrt.network_flags(typed=True) == flags
    assert Counter(tensorrt.calls)["IBuilderConfig.clear_flag"] == 1  # TF32
    assert "OnnxParser.set_flag" in tensorrt.calls
    assert tensorrt.calls.index("OnnxParser.parse") < tensorrt.calls.index("Builder.build_serialized_network")
    assert "IBuilderConfig.add_optimization_profile" not in tensorrt.calls
    assert str(built.inputs[0]) == "data: float32[1, 3, 8, 8]"


def test_every_plugin_of_the_model_is_registered_before_it_is_parsed(tensorrt):
    unregister(Affine)
    key = Affine.plugin_key()

    def parse(model):
        assert tensorrt.trt.get_plugin_registry().get_creator(key.name, key.version, key.namespace) is not None
        return True

    tensorrt.answers["OnnxParser.parse"] = parse
    build(conv_net(Affine(3.0)))


def test_the_parser_sees_plugins_with_all_they_need_and_decompositions_of_the_others(tensorrt):
    models = parsed(tensorrt)
    build(conv_net(Affine(3.0), ptp.layers.Reorg(stride=1)))
    nodes = {node.op_type: node for node in models[0].graph.node}
    attributes = {item.name: onnx.helper.get_attribute_value(item) for item in nodes["Affine"].attribute}
    assert attributes == {
        "factor": 3.0,
        "plugin_namespace": b"test.engines",
        "plugin_version": b"1",
        "pytrtplugins_outputs": 1,
    }


def test_a_free_batch_becomes_a_profile(tensorrt):
    shapes = []
    tensorrt.answers["IOptimizationProfile.set_shape"] = lambda name, *dims: shapes.append((name, *map(tuple, dims)))
    build(conv_net(batch="N"), settings={"batch": (1, 4, 16), "workspace_bytes": 1 << 28, "level": 5})
    assert shapes == [("data", (1, 3, 8, 8), (4, 3, 8, 8), (16, 3, 8, 8))]
    assert only(tensorrt, "IBuilderConfig").builder_optimization_level == 5


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"batch": (4, 1, 16)}, "batch: expected least, usual and largest size"),
        ({"batch": "many"}, "found 'many'"),
        ({"level": 9}, "level: expected 0 to 5"),
        ({"workspace_bytes": -1}, "workspace_bytes"),
        ({"quantization": "magic"}, "explicit or implicit"),
        ({"speed": 3}, "no setting 'speed'; it has batch, shapes"),
        ({"shapes": {"data": [[1], [2], [3]]}}, "three growing shapes that fit data"),
        ({"shapes": {"picture": [[1], [2], [3]]}}, "'picture' is no input; there are data"),
    ],
)
def test_wrong_settings_are_usage_errors(tensorrt, settings, words):
    with pytest.raises(UsageError, match=words):
        build(conv_net(batch="N"), settings=settings)


def test_free_axes_other_than_the_batch_need_a_range(tensorrt):
    model = conv_net(batch="N")
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "H"
    with pytest.raises(UsageError, match=r"range for its free axes \[0, 2\][\s\S]*Do: settings="):
        build(model)
    ranges = [(1, 3, 8, 8), (2, 3, 16, 8), (4, 3, 32, 8)]
    build(model, settings={"shapes": {"data": ranges}})


def test_what_the_parser_says_is_in_the_error(tensorrt):
    tensorrt.answers.update({"OnnxParser.parse": False, "OnnxParser.num_errors": 1})
    tensorrt.answers |= {
        "ParserError.node": 3,
        "ParserError.node_name": "conv2",
        "ParserError.desc": "no importer for operator Conf",
    }
    with pytest.raises(BuildError, match="node 3 'conv2': no importer for operator Conf"):
        build(conv_net())


def test_what_the_builder_logs_is_in_the_error_and_in_the_log(tensorrt, caplog):
    logs = []

    def build_serialized_network(network, config):
        logger = logs[0]
        logger.log(tensorrt.trt.ILogger.Severity.ERROR, "no implementation of conv1")
        logger.log(tensorrt.trt.ILogger.Severity.INFO, "tried 12 kernels")

    make = engine.make_logger
    from pytrtplugins.engines.tensorrt import builder

    def remember(api):
        logs.append(make(api))
        return logs[-1]

    builder.make_logger, tensorrt.answers["Builder.build_serialized_network"] = remember, build_serialized_network
    try:
        with caplog.at_level(logging.INFO), pytest.raises(BuildError, match="no implementation of conv1"):
            build(conv_net())
    finally:
        builder.make_logger = make
    assert "tried 12 kernels" in caplog.text


@pytest.mark.parametrize("member", ["OnnxParser.parse", "Builder.build_serialized_network"])
def test_what_a_plugin_raises_during_a_build_is_raised_by_build(tensorrt, member):
    def fail(*args):
        current().keep(OutOfPaperError("from inside"))
        return None

    tensorrt.answers[member] = fail if member.startswith("B") else lambda model: bool(fail())
    with pytest.raises(OutOfPaperError, match="from inside"):
        build(conv_net(Affine(3.0)))


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_half_precision_is_written_into_the_model(tensorrt, precision):
    models = parsed(tensorrt)
    build(conv_net(Affine(3.0)), precision=precision)
    kind = {"fp16": onnx.TensorProto.FLOAT16, "bf16": onnx.TensorProto.BFLOAT16}[precision]
    graph = models[0].graph
    assert {tensor.data_type for tensor in graph.initializer} == {kind}
    floats = [info.type.tensor_type.elem_type for info in (*graph.input, *graph.output)]
    assert floats == [onnx.TensorProto.FLOAT] * 2
    assert "IBuilderConfig.clear_flag" not in tensorrt.calls


# -- INT8 ----------------------------------------------------------------------------------------------------------------


def table_of(model, algorithm="EntropyCalibration2"):
    names = [info.name for info in (*model.graph.input, *model.graph.value_info, *model.graph.output)]
    return CalibrationTable(dict.fromkeys(names, 0.01), algorithm)


def test_int8_is_explicit_by_default(tensorrt):
    models = parsed(tensorrt)
    model = prepare(conv_net())
    build(model, precision="int8", calibration=table_of(model))
    kinds = Counter(node.op_type for node in models[0].graph.node)
    assert kinds["QuantizeLinear"] >= 1
    assert kinds["DequantizeLinear"] > kinds["QuantizeLinear"]


IMPLICIT = {"quantization": "implicit"}


def test_tensorrt_11_has_no_implicit_quantization(tensorrt):
    if tensorrt.major == 10:
        pytest.skip("10 has it")
    model = prepare(conv_net())
    with pytest.raises(UnavailableError, match=r"no implicit quantization[\s\S]*Do: leave out"):
        build(model, precision="int8", calibration=table_of(model), settings=IMPLICIT)


@pytest.fixture
def ten(tensorrt):
    if tensorrt.major != 10:
        pytest.skip("TensorRT 11 has no calibrators")
    return tensorrt


def test_an_implicit_build_reads_a_table_under_tensorrts_own_version(ten, tmp_path):
    model = prepare(conv_net())
    table = table_of(model, "MinMaxCalibration").with_version("8.6.1")
    table.write(tmp_path / "x.cache")
    read = []

    def run(network, config):
        bridge = config.int8_calibrator
        assert isinstance(bridge, ten.trt.IInt8MinMaxCalibrator)
        read.append(bridge.read_calibration_cache())
        return HostMemory(b"plan")

    ten.answers["Builder.build_serialized_network"] = run
    for calibration in (table, tmp_path / "x.cache", MinMaxCalibrator(cache=tmp_path / "x.cache")):
        build(model, precision="int8", calibration=calibration, settings=IMPLICIT)
    assert read == [table.with_version("10.16.1").to_bytes()] * 3
    assert "IBuilderConfig.set_flag" in ten.calls


def test_an_implicit_build_feeds_batches_and_keeps_the_table(ten, tmp_path):
    cases = [
        (EntropyCalibrator, "IInt8EntropyCalibrator2"),
        (MinMaxCalibrator, "IInt8MinMaxCalibrator"),
        (PercentileCalibrator, "IInt8LegacyCalibrator"),
    ]
    for cls, base in cases:
        cache = tmp_path / f"{cls.__name__}.cache"
        calibrator = cls([{"data": photo(3)}, {"data": photo(4, seed=2)}], cache=cache)
        model = prepare(conv_net(batch="N"))
        table = table_of(model, cls.algorithm).with_version("10.16.1")
        seen = []

        def run(network, config, base=base, seen=seen, table=table):
            bridge = config.int8_calibrator
            assert isinstance(bridge, getattr(ten.trt, base))
            assert bridge.read_calibration_cache() is None
            assert bridge.get_batch_size() == 3
            while addresses := bridge.get_batch(["data"]):
                seen.append(ten_floats(addresses[0]))
            bridge.write_calibration_cache(memoryview(table.to_bytes()))
            return HostMemory(b"plan")

        ten.answers["Builder.build_serialized_network"] = run
        build(model, precision="int8", calibration=calibrator, settings={**IMPLICIT, "batch": (1, 3, 8)})
        images = np.concatenate([photo(3), photo(4, seed=2)])
        np.testing.assert_array_equal(seen, images[:6].reshape(2, 3, 3, 8, 8))
        assert CalibrationTable.read(cache) == table
        assert cls(cache=cache).cached_table(list(table), required=[]) == table
    assert "IBuilderConfig.set_calibration_profile" in ten.calls


def ten_floats(address):
    import ctypes

    count = 3 * 3 * 8 * 8
    return np.array((ctypes.c_float * count).from_address(address)).reshape(3, 3, 8, 8)


def test_what_a_calibrator_raises_is_raised_by_build(ten):
    def batches():
        yield {"data": photo()}
        raise OutOfPaperError("the disk is gone")

    def run(network, config):
        bridge = config.int8_calibrator
        assert bridge.get_batch(["data"])
        with pytest.raises(OutOfPaperError):
            bridge.get_batch(["data"])  # TensorRT takes that for the end of the data
        return HostMemory(b"plan")

    ten.answers["Builder.build_serialized_network"] = run
    with pytest.raises(OutOfPaperError, match="the disk is gone"):
        build(prepare(conv_net()), precision="int8", calibration=MinMaxCalibrator(batches()), settings=IMPLICIT)


def test_too_few_images_for_one_batch_are_no_data(ten):
    def run(network, config):
        assert config.int8_calibrator.get_batch(["data"]) is None
        return HostMemory(b"plan")

    ten.answers["Builder.build_serialized_network"] = run
    with pytest.raises(NoDataError, match="do not fill one batch of 8"):
        build(
            conv_net(batch="N"),
            precision="int8",
            calibration=MinMaxCalibrator([{"data": photo(3)}]),
            settings={**IMPLICIT, "batch": 8},
        )


def test_a_table_of_another_network_is_refused_before_the_build(ten):
    with pytest.raises(CalibrationTableError, match="another network"):
        build(conv_net(), precision="int8", calibration=CalibrationTable({"elsewhere": 1.0}), settings=IMPLICIT)
    assert "Builder.build_serialized_network" not in ten.calls


# -- files ---------------------------------------------------------------------------------------------------------------


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


def test_a_timing_cache_that_tensorrt_refuses_is_made_anew(tensorrt, caplog):
    taken = iter([False, True])
    tensorrt.answers["IBuilderConfig.set_timing_cache"] = lambda cache, ignore_mismatch: next(taken)
    build(conv_net())
    assert "made anew" in caplog.text


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
    with pytest.raises(
        EngineFileError, match=r"built for Test GPU .*9\.0\); here is Test GPU.*8\.6[\s\S]*Do: pytrt build"
    ):
        ptp.load_engine(saved)
    monkeypatch.undo()
    requirements = {"tensorrt": "10.3.0", "compute_capability": "9.0", "plugins": []}
    for version, compatible, ok in (
        ("10.3.0", False, False),
        ("10.3.0", True, tensorrt.major == 10),
        ("9.9", True, False),
    ):
        requirements |= {"tensorrt": version, "version_compatible": compatible}
        monkeypatch.setattr(_api, "load", lambda: tensorrt)
        monkeypatch.setattr(engine, "find_device", lambda name=None: fake_device())
        reason = engine.TensorrtEngine.check_requirements(requirements)
        assert (reason == "") == ok
        assert ok or f"built with TensorRT {version}; here is {tensorrt.version}" in reason


def test_a_plugin_that_the_engine_names_and_nobody_registered_is_named(tensorrt):
    requirements = {
        "tensorrt": tensorrt.version,
        "compute_capability": "9.0",
        "plugins": [["test.engines", "Afine", "1"]],
    }
    with pytest.raises(RegistryError, match=r"Near: test\.engines::Affine[\s\S]*Do: import the module"):
        engine.TensorrtEngine.check_requirements(requirements)


@pytest.mark.parametrize("plugins", [None, "Affine", [1], [["a", "b"]], [["a", "b", 3]]])
def test_forged_requirements_are_refused(tensorrt, plugins):
    requirements = {"tensorrt": tensorrt.version, "compute_capability": "9.0", "plugins": plugins}
    assert "damaged" in engine.TensorrtEngine.check_requirements(requirements)


def test_an_engine_that_tensorrt_cannot_load_says_why(tensorrt, saved):
    tensorrt.answers["Runtime.deserialize_cuda_engine"] = lambda data: None
    with pytest.raises(EngineFileError, match=r"cannot load the engine[\s\S]*Do: pytrt build"):
        ptp.load_engine(saved)


# -- runs ----------------------------------------------------------------------------------------------------------------


def test_a_run_binds_by_name_and_sets_shapes_when_they_change(tensorrt):
    api = tensorrt.trt
    bound, shapes = {}, []

    def set_tensor_address(name, memory):
        bound[name] = memory
        return True

    def execute(stream_handle):
        import ctypes

        n = shapes[-1][0]
        x = np.array((ctypes.c_float * (n * 192)).from_address(bound["data"]))
        (ctypes.c_float * (n * 256)).from_address(bound["y"])[:] = np.resize(x, n * 256).tolist()
        return True

    tensorrt.answers |= {
        "IExecutionContext.set_tensor_address": set_tensor_address,
        "IExecutionContext.set_input_shape": lambda name, shape: shapes.append(shape) or True,
        "IExecutionContext.get_tensor_shape": lambda name: api.Dims([shapes[-1][0], 4, 8, 8]),
        "IExecutionContext.execute_async_v3": execute,
    }
    with build(conv_net(batch="N")).create_context() as context:
        for n in (1, 2, 2):
            y = context.run({"data": photo(n)})["y"]
            np.testing.assert_array_equal(y, np.resize(photo(n), (n, 4, 8, 8)))
    assert shapes == [(1, 3, 8, 8), (2, 3, 8, 8)]


def test_what_a_plugin_raises_during_a_run_is_raised_by_run(tensorrt):
    def execute(stream_handle):
        current().keep(OutOfPaperError("negative"))
        return False

    tensorrt.answers["IExecutionContext.execute_async_v3"] = execute
    with build(conv_net(Affine(3.0))).create_context() as context:
        with pytest.raises(OutOfPaperError, match="negative"):
            context.run({"data": photo()})
        tensorrt.answers["IExecutionContext.execute_async_v3"] = lambda stream_handle: False
        with pytest.raises(EngineError, match="the run failed"):
            context.run({"data": photo()})


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"IExecutionContext.set_input_shape": False}, r"input 'data': TensorRT refuses dims \(9, 3, 8, 8\)"),
        ({"IExecutionContext.set_tensor_address": False}, "refuses the buffer"),
        ({"ICudaEngine.create_execution_context": lambda: None}, "cannot make a context"),
    ],
)
def test_what_tensorrt_refuses_is_an_engine_error(tensorrt, answers, words):
    tensorrt.answers |= answers
    built = build(conv_net(batch="N"))
    with pytest.raises(EngineError, match=words), built.create_context() as context:
        context.run({"data": photo(9)})


# -- what is here --------------------------------------------------------------------------------------------------------


def test_devices_say_why_the_engine_cannot_be_used(api):
    (found,) = [item for item in availability() if item.name == "tensorrt"]
    try:
        device.find_device()
    except MissingExtraError:
        assert "needs the package 'cupy'" in found.reason
        assert 'Do: pip install "pytrtplugins[tensorrt]"' in found.reason
    except UnavailableError as error:
        assert str(error) in found.reason  # noqa: PT017
    else:
        assert found.available


def test_a_package_that_only_runs_engines_cannot_build(api, monkeypatch):
    if api.builds:
        pytest.skip("the full package")
    monkeypatch.setattr(engine, "find_device", lambda name=None: fake_device())
    (found,) = [item for item in availability() if item.name == "tensorrt"]
    assert found.details.startswith(
        f"tensorrt_lean {api.version}, which runs engines and cannot build them, on Test GPU"
    )
    with pytest.raises(UnavailableError, match=r"cannot build them[\s\S]*Do: pip install"):
        build(conv_net())


def test_tensorrts_creators_keep_their_own_classes(api):
    assert isinstance(creator(Affine), api.trt.IPluginCreatorV3One)


# -- from a shell --------------------------------------------------------------------------------------------------------


@pytest.fixture
def pytrt(capsys):
    """Run the command; its standard output and standard error, and its exit code."""
    pytest.importorskip("typer")
    from pytrtplugins.cli import main

    def run(*words):
        code = 0
        try:
            main([str(word) for word in words])
        except SystemExit as end:
            code = end.code or 0
        captured = capsys.readouterr()
        return captured.out + captured.err, code

    return run


def test_pytrt_builds_int8_with_a_cache_and_settings(tensorrt, pytrt, tmp_path):
    model, shapes = prepare(conv_net(batch="N")), []
    onnx.save(model, tmp_path / "net.onnx")
    table_of(model).write(tmp_path / "net.cache")
    tensorrt.answers["IOptimizationProfile.set_shape"] = lambda name, *dims: shapes.append([tuple(d) for d in dims])
    words = ["build", tmp_path / "net.onnx", "--engine", "tensorrt", "--precision", "int8"]
    words += ["--cache", tmp_path / "net.cache", "--setting", "batch=1,8,16", "-o", tmp_path / "net.engine"]
    text, code = pytrt(*words)
    assert code == 0, text
    assert shapes == [[(1, 3, 8, 8), (8, 3, 8, 8), (16, 3, 8, 8)]]
    assert ptp.load_engine(tmp_path / "net.engine").precision == "int8"


@pytest.mark.parametrize(
    ("setting", "words"), [("speed=9", "no setting 'speed'"), ("batch", "expected NAME=VALUE"), ("level=no", "0 to 5")]
)
def test_pytrt_names_a_wrong_setting(tensorrt, pytrt, tmp_path, setting, words):
    onnx.save(conv_net(), tmp_path / "net.onnx")
    target = tmp_path / "net.engine"
    text, code = pytrt("build", tmp_path / "net.onnx", "--engine", "tensorrt", "--setting", setting, "-o", target)
    assert code == 2
    assert words in " ".join(text.split())
    assert not target.exists()


def test_pytrt_devices_lists_tensorrt(tensorrt, pytrt):
    text, code = pytrt("devices")
    assert code == 0
    assert f"tensorrt {tensorrt.version}" in " ".join(text.split())
