"""Plugins as nodes, as local functions and inlined: valid, complete and equal to compute."""

import numpy as np
import onnx
import onnxruntime
import pytest

from pytrtplugins.layers import Region, Reorg, Yolo
from pytrtplugins.model.decompose import add_functions, infer_shapes, inline_plugins

FORMS = {"plain": infer_shapes, "functions": add_functions, "inlined": inline_plugins}
OLD_ONNXRUNTIME = tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 24)
LAYERS = {
    "reorg": ([Reorg(2)], (4, 4, 6)),
    "reverse": ([Reorg(2, reverse=True)], (8, 3, 2)),
    "two reorgs": ([Reorg(2), Reorg(2, reverse=True), Reorg(1)], (4, 4, 4)),
    "region": ([Region(classes=3, num=2, softmax=True)], (16, 2, 3)),
    "background": ([Region(classes=3, num=2, softmax=True, background=True)], (16, 2, 3)),
    "tree": ([Region(classes=4, num=2, tree=(-1, -1, 0, 0))], (18, 2, 3)),
    "yolo": ([Yolo((1, 2, 3, 4), (0, 1), 3)], (16, 2, 3)),
}


def chain(plugins, dims, batch):
    helper = onnx.helper
    names = ["x", *(f"t{index}" for index in range(1, len(plugins))), "y"]
    nodes = [p.as_node([a], [b], f"n{b}") for p, a, b in zip(plugins, names, names[1:], strict=False)]
    out = (batch, *dims)
    for plugin in plugins:
        out = plugin.output_dims(out) if isinstance(batch, int) else (batch, *plugin.output_dims((1, *out[1:]))[1:])
    infos = [helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", (batch, *dims)), ("y", out))]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("darknet", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def computed(plugins, x):
    for plugin in plugins:
        (x,) = plugin.all_outputs([x])
    return x


@pytest.mark.parametrize("batch", [2, "N"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", LAYERS)
def test_the_checker_accepts_each_form(name, form, batch):
    model = FORMS[form](chain(*LAYERS[name], batch))
    onnx.checker.check_model(model, full_check=True)
    assert all(info.type.tensor_type.HasField("shape") for info in model.graph.output)


@pytest.mark.parametrize("form", ["functions", "inlined"])
@pytest.mark.parametrize("name", LAYERS)
def test_onnxruntime_gives_what_compute_gives_for_any_batch(name, form):
    plugins, dims = LAYERS[name]
    model = FORMS[form](chain(plugins, dims, "N"))
    if form == "functions" and any(node.overload for node in model.graph.node) and OLD_ONNXRUNTIME:
        pytest.skip(f"onnxruntime {onnxruntime.__version__} ignores the overloads of local functions")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for batch in (1, 3):
        x = np.random.default_rng(batch).standard_normal((batch, *dims), np.float32)
        # permutations are exact; exp in float32 instead of darknet's double is off by a few units in the last place
        np.testing.assert_allclose(session.run(None, {"x": x})[0], computed(plugins, x), rtol=2e-6, atol=2e-7)


def test_two_reorgs_of_different_fields_get_a_function_each():
    model = add_functions(chain(*LAYERS["two reorgs"], "N"))
    assert [(f.name, f.overload) for f in model.functions] == [("Reorg", ""), ("Reorg", "1"), ("Reorg", "2")]
    assert [node.overload for node in model.graph.node] == ["", "1", "2"]


def test_inlining_leaves_no_plugin_and_no_domain():
    model = inline_plugins(chain(*LAYERS["two reorgs"], 1))
    assert {node.domain for node in model.graph.node} == {""}
    assert [item.domain for item in model.opset_import] == [""]


def test_only_named_nodes_are_inlined():
    model = inline_plugins(chain(*LAYERS["two reorgs"], 1), only=["nt1"])
    assert [node.op_type for node in model.graph.node if node.domain == "darknet"] == ["Reorg", "Reorg"]


def test_the_given_model_is_not_changed():
    model = chain(*LAYERS["reorg"], "N")
    before = model.SerializeToString()
    for form in FORMS.values():
        form(model)
    assert model.SerializeToString() == before


@pytest.mark.parametrize("name", LAYERS)
def test_opencv_reads_the_inlined_form(name):
    cv2 = pytest.importorskip("cv2")
    plugins, dims = LAYERS[name]
    model = inline_plugins(chain(plugins, dims, 1))
    net = cv2.dnn.readNetFromONNX(np.frombuffer(model.SerializeToString(), np.uint8))
    x = np.random.default_rng(0).standard_normal((1, *dims), np.float32)
    net.setInput(x)
    np.testing.assert_allclose(net.forward(), computed(plugins, x), rtol=1e-5, atol=1e-6)


def test_a_model_of_plugins_alone_says_which_operators_its_decompositions_are():
    model = chain([Reorg(2)], (4, 4, 6), 1)
    del model.opset_import[0]
    x = np.arange(96, dtype=np.float32).reshape(1, 4, 4, 6)
    inlined = inline_plugins(model)
    assert [(item.domain, item.version) for item in inlined.opset_import] == [("", 18)]
    session = onnxruntime.InferenceSession(inlined.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], computed([Reorg(2)], x))
