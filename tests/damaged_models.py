"""Small models that are damaged, byte by byte or in their structure, and what engines make of them.

``python -m tests.damaged_models --count 1000 --seed 0`` prints the outcomes as JSON, and on standard error each that must not be:
a crash, an exception that is not ours, a hang, memory beyond the limit, or numbers that are not onnxruntime's. Each model is
built and run in a fork with limits of memory, and of time for each engine.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import math
import os
import random
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import pytrtplugins as ptp
from pytrtplugins.errors import PytrtpluginsError
from pytrtplugins.layers import Reorg  # noqa: F401  # registers the layer of one model

ENGINES = ("cpu", "onnxruntime", "reference")
MEMORY, SECONDS = 6 << 30, 20
IMPORTED = ("openvino", "openvino.frontend.onnx", "onnxruntime", "onnx_ir.passes.common", "onnx.inliner", "onnx.version_converter",
            "onnx.reference", "onnx.reference.ops", "pytrtplugins.engines.openvino.engine", "pytrtplugins.engines.openvino.plugin_op",
            "pytrtplugins.engines.onnxruntime.engine", "pytrtplugins.engines.reference.engine")  # fmt: skip
EXTREMES = (0, -1, 1, 2, 3, 7, 2**15, 2**31 - 1, 2**31, 2**40, 2**62, -(2**31), -(2**63))
DIMS = (1, 4, 8, 8)


def node(op_type: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    names = [name.replace("_", "") if name == "_" else name for name in inputs.split()]
    return helper.make_node(op_type, names, outputs.split(), outputs.split()[0], **attributes)


def model(*nodes: onnx.NodeProto, functions: Any = (), **constants: Any) -> onnx.ModelProto:
    weights = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    info = [helper.make_tensor_value_info("x", 1, DIMS)], [helper.make_tensor_value_info("y", 1, None)]
    graph = helper.make_graph(list(nodes), "g", *info, weights)
    imports = [helper.make_opsetid(name, version) for name, version in (("", 18), ("local", 1), ("darknet", 1))]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=10)


def seeds() -> list[onnx.ModelProto]:
    """Sound models: convolutions, arithmetic of shapes, branches, a local function, INT8, a plugin."""
    rng = np.random.default_rng(0)

    def floats(*dims: int) -> np.ndarray:
        return rng.standard_normal(dims).astype(np.float32)

    def branch(name: str, op_type: str) -> onnx.GraphProto:
        return helper.make_graph([node(op_type, "x", name)], name, [], [helper.make_tensor_value_info(name, 1, None)])

    function = helper.make_function(
        "local", "Twice", ["a"], ["b"], [node("Add", "a a", "c"), node("Relu", "c", "b")], [helper.make_opsetid("", 18)]
    )
    return [
        model(
            node("Conv", "x w b", "c", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1], dilations=[1, 1], group=1),
            node("BatchNormalization", "c s t m v", "n"), node("LeakyRelu", "n", "l", alpha=0.1),
            node("MaxPool", "l", "p", kernel_shape=[2, 2], strides=[2, 2]), node("Concat", "p p", "j", axis=1),
            node("Reshape", "j shape", "y"),
            w=floats(4, 4, 3, 3), b=floats(4), s=floats(4), t=floats(4), m=floats(4), v=np.abs(floats(4)), shape=[2, 64],
        ),
        model(
            node("Shape", "x", "sh"), node("Gather", "sh i", "g"), node("Mul", "g two", "gg"), node("ConstantOfShape", "gg", "k"),
            node("Range", "zero five one", "r"), node("Cast", "r", "f", to=1), node("ReduceSum", "k _", "ks", keepdims=0),
            node("ReduceMax", "f _", "fm", keepdims=0), node("Add", "ks fm", "q"), node("Expand", "x e", "xe"),
            node("Tile", "xe reps", "xt"), node("Slice", "xt a b ax", "xs"), node("Mul", "xs q", "y"),
            i=np.array([1]), two=np.array([2]), zero=np.array(0), five=np.array(5), one=np.array(1), e=np.array([2, 4, 8, 8]),
            reps=np.array([1, 1, 2, 1]), a=np.array([1]), b=np.array([9]), ax=np.array([2]),
        ),
        model(
            node("ReduceMean", "x _", "mean", keepdims=0), node("Greater", "mean zero", "when"),
            node("If", "when", "i", then_branch=branch("p", "Relu"), else_branch=branch("q", "Neg")), node("Abs", "i", "y"),
            zero=np.float32(0),
        ),
        model(node("Twice", "x", "t", domain="local"), node("Softmax", "t", "y", axis=1), functions=[function]),
        model(
            node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "d"),
            node("DequantizeLinear", "w ws wz", "dw", axis=0), node("Conv", "d dw", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "y"),
            s=np.float32(0.05), z=np.int8(0), w=rng.integers(-100, 100, (4, 4, 3, 3)).astype(np.int8), ws=np.full(4, 0.01, np.float32),
            wz=np.zeros(4, np.int8),
        ),
        model(
            node("Pad", "x pads", "p", mode="constant"), node("Resize", "p _ scales", "u", mode="nearest"),
            node("ConvTranspose", "u w", "t", strides=[2, 2]), node("AveragePool", "t", "a", kernel_shape=[2, 2], strides=[2, 2]),
            node("Transpose", "a", "tr", perm=[0, 2, 3, 1]), node("Split", "tr parts", "s1 s2", axis=3), node("Sub", "s1 s2", "y"),
            pads=np.array([0, 0, 1, 1, 0, 0, 1, 1]),
            scales=np.array([1, 1, 2, 2], np.float32), w=floats(4, 4, 2, 2), parts=np.array([2, 2]),
        ),
        model(
            node("Reorg", "x", "r", domain="darknet", stride=2), node("Flatten", "r", "f"),
            node("Gemm", "f w", "y", transB=0), w=floats(256, 3),
        ),
    ]  # fmt: skip


# -- damage ------------------------------------------------------------------------------------------------------------


def _bytes(rng: random.Random, found: onnx.ModelProto) -> bytes:
    data = bytearray(found.SerializeToString())
    for _ in range(rng.randint(1, 3)):
        place, kind = rng.randrange(len(data)), rng.choice(["flip", "cut", "insert", "high"])
        if kind == "flip":
            data[place] ^= 1 << rng.randrange(8)
        elif kind == "high":
            data[place] = 0xFF
        elif kind == "insert":
            data[place:place] = bytes([rng.randrange(256)])
        elif rng.random() < 0.3:
            del data[place:]
        else:
            del data[place : place + rng.randint(1, 4)]
        data = data or bytearray(b"\0")
    return bytes(data)


def _drop_input(rng: random.Random, found: onnx.ModelProto) -> None:
    item = rng.choice(found.graph.node)
    if item.input:
        place = rng.randrange(len(item.input))
        if rng.random() < 0.5:
            item.input[place] = ""
        else:
            del item.input[place]


def _rewire(rng: random.Random, found: onnx.ModelProto) -> None:
    names = [
        "x",
        *(t.name for t in found.graph.initializer),
        *(n for i in found.graph.node for n in i.output),
        "nowhere",
    ]
    item = rng.choice(found.graph.node)
    if item.input:
        item.input[rng.randrange(len(item.input))] = rng.choice(names)


def _shuffle(rng: random.Random, found: onnx.ModelProto) -> None:
    nodes = [onnx.NodeProto.FromString(item.SerializeToString()) for item in found.graph.node]
    rng.shuffle(nodes)
    del found.graph.node[:]
    found.graph.node.extend(nodes)


def _dims(rng: random.Random, found: onnx.ModelProto) -> None:
    tensor = rng.choice(found.graph.initializer) if found.graph.initializer else None
    if tensor is not None and rng.random() < 0.7:
        if tensor.dims and rng.random() < 0.7:
            tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(EXTREMES)
        else:
            tensor.dims.append(rng.choice(EXTREMES))
    else:
        dims = found.graph.input[0].type.tensor_type.shape.dim
        dims[rng.randrange(len(dims))].dim_value = rng.choice(EXTREMES)


def _values(rng: random.Random, found: onnx.ModelProto) -> None:
    """Other values in a constant that may be a shape, an axis or a count."""
    tensors = [tensor for tensor in found.graph.initializer if tensor.data_type == TensorProto.INT64]
    if tensors:
        tensor = rng.choice(tensors)
        array = numpy_helper.to_array(tensor).copy()
        array[... if array.ndim == 0 else rng.randrange(array.size)] = rng.choice(EXTREMES)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _attributes(rng: random.Random, found: onnx.ModelProto) -> None:
    attributes = [a for item in found.graph.node for a in item.attribute if a.type in (a.INT, a.INTS)]
    if attributes:
        attribute = rng.choice(attributes)
        value = rng.choice(EXTREMES)
        if attribute.type == attribute.INT:
            attribute.i = value
        elif rng.random() < 0.5 and attribute.ints:
            attribute.ints[rng.randrange(len(attribute.ints))] = value
        else:
            attribute.ints.append(value)


def _operator(rng: random.Random, found: onnx.ModelProto) -> None:
    kinds = ["Add", "Conv", "Gather", "Unknown", "Loop", "Reshape", "MatMul", "Relu", "LSTM", "Concat", "TopK", ""]
    rng.choice(found.graph.node).op_type = rng.choice(kinds)


def _type(rng: random.Random, found: onnx.ModelProto) -> None:
    target = rng.choice([*found.graph.initializer, found.graph.input[0].type.tensor_type])
    name = "data_type" if isinstance(target, TensorProto) else "elem_type"
    setattr(target, name, rng.randrange(30))


def _names(rng: random.Random, found: onnx.ModelProto) -> None:
    item, other = rng.choice(found.graph.node), rng.choice(found.graph.node)
    item.output[rng.randrange(len(item.output))] = rng.choice([*other.output, "x", ""])


def _nodes(rng: random.Random, found: onnx.ModelProto) -> None:
    place = rng.randrange(len(found.graph.node))
    if rng.random() < 0.5:
        del found.graph.node[place]
    else:
        found.graph.node.add().CopyFrom(found.graph.node[place])


def _opset(rng: random.Random, found: onnx.ModelProto) -> None:
    found.opset_import[0].version = rng.choice([*EXTREMES, 9, 11, 13, 17, 99])


STRUCTURE: tuple[Callable[[random.Random, onnx.ModelProto], None], ...] = (
    _drop_input, _rewire, _shuffle, _dims, _values, _attributes, _operator, _type, _names, _nodes, _opset,
)  # fmt: skip


def damaged(seed: int) -> tuple[str, bytes]:
    """The kind of damage, and a damaged model."""
    rng = random.Random(seed)
    found = onnx.ModelProto()
    found.CopyFrom(rng.choice(seeds()))
    if rng.random() < 0.3:
        return "bytes", _bytes(rng, found)
    kinds = rng.sample(STRUCTURE, rng.choice([1, 1, 1, 2]))
    for kind in kinds:
        try:
            kind(rng, found)
        except ValueError:  # a number that protobuf's field does not hold
            continue
    return "+".join(kind.__name__.strip("_") for kind in kinds), found.SerializeToString()


# -- limits ------------------------------------------------------------------------------------------------------------


def outcome(data: bytes, engine: str) -> str:
    """What a fork finds: ``ran``, ``ran, beyond float32``, ``differs ...``, the name of one of our errors, or ``raw ...``."""
    try:
        proto = onnx.ModelProto.FromString(data)
    except Exception:
        return "no protobuf"
    try:
        quantized = any(item.op_type == "QuantizeLinear" for item in proto.graph.node)
        built = ptp.build(proto, engine=engine, precision="int8" if quantized else "fp32", threads=1)
        rng = np.random.default_rng(0)
        inputs = {
            desc.name: (rng.standard_normal([d if isinstance(d, int) else 1 for d in desc.dims]) * 3).astype(
                desc.dtype.numpy
            )
            for desc in built.inputs
        }
        with built.create_context() as context:
            found = context.run(inputs)
    except PytrtpluginsError as error:
        return type(error).__name__ if len(str(error)) < 4000 else f"raw, a message of {len(str(error)):,} characters"
    except MemoryError:
        return "raw MemoryError"
    except Exception as error:
        return f"raw {type(error).__name__}: {error}"[:300]
    return compared(data, inputs, found)


def compared(data: bytes, inputs: dict[str, Any], found: dict[str, Any]) -> str:
    """Whether onnxruntime by itself gives the same numbers; ``ran, alone`` where it refuses the model."""
    import onnxruntime

    from pytrtplugins.model.decompose import inline_plugins

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        plain = inline_plugins(onnx.ModelProto.FromString(data)).SerializeToString()
        session = onnxruntime.InferenceSession(plain, options, providers=["CPUExecutionProvider"])
        expected = dict(zip([item.name for item in session.get_outputs()], session.run(None, inputs), strict=True))
    except Exception:
        return "ran, alone"
    part = 0.01 if b"QuantizeLinear" in data else 1e-3  # a value on the edge between two codes
    for name, value in expected.items():
        if value.shape != found[name].shape:
            return f"differs in dims of {name!r}: {found[name].shape}, expected {value.shape}"
        wide = np.asarray(value, np.float64)
        finite = np.isfinite(wide)
        largest = np.abs(wide[finite]).max(initial=1.0)
        if largest > 1e30 or not finite.all():
            return "ran, beyond float32"  # flipped weights: what overflows on the way depends on the order of sums
        if not np.allclose(np.float64(found[name]), wide, rtol=1e-3, atol=part * largest):
            return f"differs in {name!r}"
    return "ran"


def forked(jobs: Sequence[tuple[bytes, str]]) -> list[str]:
    """`outcome` of each model and engine in forks with limits: a fork goes on until one ends it, and the next takes those left."""
    found: list[str] = []
    while len(found) < len(jobs):
        found += _in_a_fork(jobs[len(found) :])
    return found


def _in_a_fork(jobs: Sequence[tuple[bytes, str]]) -> list[str]:
    """The first outcomes; where not all are there, the last is how the fork ended."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        try:
            for data, engine in jobs:
                used = math.ceil(time.process_time())
                resource.setrlimit(resource.RLIMIT_CPU, (used + SECONDS, most))
                signal.alarm(6 * SECONDS)
                os.write(writer, json.dumps(outcome(data, engine)[:2000]).encode() + b"\n")
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        found = [json.loads(line) for line in file]
    _, status = os.waitpid(child, 0)
    return found if len(found) == len(jobs) else [*found, f"raw end, signal {os.WTERMSIG(status)}"]


def campaign(count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Outcomes of many models on all engines, and those that must not be."""
    outcomes, wrong = Counter[str](), list[str]()
    for name in IMPORTED:  # before the forks, which then need not
        importlib.import_module(name)
    ptp.build(seeds()[0], engine="reference")  # fills ONNX's tables of operators
    gc.freeze()  # no fork looks through what is here already, and copies it for that
    for index in range(seed, seed + count):
        kind, data = damaged(index)
        for engine, found in zip(ENGINES, forked([(data, engine) for engine in ENGINES]), strict=True):
            outcomes[
                f"{engine}: {found.partition(':')[0] if found.startswith('raw') else found.partition(' in')[0]}"
            ] += 1
            if found.startswith(("raw", "differs")):
                wrong.append(f"seed {index} ({kind}) on {engine}: {found}")
                print(wrong[-1], file=sys.stderr, flush=True)
    return outcomes, wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    counts, _ = campaign(arguments.count, arguments.seed)
    print(json.dumps(dict(sorted(counts.items()))))
