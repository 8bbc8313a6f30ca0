"""The part of caffe's protobuf schema that converted networks use, built at run time without protoc.

Field numbers are those of BVLC/caffe, src/caffe/proto/caffe.proto. Two liberties, both invisible in the files: a blob's
``data`` is declared as bytes, since packed floats are little-endian float32 bytes on the wire and need no conversion
here; and plugins' parameter messages are derived from their declared fields.
"""

from __future__ import annotations

import functools
from typing import Any

from pytrtplugins.errors import FieldError
from pytrtplugins.plugin.base import Plugin
from pytrtplugins.plugin.fields import FieldSpec
from pytrtplugins.utils.optional import require

__all__ = ["messages", "parameter_name"]

PACKAGE = "caffe"

# message → (name, number, type); a star marks repeated fields, @ packed ones
_MESSAGES: dict[str, list[tuple[str, int, str]]] = {
    "BlobShape": [("dim", 1, "@int64")],
    "BlobProto": [("shape", 7, "BlobShape"), ("data", 5, "bytes")],
    "NetParameter": [("name", 1, "string"), ("layer", 100, "*LayerParameter")],
    "InputParameter": [("shape", 1, "*BlobShape")],
    "ConvolutionParameter": [
        ("num_output", 1, "uint32"),
        ("bias_term", 2, "bool"),
        ("pad", 3, "*uint32"),
        ("kernel_size", 4, "*uint32"),
        ("group", 5, "uint32"),
        ("stride", 6, "*uint32"),
        ("kernel_h", 11, "uint32"),
        ("kernel_w", 12, "uint32"),
    ],
    "PoolingParameter": [
        ("pool", 1, "PoolMethod"),
        ("kernel_size", 2, "uint32"),
        ("stride", 3, "uint32"),
        ("pad", 4, "uint32"),
        ("pad_h", 9, "uint32"),
        ("pad_w", 10, "uint32"),
        ("global_pooling", 12, "bool"),
    ],
    "ConcatParameter": [("axis", 2, "int32")],
    "EltwiseParameter": [("operation", 1, "EltwiseOp"), ("coeff", 2, "*float")],
    "ELUParameter": [("alpha", 1, "float")],
    "InnerProductParameter": [("num_output", 1, "uint32"), ("bias_term", 2, "bool")],
    "PowerParameter": [("power", 1, "float"), ("scale", 2, "float"), ("shift", 3, "float")],
    "ReshapeParameter": [("shape", 1, "BlobShape")],
    "SliceParameter": [("slice_point", 2, "*uint32"), ("axis", 3, "int32")],
    "ReLUParameter": [("negative_slope", 1, "float")],
    "SoftmaxParameter": [("axis", 2, "int32")],
    "BatchNormParameter": [("use_global_stats", 1, "bool"), ("eps", 3, "float")],
    "ScaleParameter": [("axis", 1, "int32"), ("bias_term", 4, "bool")],
    "LayerParameter": [
        ("name", 1, "string"),
        ("type", 2, "string"),
        ("bottom", 3, "*string"),
        ("top", 4, "*string"),
        ("blobs", 7, "*BlobProto"),
        ("concat_param", 104, "ConcatParameter"),
        ("convolution_param", 106, "ConvolutionParameter"),
        ("eltwise_param", 110, "EltwiseParameter"),
        ("inner_product_param", 117, "InnerProductParameter"),
        ("pooling_param", 121, "PoolingParameter"),
        ("power_param", 122, "PowerParameter"),
        ("relu_param", 123, "ReLUParameter"),
        ("softmax_param", 125, "SoftmaxParameter"),
        ("slice_param", 126, "SliceParameter"),
        ("reshape_param", 133, "ReshapeParameter"),
        ("batch_norm_param", 139, "BatchNormParameter"),
        ("elu_param", 140, "ELUParameter"),
        ("scale_param", 142, "ScaleParameter"),
        ("input_param", 143, "InputParameter"),
    ],
}
_ENUMS = {"PoolMethod": ["MAX", "AVE", "STOCHASTIC"], "EltwiseOp": ["PROD", "SUM", "MAX"]}
_FIRST_PLUGIN_FIELD = 1001  # far above caffe's own numbers and those of its forks


def parameter_name(plugin: type[Plugin]) -> str:
    """Name of a plugin's parameters in a caffe layer: ``reorg_param``."""
    return f"{plugin.plugin_key().name.lower()}_param"


@functools.cache
def messages(plugins: tuple[type[Plugin], ...]) -> dict[str, Any]:
    """Message classes by name: caffe's, and parameter messages of the given plugins, numbered in order."""
    descriptor_pb2 = require("google.protobuf.descriptor_pb2", extra="caffe", package="protobuf")
    descriptor_pool = require("google.protobuf.descriptor_pool", extra="caffe", package="protobuf")
    message_factory = require("google.protobuf.message_factory", extra="caffe", package="protobuf")
    schema = {name: list(fields) for name, fields in _MESSAGES.items()}
    for number, plugin in enumerate(plugins, start=_FIRST_PLUGIN_FIELD):
        message = f"{plugin.plugin_key().name}Parameter"
        schema[message] = [
            (spec.name, place, _type(plugin, spec)) for place, spec in enumerate(plugin.field_specs(), 1)
        ]
        schema["LayerParameter"].append((parameter_name(plugin), number, message))
    file = descriptor_pb2.FileDescriptorProto(name="caffe.proto", package=PACKAGE, syntax="proto2")
    for name, values in _ENUMS.items():
        enum = file.enum_type.add(name=name)
        for number, value in enumerate(values):
            enum.value.add(name=f"{name}_{value}" if value == "MAX" and name == "EltwiseOp" else value, number=number)
    for name, fields in schema.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            _add_field(descriptor_pb2.FieldDescriptorProto, message, field, number, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    classes = message_factory.GetMessageClassesForFiles([file.name], pool)
    return {name.removeprefix(f"{PACKAGE}."): cls for name, cls in classes.items()}


def _type(plugin: type[Plugin], spec: FieldSpec) -> str:
    kind = spec.field_kind
    if not kind.caffe:
        raise FieldError(
            f"{plugin.__name__}.{spec.name} is of type {kind.type_name}, which no parameter of a caffe layer has.\n"
            "Do: convert the network to ONNX instead",
            name=spec.name,
        )
    return kind.caffe


def _add_field(types: Any, message: Any, name: str, number: int, kind: str) -> None:
    repeated, packed, kind = kind[0] in "*@", kind[0] == "@", kind.lstrip("*@")
    field = message.field.add(
        name=name, number=number, label=types.LABEL_REPEATED if repeated else types.LABEL_OPTIONAL
    )
    if kind in _ENUMS:
        field.type, field.type_name = types.TYPE_ENUM, f".{PACKAGE}.{kind}"
    elif kind[0].isupper():
        field.type, field.type_name = types.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
    else:
        field.type = getattr(types, f"TYPE_{kind.upper()}")
    if packed:
        field.options.packed = True
