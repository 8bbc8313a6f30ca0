"""Operators of PyTorch's in its ONNX exporters: the plugins' nodes, which engines run with PyTorch's numbers."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType, SimpleNamespace

import numpy as np
import onnx
import pytest

import pytrtplugins as ptp
from pytrtplugins.errors import MissingExtraError
from pytrtplugins.layers import Region, Reorg
from pytrtplugins.plugin.onnx_node import from_node
from pytrtplugins.torch import exporters
from tests.torch.operators import ManyKinds, PassThrough, SumAndHalf

torch = pytest.importorskip("torch", reason='PyTorch is not installed (pip install "pytrtplugins[torch]")')

pytestmark = pytest.mark.filterwarnings("ignore")  # the exporters' own

ptp.torch.register(Reorg)
ptp.torch.register(Region)
many_kinds = ptp.torch.register(ManyKinds)
UNTRACED = ("names", "flags")  # PyTorch traces no lists of texts or truth values into TorchScript
sum_and_half = ptp.torch.register(SumAndHalf, outputs=2)


def exported(net, inputs, path, dynamo, free=True):
    """The file that an exporter writes, with a free batch."""
    if dynamo:
        pytest.importorskip("onnxscript", reason='onnxscript is not installed (pip install "pytrtplugins[torch]")')
    names = [f"x{index}" for index in range(len(inputs))]
    batch: dict[str, object] = {}
    if free and dynamo:
        dim = torch.export.Dim("N", min=1, max=64)
        batch["dynamic_shapes"] = tuple({0: dim} for _ in inputs)
    elif free:
        batch["dynamic_axes"] = {name: {0: "N"} for name in names}
    torch.onnx.export(net, inputs, path, input_names=names, **batch, **ptp.torch.export_options(dynamo=dynamo))
    return onnx.load(path)


def plugin_nodes(model):
    return [node for node in model.graph.node if node.domain]


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "torchscript"])
def test_the_file_has_the_plugins_nodes_and_engines_give_pytorchs_numbers(tmp_path, dynamo):
    net, x = PassThrough().eval(), torch.rand(2, 3, 8, 8)
    path = tmp_path / "net.onnx"
    model = exported(net, (x[:1],), path, dynamo)
    nodes = plugin_nodes(model)
    assert [(node.domain, node.op_type) for node in nodes] == [("darknet", "Reorg"), ("darknet", "Region")]
    plugins = [Reorg(stride=2), Region(anchors=(1.0, 2.0) * 5, num=5, classes=1, softmax=True)]
    assert [from_node(node) for node in nodes] == plugins
    for node, plugin in zip(nodes, plugins, strict=True):
        wanted = {each.name: each for each in plugin.as_node([], []).attribute}
        assert {each.name: (each.type, each.i, each.s) for each in node.attribute} == {
            name: (each.type, each.i, each.s) for name, each in wanted.items()
        }
    assert {"darknet": 1}.items() <= {each.domain: each.version for each in model.opset_import}.items()
    wanted = net(x).detach().numpy()
    for engine in ("cpu", "onnxruntime", "reference"):
        module = ptp.torch.as_module(ptp.build(path, engine=engine))
        np.testing.assert_allclose(module(x).numpy(), wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "torchscript"])
@pytest.mark.parametrize(
    "fields",
    [{}, {"names": ["x"], "flags": [False, True], "mode": "lin", "weights": [], "counts": [1, 2], "limit": 1.0}],
    ids=["defaults", "given"],
)
def test_every_kind_of_field_becomes_an_attribute(tmp_path, dynamo, fields):
    fields = {name: value for name, value in fields.items() if dynamo or name not in UNTRACED}

    class Net(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, x):
            return many_kinds(x, factor=2.0, **fields)

    (node,) = plugin_nodes(exported(Net(), (torch.rand(2, 3),), tmp_path / "net.onnx", dynamo))
    assert from_node(node) == ManyKinds(factor=2.0, **fields)
    wanted = {each.name: each.type for each in ManyKinds(factor=2.0).as_node([], []).attribute}
    assert {each.name: each.type for each in node.attribute} == wanted


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "torchscript"])
def test_any_number_of_inputs_and_several_outputs(tmp_path, dynamo):
    class Net(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, x, y):
            total, half = sum_and_half([x, y, x + y])
            return total - 1, half * 2

    x, y = torch.rand(2, 4), 9 * torch.rand(2, 4)
    model = exported(Net(), (x, y), tmp_path / "net.onnx", dynamo, free=False)
    (node,) = plugin_nodes(model)
    assert (len(node.input), len(node.output)) == (3, 2)
    found_types = {each.name: each.type.tensor_type for each in model.graph.output}
    assert [each.elem_type for each in found_types.values()] == [onnx.TensorProto.FLOAT, onnx.TensorProto.INT32]
    assert [[dim.dim_value for dim in each.shape.dim] for each in found_types.values()] == [[2, 4], [2, 2]]
    found = ptp.torch.as_module(ptp.build(tmp_path / "net.onnx", engine="reference"))(x, y)
    for one, other in zip(found, Net()(x, y), strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other)


def onnx_text(value):
    return value.decode() if isinstance(value, bytes) else value


def test_todays_exporter_gets_a_function_for_each_operator_that_makes_the_plugins_node(monkeypatch):
    """With what stands for onnxscript's operators, which notes what it is made of and called with."""
    calls = []

    class Op:
        def __init__(self, opset, name, schema):
            assert schema.name == name
            self.made = opset, schema

        def __call__(self, *tensors, **attributes):
            calls.append((tensors, attributes, *self.made))
            return "node"

    values = ModuleType("onnxscript.values")
    values.Op, values.Opset = Op, lambda *given: given
    monkeypatch.setitem(sys.modules, "onnxscript", ModuleType("onnxscript"))
    monkeypatch.setitem(sys.modules, "onnxscript.values", values)
    options = ptp.torch.export_options()
    assert options.keys() == {"dynamo", "custom_translation_table"}
    assert options["dynamo"] is True
    table = options["custom_translation_table"]
    assert table[torch.ops.test_torch.many_kinds.default].__name__ == "ManyKinds"
    assert table[torch.ops.test_torch.many_kinds.default]("x", factor=2.0, names=["x"], mode=None, counts=[]) == "node"
    assert table[torch.ops.test_torch.sum_and_half.default](["x", "y"]) == "node"
    (tensors, attributes, opset, schema), (several, identity, _, of_several) = calls
    assert (tensors, several) == (("x",), ("x", "y"))
    assert identity == {"plugin_namespace": "test.torch", "plugin_version": "1"}
    node = ManyKinds(factor=2.0, names=("x",)).as_node([], [])
    wanted = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    assert attributes.keys() == wanted.keys()
    for name, value in wanted.items():
        given = getattr(attributes[name], "value", attributes[name])
        assert given == (onnx_text(value) if not isinstance(value, list) else type(given)(map(onnx_text, value)))
    assert (opset, schema.domain, schema.name, schema.since_version) == (
        ("test.torch", 1),
        "test.torch",
        "ManyKinds",
        1,
    )
    assert [(each.name, each.option.name) for each in schema.inputs] == [("x", "Single")]
    assert [each.name for each in schema.outputs] == ["y0"]
    assert {name: each.type.name for name, each in schema.attributes.items()} == {
        each.name: onnx.AttributeProto.AttributeType.Name(each.type) for each in node.attribute
    }
    assert [(each.name, each.option.name, each.is_homogeneous) for each in of_several.inputs] == [
        ("inputs", "Variadic", False)
    ]
    assert [each.name for each in of_several.outputs] == ["y0", "y1"]
    assert set(schema.type_constraints[0].allowed_type_strs) >= {"tensor(float)", "tensor(float16)", "tensor(int8)"}


def test_without_onnxscript_todays_exporter_is_refused_even_for_no_operators(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    monkeypatch.setattr(exporters, "registered_operators", list)
    with pytest.raises(MissingExtraError, match="an export to ONNX needs the package 'onnxscript'"):
        ptp.torch.export_options()
    assert ptp.torch.export_options(dynamo=False) == {"dynamo": False, "custom_opsets": {}}


@dataclass(frozen=True)
class Traced:
    """What TorchScript knows of a value."""

    sizes: tuple[int | None, ...] | None
    element: object = torch.float16
    name: str = "TensorType"

    def kind(self):
        return self.name

    def dtype(self):
        return self.element

    def varyingSizes(self):
        return self.sizes

    def with_dtype(self, element):
        return replace(self, element=element)

    def with_sizes(self, sizes):
        return replace(self, sizes=tuple(sizes))


@pytest.mark.parametrize("other", [Traced((2, 4)), Traced(None), Traced((2, 4), name="OptionalType")])
def test_a_traced_node_has_the_dims_and_types_of_its_outputs_where_those_of_all_inputs_are_known(other):
    found: dict = {}
    inputs = [SimpleNamespace(type=lambda: Traced((None, 4))), SimpleNamespace(type=lambda: other)]
    outputs = [SimpleNamespace(setType=partial(found.__setitem__, number)) for number in range(2)]
    exporters._set_output_types(SumAndHalf(), inputs, outputs)
    known = {0: Traced((None, 4)), 1: Traced((None, 2), torch.int32)}
    assert found == (known if other == Traced((2, 4)) else {})
