"""What TensorRT's typed networks get: the types that the precisions say, and no others."""

import onnx

from pytrtplugins.engines.tensorrt.graph import ParserForm, written_out
from pytrtplugins.passes import LayerPrecision, Precisions, layer_names, run_passes, to_half
from pytrtplugins.precision import Network
from pytrtplugins.tensor import DType
from tests.engines.networks import Affine, conv_net


def test_pinned_layers_reach_the_parser_in_float32_and_the_others_in_float16():
    network = Network(conv_net(Affine(2.0)), "reference")
    precisions = Precisions(
        "fp16", network.digest, layer_names(network.model), {"conv2": LayerPrecision("fp32", "pin")}
    )
    written = written_out(precisions.apply(network.model))
    form = run_passes(to_half(written, DType.FLOAT16), ParserForm())  # what the engine does for fp16
    kinds = {tensor.name: tensor.data_type for tensor in form.graph.initializer}
    assert kinds["w2"] == onnx.TensorProto.FLOAT
    assert kinds["w1_float16"] == onnx.TensorProto.FLOAT16
    assert [node.op_type for node in form.graph.node].count("Cast") == 2  # the input, and what conv2 reads
