"""What TensorRT for RTX makes of Q/DQ nodes in other places, and what they cost in its file; write docs/how-to/tensorrt_qdq.md.

python -m benchmarks.tensorrt_builds.placement --write
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ..pages.builds import qdq_bytes, qdq_kernels
from ..pages.machine import about
from ..pages.results import DOCS, publish
from .build import ENGINE, recorded
from .layer_list import Layer

CHANNELS, SIDE, CONVOLUTIONS = 64, 56, 3
ACTIVATIONS = ("none", "Relu", "Clip", "LeakyRelu", "PRelu", "SiLU")
PLACES = ("behind the activation", "behind both")
FLOATS = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}
SCALES = ("per channel", "per tensor")


@dataclass
class Net:
    """A chain of convolutions in INT8.

    Attributes:
        activation: What stands behind each.
        both: Whether Q/DQ stands before the activation, too.
        kind: Element type of the float part.
        per_tensor: Whether weights have one scale for all output channels.
        widths: Channels of the input and of each convolution's result.
        kernel: Side of the filters.
        quantized: Whether there are Q/DQ nodes at all.
    """

    activation: str = "Relu"
    both: bool = False
    kind: str = "float32"
    per_tensor: bool = False
    widths: Sequence[int] = (CHANNELS,) * (CONVOLUTIONS + 1)
    kernel: int = 3
    quantized: bool = True
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)

    def model(self) -> onnx.ModelProto:
        """The chain as a model; the last result stays in float."""
        current = self._pair("x")
        for index in range(len(self.widths) - 1):
            current = self._convolved(current, index)
            current = current if index == len(self.widths) - len("ab") else self._pair(current)
        kind = FLOATS[self.kind]
        ends = [
            helper.make_tensor_value_info("x", kind, (1, self.widths[0], SIDE, SIDE)),
            helper.make_tensor_value_info(current, kind, None),
        ]
        held = [numpy_helper.from_array(np.asarray(array), name) for name, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, "chain", ends[:1], ends[1:], held)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)

    def _convolved(self, x: str, index: int) -> str:
        rng, name = np.random.default_rng(index), f"conv{index}"
        dims = (self.widths[index + 1], self.widths[index], self.kernel, self.kernel)
        weights = self._constant(
            f"w{index}", rng.integers(-127, 128, dims).astype(np.int8 if self.quantized else np.float32)
        )
        if self.quantized:
            scale = np.float32(0.01) if self.per_tensor else np.full(dims[0], 0.01)
            scales = self._constant(f"ws{index}", np.asarray(scale, self._dtype))
            weights = self._add("DequantizeLinear", [weights, scales], f"wd{index}", axis=0)
        bias = self._constant(f"b{index}", rng.standard_normal(dims[0]).astype(self._dtype))
        result = self._add("Conv", [x, weights, bias], name, pads=[self.kernel // 2] * 4)
        return self._activated(self._pair(result) if self.both else result, f"{name}_activated")

    def _activated(self, x: str, name: str) -> str:
        number = self._dtype
        if self.activation == "none":
            return x
        if self.activation == "SiLU":
            return self._add("Mul", [x, self._add("Sigmoid", [x], f"{name}_gate")], name)
        if self.activation == "Clip":
            ends = [self._constant("lowest", number(0)), self._constant("highest", number(6))]
            return self._add("Clip", [x, *ends], name)
        if self.activation == "PRelu":
            slopes = self._constant("slopes", np.full((CHANNELS, 1, 1), 0.1, number))
            return self._add("PRelu", [x, slopes], name)
        return self._add(self.activation, [x], name)

    def _pair(self, x: str) -> str:
        if not self.quantized:
            return x
        scale = self._constant("scale", self._dtype(0.05))
        codes = self._add("QuantizeLinear", [x, scale, self._constant("zero", np.int8(0))], f"{x}_codes")
        return self._add("DequantizeLinear", [codes, scale], f"{x}_again")

    @property
    def _dtype(self) -> Any:
        return np.dtype(self.kind).type

    def _constant(self, name: str, array: Any) -> str:
        self.constants[name] = array
        return name

    def _add(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [output], name=output, **attributes))
        return output


def main() -> None:
    """Build the chains, print or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="keep the results, and write the tables of the page")
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of the page (default: %(default)s)")
    arguments = parser.parse_args()
    facts = about(("onnx", "tensorrt-rtx-cu13-libs"), "python -m benchmarks.tensorrt_builds.placement --write")
    record = {"subject": "qdq", **facts, "kernels": list(_kernel_rows()), "bytes": list(_size_rows())}
    print("\n\n".join([*qdq_kernels("qdq", record), *qdq_bytes("qdq", record)]))
    if arguments.write:
        publish(record, "tensorrt_qdq", "qdq", arguments.docs)


def _kernel_rows() -> Iterator[dict[str, Any]]:
    for activation, place, kind, scales in itertools.product(ACTIVATIONS, PLACES, FLOATS, SCALES):
        _, layers = _built(Net(activation, place == PLACES[1], kind, scales == SCALES[1]))
        convolutions = [layer for layer in layers if layer.kind == "correlation"]
        kernels = (len(layers) - 1) / len(convolutions)  # the first makes codes of the input
        writes = {layer.outputs[0].dtype for layer in convolutions}
        behind = layers[layers.index(convolutions[0]) + 1]
        steps = behind.name.removeprefix("__myl_").partition("_myl")[0]
        yield {
            "activation": activation, "place": place, "kind": kind, "scales": scales, "kernels": kernels,
            "writes": sorted(writes), "behind": steps, "gives": behind.outputs[0].dtype,
        }  # fmt: skip


def _size_rows() -> Iterator[dict[str, Any]]:
    for step, count in itertools.product((0, 8), (6, 12, 24)):
        row: dict[str, Any] = {"convolutions": count, "widening": step > 0}
        for quantized in (False, True):
            widths = [CHANNELS + step * index for index in range(count + 1)]
            net = Net(widths=widths, kernel=1, quantized=quantized, activation="Relu")
            plan, layers = _built(net)
            weights = sum(np.asarray(array).nbytes for name, array in net.constants.items() if name[0] == "w")
            generated = {layer.tactic for layer in layers if layer.kind == "kgen"}
            row["int8" if quantized else "fp32"] = [len(generated), len(plan) - weights]
        yield row


def _built(net: Net) -> tuple[bytes, tuple[Layer, ...]]:
    import pytrtplugins as ptp

    with recorded() as log:
        precision = "int8" if net.quantized else "fp32"
        engine = ptp.build(net.model(), engine=ENGINE, precision=precision, settings={"target": "sm89"}, progress=False)
    return engine.payload(), log.layers


if __name__ == "__main__":
    main()
