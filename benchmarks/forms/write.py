"""A drawn node as a model: operands as inputs or initializers, dims said or not, alone or inside of a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .contrib import ContribSchema
from .draft import Draft, Operand, element_type

__all__ = ["Written", "with_dims", "write"]

NODE = "the_node"
_BORDER = {
    "float32",
    "float16",
    "float64",
    "bfloat16",
    "bool",
    *(f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)),
}
_ALONE = {
    "Cast",
    "CastLike",
    "Range",
    "Mod",
    "Div",
    "Pow",
    "QuantizeLinear",
    "NonMaxSuppression",
    "BitCast",
    "MelWeightMatrix",
}
"""Operators whose result is not defined for every number, so that nothing is put before them."""

Written = tuple[onnx.ModelProto, dict[str, Any], tuple[str, ...]]
"""A model, the arrays of its inputs, and how it was written."""


def write(draft: Draft) -> Written:
    """The model of a draft; its ``rng`` draws how it is written."""
    return _Writer(draft).model()


class _Writer:
    def __init__(self, draft: Draft) -> None:
        self.draft, self.tags = draft, list[str]()
        self.inputs: dict[str, Any] = {}
        self.infos: list[onnx.ValueInfoProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.before: list[onnx.NodeProto] = []
        self.behind: list[onnx.NodeProto] = []
        self.domain = "ai.onnx" if draft.chance(0.04) and not isinstance(draft.schema, ContribSchema) else ""

    def model(self) -> Written:
        draft = self.draft
        names = self._operands()
        if draft.name == "If":
            self._input(
                "outer", Operand(draft.values((2, 3), np.dtype(np.float32)), elements=TensorProto.FLOAT), "said"
            )
        inside = self._begin(names)
        node = helper.make_node(
            draft.schema.name, names, draft.outputs, NODE, domain=self.domain or draft.schema.domain
        )
        node.attribute.extend(_attribute(draft, name, value) for name, value in draft.attributes.items())
        outputs = [name for name in draft.outputs if name]
        if not names:  # a network reads something
            self._input("x0", Operand(np.zeros(1, np.float32), elements=TensorProto.FLOAT), "said")
            self.behind.append(helper.make_node("Identity", ["x0"], ["read"]))
            outputs.append("read")
        model = self._model([*self.before, node], outputs)
        kinds = self._kinds(model)
        if inside:
            self._end(outputs, kinds)
        outputs = [self._decoded(name, kinds) for name in outputs]
        model = self._model([*self.before, node, *self.behind], outputs)
        self._say(model, kinds)
        return model, self.inputs, tuple(self.tags)

    def _operands(self) -> list[str]:
        """Names of the node's inputs; the operands become inputs or initializers of the graph."""
        draft = self.draft
        operands = draft.operands
        while operands and operands[-1].values is None and draft.chance(0.7):
            operands.pop()
        how = draft.one("computed", "weights", "weights", "mixed", "all") if draft.chance(0.9) else "computed"
        dims = draft.one("said", "said", "free")
        self.tags += [how, f"dims {dims}"]
        names = []
        for index, operand in enumerate(operands):
            if operand.values is None:
                names.append("")
                continue
            constant = {"computed": False, "weights": index > 0, "mixed": draft.chance(), "all": draft.chance(0.9)}[how]
            if operand.values.dtype.name not in _BORDER:
                constant = draft.chance(0.9)
            constant = constant if operand.constant is None else operand.constant
            name = f"{'w' if constant else 'x'}{index}"
            names.append(name)
            if constant:
                self.constants.append(self._initializer(operand.values, name))
            else:
                self._input(name, operand, dims)
        return names

    def _input(self, name: str, operand: Operand, dims: str) -> None:
        values = operand.values
        assert values is not None
        shape = [f"{name}_{axis}" for axis in range(values.ndim)] if dims == "free" else list(values.shape)
        self.inputs[name] = values
        self.infos.append(helper.make_tensor_value_info(name, operand.elements, shape))

    def _initializer(self, values: Any, name: str) -> onnx.TensorProto:
        array = np.ascontiguousarray(values).reshape(values.shape)
        if self.draft.chance(0.25):
            self.tags.append("typed data")
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            return helper.make_tensor(name, kind, array.shape, array.reshape(-1))
        return numpy_helper.from_array(array, name)

    def _begin(self, names: list[str]) -> bool:
        """Put a node before the drawn one, if it is to stand inside of a network."""
        draft = self.draft
        x = self.inputs.get(names[0]) if names else None
        if (
            x is None
            or x.dtype != np.float32
            or draft.schema.name in _ALONE
            or draft.opset < 7
            or not draft.chance(0.3)
        ):
            return False
        if draft.name in ("If", "Loop", "Scan", "MaxUnpool") or any(
            index > 0 and name == names[0] for index, name in enumerate(names)
        ):
            return False
        self.tags.append("inside")
        self.domain = ""
        if x.ndim == 4 and x.shape[1]:
            weights = draft.rng.uniform(-1, 1, (x.shape[1], x.shape[1], 1, 1)).astype(np.float32)
            self.constants.append(numpy_helper.from_array(weights, "before_w"))
            self.before.append(helper.make_node("Conv", [names[0], "before_w"], ["before"], "before"))
        else:
            self.constants.append(
                numpy_helper.from_array(np.asarray([0.25], np.float32).reshape((1,) if x.ndim else ()), "before_w")
            )
            self.before.append(helper.make_node("Add", [names[0], "before_w"], ["before"], "before"))
        names[0] = "before"
        draft.exact, draft.loose = False, 4 * draft.loose
        return True

    def _end(self, outputs: list[str], kinds: dict[str, int]) -> None:
        if kinds.get(outputs[0]) == TensorProto.FLOAT:
            self.behind.append(helper.make_node("Relu", [outputs[0]], ["behind"], "behind"))
            outputs[0] = "behind"

    def _decoded(self, name: str, kinds: dict[str, int]) -> str:
        """An output of a type that stays inside of networks is cast."""
        kind = kinds.get(name)
        if not kind or helper.tensor_dtype_to_np_dtype(kind).name in _BORDER or self.draft.opset < 19:
            return name
        self.behind.append(helper.make_node("Cast", [name], [f"{name}_cast"], f"{name}_cast", to=TensorProto.FLOAT))
        return f"{name}_cast"

    def _model(self, nodes: list[onnx.NodeProto], outputs: list[str]) -> onnx.ModelProto:
        graph = helper.make_graph(
            nodes, "form", self.infos, [onnx.ValueInfoProto(name=name) for name in outputs], self.constants
        )
        imports = [helper.make_opsetid(self.domain, self.draft.opset)]
        if self.draft.schema.domain:
            imports.append(helper.make_opsetid(self.draft.schema.domain, self.draft.version))
        ir = max(8, helper.find_min_ir_version_for([helper.make_opsetid("", self.draft.opset)], ignore_unknown=True))
        return helper.make_model(graph, opset_imports=imports, ir_version=ir)

    def _kinds(self, model: onnx.ModelProto) -> dict[str, int]:
        kinds = {info.name: info.type.tensor_type.elem_type for info in _inferred(model)}
        return kinds | self._contrib_kinds() if isinstance(self.draft.schema, ContribSchema) else kinds

    def _contrib_kinds(self) -> dict[str, int]:
        """Types of the outputs of an operator of onnxruntime: those that its builder has drawn, or those of operands."""
        draft = self.draft
        inputs: Sequence[Any] = draft.schema.inputs
        outputs: Sequence[Any] = draft.schema.outputs
        types = {
            inputs[min(index, len(inputs) - 1)].type_str: operand.elements
            for index, operand in enumerate(draft.operands)
            if operand.values is not None
        }
        types |= {name: helper.np_dtype_to_tensor_dtype(dtype) for name, dtype in draft.types.items()}
        texts = {name: item.type_str for name, item in zip(draft.outputs, outputs, strict=False) if name}
        return {name: types.get(text, 0) or element_type(text) or 0 for name, text in texts.items()}

    def _say(self, model: onnx.ModelProto, kinds: dict[str, int]) -> None:
        """Write types and dims of the outputs: none, those that ONNX infers, or free ones of as many axes."""
        how = self.draft.one("nothing", "dims", "free dims")
        if how != "nothing" and self._is_misjudged():
            how = "nothing"
        self.tags.append(f"outputs {how}")
        if isinstance(self.draft.schema, ContribSchema):
            self._say_contrib(model, kinds, how)
            return
        if how == "nothing":
            return
        said = with_dims(model, self.inputs)
        infos = {info.name: info for info in _inferred(said)}
        for output in model.graph.output:
            info = infos.get(output.name)
            if info is None or not info.type.tensor_type.HasField("shape"):
                continue
            dims: list[Any] = [
                d.dim_value if d.HasField("dim_value") else None for d in info.type.tensor_type.shape.dim
            ]
            if how == "free dims" or None in dims:
                dims = [f"{output.name}_{axis}" for axis in range(len(dims))]
            output.CopyFrom(helper.make_tensor_value_info(output.name, info.type.tensor_type.elem_type, dims))

    def _is_misjudged(self) -> bool:
        """Whether ONNX's inference tells dims that the operator does not give."""
        name, attributes = self.draft.schema.name, self.draft.attributes
        rounds = name in ("AveragePool", "LpPool", "MaxPool") and bool(attributes.get("ceil_mode"))
        return rounds or name == "STFT" or (name == "ConvTranspose" and "output_shape" in attributes)

    def _say_contrib(self, model: onnx.ModelProto, kinds: dict[str, int], how: str) -> None:
        """ONNX infers nothing here: the types are always said, as onnxruntime's tools do, and dims where the builder knows them."""
        first, shape = next(name for name in self.draft.outputs if name), self.draft.shape
        for output in model.graph.output:
            kind = kinds.get(output.name, 0) or TensorProto.FLOAT  # what stands behind the node gives float32
            dims: list[Any] | None = None
            if shape is not None and how != "nothing" and output.name in (first, "behind", f"{first}_cast"):
                dims = [f"{output.name}_{axis}" for axis in range(len(shape))] if how == "free dims" else [*shape]
            output.CopyFrom(helper.make_tensor_value_info(output.name, kind, dims))


def with_dims(model: onnx.ModelProto, inputs: Mapping[str, Any]) -> onnx.ModelProto:
    """The model with the dims of these arrays for its inputs."""
    said = onnx.ModelProto()
    said.CopyFrom(model)
    for info in said.graph.input:
        shape = inputs[info.name].shape
        info.CopyFrom(helper.make_tensor_value_info(info.name, info.type.tensor_type.elem_type, shape))
    return said


def _inferred(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    try:
        return list(onnx.shape_inference.infer_shapes(model, data_prop=True).graph.output)
    except Exception:  # some old operators have no inference, some forms crash it
        return []


def _attribute(draft: Draft, name: str, value: Any) -> onnx.AttributeProto:
    kind: Any = draft.schema.attributes[name].type
    return helper.make_attribute(name, value, attr_type=int(kind))
