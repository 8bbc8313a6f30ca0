"""ONNX to a serialized engine, with every call of TensorRT's held against its real signatures.

What TensorRT would build is not shown here: that needs its builder and a GPU.
"""

import logging
from typing import Any

import onnx
import pytest

import pytrtplugins as ptp
from pytrtplugins.engines.tensorrt.creators import unregister
from pytrtplugins.engines.tensorrt.logger import the_logger
from pytrtplugins.errors import BuildError, UnavailableError, UsageError
from tests.engines.networks import Affine, conv_net

from .builds import build, parsed


def test_a_model_is_parsed_built_and_loaded(tensorrt):
    cleared = list[Any]()
    tensorrt.answers["IBuilderConfig.clear_flag"] = cleared.append
    built = build(conv_net(Affine(3.0)))
    assert built.plan == b"plan"
    flags = 0 if tensorrt.major == 11 else 1 << int(tensorrt.trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    assert tensorrt.network_flags(typed=True) == flags
    assert cleared == [tensorrt.trt.BuilderFlag.TF32]  # it rounds to 10 bits
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
        "pytrtplugins_scales": [0.0, 0.0],
        "pytrtplugins_serialized": b"",
        "pytrtplugins_form": b"",
    }


def test_a_free_batch_becomes_a_profile(tensorrt):
    shapes = []
    tensorrt.answers["IOptimizationProfile.set_shape"] = lambda name, *dims: shapes.append((name, *map(tuple, dims)))
    build(conv_net(batch="N"), settings={"batch": (1, 4, 16), "workspace_bytes": 1 << 28, "level": 5})
    assert shapes == [("data", (1, 3, 8, 8), (4, 3, 8, 8), (16, 3, 8, 8))]
    assert tensorrt.made["IBuilderConfig"][0].builder_optimization_level == 5


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"batch": (4, 1, 16)}, "batch: expected smallest, optimal and largest size"),
        ({"batch": "many"}, "found 'many'"),
        ({"level": 9}, "level: expected 0 to 5"),
        ({"workspace_bytes": -1}, "workspace_bytes"),
        ({"quantization": "magic"}, "explicit or implicit"),
        ({"speed": 3}, "no setting 'speed'; it has batch, shapes"),
        ({"shapes": 3}, r"shapes: expected name: \[smallest"),
        ({"shapes": {"data": [[1], [2], [3]]}}, "three growing shapes that fit data"),
        ({"shapes": {"image": [[1], [2], [3]]}}, "'image' is not an input; there are data"),
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
    ranges, shapes = [(1, 3, 8, 8), (2, 3, 16, 8), (4, 3, 32, 8)], []
    tensorrt.answers["IOptimizationProfile.set_shape"] = lambda name, *dims: shapes.append((name, *map(tuple, dims)))
    build(model, settings={"shapes": {"data": ranges}})
    assert shapes == [("data", *ranges)]


NOT_FOUND = 'creator && "Plugin not found, are the plugin name, version, and namespace correct?"'


def said(tensorrt, **error):
    """Let the parser give one error, as onnx-tensorrt's does."""
    tensorrt.answers |= {"OnnxParser.parse": False, "OnnxParser.num_errors": 1, "ParserError.node": 3}
    tensorrt.answers |= {f"ParserError.{name}": value for name, value in error.items()}


def test_what_the_parser_says_is_in_the_error(tensorrt):
    said(tensorrt, node_name="conv2", node_operator="Conv", desc="Assertion failed: dims are wrong")
    with pytest.raises(BuildError, match=r"node 3 'conv2' \(Conv\): Assertion failed: dims are wrong") as caught:
        build(conv_net())
    assert "class Conv" not in str(caught.value)


@pytest.mark.parametrize("desc", [NOT_FOUND, "false"])
@pytest.mark.parametrize("named", [True, False])
def test_an_operator_that_the_parser_lacks_is_named_with_a_class_to_begin_with(tensorrt, desc, named):
    model = conv_net()
    node = model.graph.node[0]
    if not named:
        node.name = ""
    said(tensorrt, node_name=node.name, node_operator=node.op_type, desc=desc)
    words = rf"engine 'tensorrt' does not have the operator {node.op_type} \(node "
    with pytest.raises(BuildError, match=words) as caught:
        ptp.build(model, engine="tensorrt")
    assert f"class {node.op_type}(ptp.Plugin):" in str(caught.value)
    assert ("the operator is not supported" if desc == "false" else desc) in caught.value.text


def test_what_the_builder_logs_is_in_the_error_and_in_the_log(tensorrt, caplog):
    severity, logger = tensorrt.trt.ILogger.Severity, the_logger(tensorrt)
    logger.log(severity.ERROR, "an older build's")

    def build_serialized_network(network, config):
        logger.log(severity.ERROR, "no implementation of conv1")
        logger.log(severity.INFO, "tried 12 kernels")

    tensorrt.answers["Builder.build_serialized_network"] = build_serialized_network
    with caplog.at_level(logging.INFO), pytest.raises(BuildError, match="no implementation of conv1") as caught:
        build(conv_net())
    assert "older" not in str(caught.value)
    assert "tried 12 kernels" in caplog.text


def test_a_version_compatible_engine_is_built_and_loaded_as_one(tensorrt):
    flags, runtimes = list[Any](), tensorrt.made
    tensorrt.answers["IBuilderConfig.set_flag"] = flags.append
    build(conv_net())
    assert (flags, runtimes["Runtime"][-1].set_) == ([], {})
    build(conv_net(), settings={"version_compatible": True})
    assert flags == [tensorrt.trt.BuilderFlag.VERSION_COMPATIBLE]
    assert runtimes["Runtime"][-1].set_ == {"engine_host_code_allowed": True}


def test_a_range_that_tensorrt_refuses_is_a_build_error(tensorrt):
    tensorrt.answers["IBuilderConfig.add_optimization_profile"] = -1
    with pytest.raises(BuildError, match=r"refuses the ranges of dims \{'data': "):
        build(conv_net(batch="N"))


def test_the_workspace_and_the_search_are_limited_as_told(tensorrt):
    limits = []
    tensorrt.answers["IBuilderConfig.set_memory_pool_limit"] = lambda pool, size: limits.append((pool, size))
    build(conv_net(), settings={"workspace_bytes": 1 << 28, "level": 2})
    assert limits == [(tensorrt.trt.MemoryPoolType.WORKSPACE, 1 << 28)]
    assert tensorrt.made["IBuilderConfig"][-1].builder_optimization_level == 2


@pytest.mark.parametrize("name", ["Builder", "OnnxParser", "Runtime"])
def test_what_tensorrt_cannot_make_is_unavailable_with_what_it_said(tensorrt, name, monkeypatch):
    def null(*args):
        the_logger(tensorrt).log(tensorrt.trt.ILogger.Severity.ERROR, "CUDA initialization failure with error: 35")
        raise TypeError("pybind11::init(): factory function returned nullptr")

    monkeypatch.setattr(tensorrt.trt, name, null, raising=False)
    words = rf"cannot make its {name}: CUDA init.*35\nCauses: [\s\S]*Do: nvidia-smi"
    with pytest.raises(UnavailableError, match=words):
        build(conv_net())


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
