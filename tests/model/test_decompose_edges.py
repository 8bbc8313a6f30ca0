"""Decompositions at their edges: unknown dims, contradictions, large models, names, several outputs."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from pytrtplugins import Plugin, plugin
from pytrtplugins.errors import DimsError, ModelError
from pytrtplugins.layers import Region, Reorg
from pytrtplugins.model.decompose import add_functions, infer_shapes, inline_plugins
from pytrtplugins.model.op_builder import OpBuilder, Value
from pytrtplugins.plugin.onnx_node import from_node
from pytrtplugins.tensor import DType
from tests.engines.operators import literal


@plugin(namespace="tests.decompose_edges")
class Halves(Plugin):
    """Two outputs, one of them an input as it is."""

    def output_dims(self, x):
        return x, (x[0], x[1] // 2)

    def compute(self, x):
        return x.copy(), x[:, : x.shape[1] // 2].copy()

    def decompose(self, op, x):
        return x, op.Split(x, axis=1, num_outputs=2, outputs=2)[0]


@plugin(namespace="tests.decompose_edges")
class Opaque(Plugin):
    """No decomposition."""

    def output_dims(self, x):
        return x

    def compute(self, x):
        return -x


@plugin(namespace="tests.decompose_edges")
class Both(Plugin):
    """One tensor behind the other."""

    def output_dims(self, x, y):
        return x[0], x[1] + y[1]

    def compute(self, x, y):
        return np.concatenate([x, y], 1)


def test_a_plugin_waits_for_the_dims_of_all_that_it_reads():
    """The second input is known only when another plugin's outputs are, and the nodes behind them."""
    nodes = [
        Halves().as_node(["x"], ["a", "half"], "halves"),
        helper.make_node("Concat", ["half", "half", "half"], ["c"], axis=1),
        Both().as_node(["x", "c"], ["y"], "both"),
    ]
    model = infer_shapes(make_model(nodes, ["N", 4]))
    assert dims_of(model) == {"a": ["N", 4], "half": ["N", 2], "c": ["N", 6], "y": ["N", 10]}


def test_pythons_operators_on_tensors_of_a_decomposition_are_refused_with_those_to_write():
    for refused in (lambda x: x * x, lambda x: 2 - x, lambda x: np.ones(2) @ x, lambda x: -x):
        with pytest.raises(TypeError, match=r"Do: op\.Mul\(x, y\), "):
            refused(Value("x", (2,)))


def test_a_missing_opset_of_a_plugins_domain_is_named_with_the_line_that_adds_it():
    model = make_model([helper.make_node("Opaque", ["x"], ["y"], domain="tests.decompose_edges")], [2])
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid("", 18))
    with pytest.raises(ModelError, match=r"make_opsetid\('tests\.decompose_edges', 1\)\)$"):
        infer_shapes(model)


def make_model(nodes, dims, outputs=("y",), initializers=(), out_dims=None, ir_version=10):
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, out_dims) for name in outputs]
    graph = helper.make_graph(nodes, "g", inputs, infos, list(initializers))
    domains = sorted({node.domain for node in nodes} | {""})
    opsets = [helper.make_opsetid(domain, 1 if domain else 18) for domain in domains]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)


def chain(*plugins):
    names = ["x", *[f"t{index}" for index in range(1, len(plugins))], "y"]
    return [item.as_node([names[i]], [names[i + 1]], f"node{i}") for i, item in enumerate(plugins)]


def run(model, x):
    return literal(model, {"x": x})


def dims_of(model):
    infos = [*model.graph.value_info, *model.graph.output]
    return {info.name: [d.dim_value or d.dim_param for d in info.type.tensor_type.shape.dim] for info in infos}


@pytest.mark.parametrize("batch", [3, "N"])
def test_the_plain_form_passes_the_checker_and_keeps_the_batchs_name(batch):
    model = infer_shapes(make_model(chain(Reorg(2), Region(classes=3, num=8)), [batch, 16, 4, 4]))
    onnx.checker.check_model(model, full_check=True)
    assert dims_of(model) == {"t1": [batch, 64, 2, 2], "y": [batch, 64, 2, 2]}


def test_two_reorgs_of_one_model_get_a_body_each_and_equal_ones_share_it():
    model = add_functions(make_model(chain(Reorg(2), Reorg(2, reverse=True), Reorg(2)), ["N", 16, 4, 4]))
    assert [(item.name, item.overload) for item in model.functions] == [("Reorg", ""), ("Reorg", "1")]
    assert [node.overload for node in model.graph.node] == ["", "1", ""]


def double(self, op, x):
    return op.Add(x, x)


def test_plugins_of_one_name_in_two_namespaces_have_functions_of_their_own():
    namespaces = ["tests.decompose_edges.a", "tests.decompose_edges.b"]
    plugins = [
        plugin(namespace=each, name="Twice")(type("Twice", (Opaque,), {"decompose": double}))() for each in namespaces
    ]
    model = add_functions(make_model(chain(*plugins), ["N", 4]))
    found = [(item.domain, item.name, item.overload) for item in model.functions]
    assert found == [(each, "Twice", "") for each in namespaces]


def test_a_function_leaves_the_node_a_plugin():
    model = add_functions(make_model(chain(Reorg(2, reverse=True)), [1, 16, 4, 4]))
    assert from_node(model.graph.node[0]) == Reorg(2, reverse=True)
    attributes = {item.name for item in model.graph.node[0].attribute}
    assert {"plugin_namespace", "plugin_version"} <= attributes


def test_openvino_reads_the_inlined_form():
    openvino = pytest.importorskip("openvino")
    model = inline_plugins(make_model(chain(Region(classes=3, num=2, softmax=True)), ["N", 16, 4, 8]))
    x = np.random.default_rng(0).standard_normal((2, 16, 4, 8), np.float32)
    compiled = openvino.compile_model(openvino.Core().read_model(model.SerializeToString()), "CPU")
    np.testing.assert_allclose(
        compiled(x)[0], Region(classes=3, num=2, softmax=True).compute(x), rtol=1e-4, atol=1e-5
    )  # OpenVINO's own exponential


def test_a_plugin_without_decomposition_stays():
    nodes = chain(Opaque(), Reorg(2))
    for form in (add_functions, inline_plugins):
        model = form(make_model(nodes, ["N", 4, 4, 4]))
        assert model.graph.node[0].op_type == "Opaque"
        assert all(item.name != "Opaque" for item in model.functions)


@pytest.mark.parametrize("form", [add_functions, inline_plugins], ids=lambda form: form.__name__)
def test_several_outputs_and_an_output_that_is_an_input(form):
    model = form(make_model([Halves().as_node(["x"], ["y", "z"])], ["N", 4], outputs=("y", "z")))
    onnx.checker.check_model(model, full_check=True)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    for found, expected in zip(run(model, x), Halves().compute(x), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_decomposition_that_needs_unknown_dims_leaves_the_plugin():
    model = make_model(chain(Reorg(2)), ["N", 4, "H", "W"])
    assert [node.op_type for node in inline_plugins(model).graph.node] == ["Reorg"]
    assert not add_functions(model).functions
    with pytest.raises(DimsError, match="symbolic"):
        inline_plugins(model, only=["node0"])


def test_shapes_run_through_plugins_and_operators_alike():
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        Reorg(2).as_node(["a"], ["b"]),
        helper.make_node("Concat", ["b", "b"], ["c"], axis=1),
        Reorg(1).as_node(["c"], ["y"]),
    ]
    found = dims_of(infer_shapes(make_model(nodes, ["N", 4, 4, 4])))
    assert found == {"a": ["N", 4, 4, 4], "b": ["N", 16, 2, 2], "c": ["N", 32, 2, 2], "y": ["N", 32, 2, 2]}


def test_refused_dims_name_the_node():
    with pytest.raises(DimsError, match=r"'node0'.*height must be a multiple of 2, found 5"):
        infer_shapes(make_model(chain(Reorg(2)), [1, 4, 5, 4]))


def test_a_declared_output_that_contradicts_the_plugin_is_an_error():
    model = make_model(chain(Reorg(2)), [1, 4, 4, 4], out_dims=[1, 4, 4, 4])
    with pytest.raises(ModelError, match="declares 'y' as"):
        infer_shapes(model)


def test_a_decomposition_with_the_wrong_number_of_outputs_is_an_error():
    model = make_model([Halves().as_node(["x"], ["y"])], ["N", 4])
    with pytest.raises(ModelError, match="2 outputs, the node 1"):
        infer_shapes(model)


def test_unnamed_nodes_and_nodes_of_one_name_give_unique_names():
    nodes = [
        Reorg(2).as_node(["x"], ["a"], "same"),
        Reorg(1).as_node(["a"], ["b"], "same"),
        Reorg(1).as_node(["b"], ["y"]),
    ]
    model = inline_plugins(make_model(nodes, [1, 4, 4, 4]))
    onnx.checker.check_model(model, full_check=True)
    outputs = [name for node in model.graph.node for name in node.output]
    assert len(outputs) == len(set(outputs))


def test_names_are_the_same_every_time():
    model = make_model(chain(Reorg(2), Reorg(2, reverse=True)), ["N", 4, 4, 4])
    for form in (add_functions, inline_plugins):
        assert form(model).SerializeToString(deterministic=True) == form(model).SerializeToString(deterministic=True)


def test_large_weights_are_not_serialized_while_shapes_are_inferred(monkeypatch):
    sizes, infer = [], onnx.shape_inference.infer_shapes

    def watched(model, **options):
        sizes.append(model.ByteSize())
        return infer(model, **options)

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", watched)
    weights = helper.make_tensor("w", TensorProto.FLOAT, [5_000_000], bytes(20_000_000), raw=True)
    nodes = [*chain(Reorg(2)), helper.make_node("Identity", ["w"], ["v"])]
    model = make_model(nodes, ["N", 4, 4, 4], initializers=[weights])
    inlined = inline_plugins(model)
    assert inlined.graph.initializer[0].raw_data == weights.raw_data
    assert sizes
    assert max(sizes) < 10_000


def test_constants_of_a_builder_keep_their_type():
    op = OpBuilder("p")
    op.Add(Value("x"), 0.5)
    op.Reshape(Value("x"), [-1, 2])
    op.Reshape(Value("x"), ())
    op.Add(Value("x"), np.ones(2, np.float16))
    kinds = [node.attribute[0].t.data_type for node in op.nodes if node.op_type == "Constant"]
    assert kinds == [TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT64, TensorProto.FLOAT16]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_floats_of_python_become_constants_of_the_inputs_type(dtype):
    @plugin(namespace=f"floats.{dtype}")
    class Half(Plugin):
        def output_dims(self, x):
            return x

        def compute(self, x):
            return x * x.dtype.type(0.5)

        def decompose(self, op, x):
            return op.Mul(x, 0.5)

    kind = helper.np_dtype_to_tensor_dtype(DType(dtype).numpy)
    infos = [helper.make_tensor_value_info(name, kind, [2]) for name in ("x", "y")]
    graph = helper.make_graph([Half().as_node(["x"], ["y"])], "g", infos[:1], infos[1:])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(f"floats.{dtype}", 1)]
    written = inline_plugins(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    onnx.checker.check_model(written, full_check=True)
    assert [node.op_type for node in written.graph.node] == ["Constant", "Mul"]


def test_a_builder_has_operators_only():
    with pytest.raises(AttributeError, match="capital"):
        _ = OpBuilder("p").relu


def test_functions_can_be_inlined_afterwards():
    model = inline_plugins(add_functions(make_model(chain(Reorg(2)), [1, 16, 4, 4])))
    assert not model.functions
    assert {node.domain for node in model.graph.node} == {""}
