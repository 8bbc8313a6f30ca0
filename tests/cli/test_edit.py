"""Networks edited in a shell: `pytrt replace`, `pytrt extract`, `pytrt embed`, and what is no model."""

import re

import numpy as np
import onnx
import pytest
from onnx import helper

PLUGIN = """
import pytrtplugins as ptp

@ptp.plugin(namespace="editcli")
class Times(ptp.Plugin):
    factor: float = 1.0

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x * self.factor
"""


@pytest.fixture
def model(tmp_path):
    """x → Relu → an operator that nobody knows → Mul by a constant → y."""
    text = """<ir_version: 9, opset_import: ["": 18, "editcli.unknown": 1]>
        g (float[1, 4] x) => (float[1, 4] y) <float[4] k = {1, 2, 3, 4}, float[1, 4] b> {
            [relu] a = Relu (x)
            [odd] b = editcli.unknown.Odd (a)
            [mul] y = Mul (b, k)
        }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    (tmp_path / "times.py").write_text(PLUGIN)
    np.save(tmp_path / "x.npy", np.float32([[1, -2, 3, 4]]))
    return tmp_path / "model.onnx"


def test_the_line_that_a_refused_run_ends_with_can_be_typed(pytrt, printed, refused, model, tmp_path):
    err = refused("run", model)
    (line,) = re.findall(r"^  pytrt replace MODEL (\S+) (\S+) -o OUT.onnx", err, re.MULTILINE)
    assert line == ("odd", "odd.py:Odd")
    code, out, err = pytrt("replace", model, "odd", "times.py:Times", "--set", "factor=2.5", "-o", "edited.onnx")
    assert (code, err) == (0, "")
    assert out == "edited.onnx: 'odd' is Times(factor=2.5) now\nDo: pytrt run edited.onnx --plugins times.py\n"
    printed("run", "edited.onnx", "--plugins", "times.py", "--input", "x=@x.npy", "--save", "y.npz")
    np.testing.assert_array_equal(np.load(tmp_path / "y.npz")["y"], [[2.5, 0, 22.5, 40]])


@pytest.fixture
def replaced(pytrt, model):
    """Replaces a node with a plugin of a file; gives what `pytrt` gives."""
    return lambda node, target, *words: pytrt("replace", model, node, target, *words, "-o", "edited.onnx")


def give_attribute(model, name):
    """The attribute `name` of 3.0 for the unknown node."""
    net = onnx.load(model)
    net.graph.node[1].attribute.append(helper.make_attribute(name, 3.0))
    onnx.save(net, model)


def test_fields_take_the_values_that_the_node_has(replaced, model, tmp_path):
    give_attribute(model, "factor")
    code, out, err = replaced("odd", "times.py:Times", "--from-node")
    assert (code, out.partition("\n")[0], err) == (0, "edited.onnx: 'odd' is Times(factor=3.0) now", "")
    attributes = onnx.load(tmp_path / "edited.onnx").graph.node[1].attribute
    assert [each.f for each in attributes if each.name == "factor"] == [3.0]
    code, _, err = replaced("odd", "times.py:Times", "--from-node", "--set", "factor=1")
    assert (code, "both set the fields" in err) == (2, True)


def test_fields_take_values_of_other_names(replaced, model):
    give_attribute(model, "by")
    code, _, err = replaced("odd", "times.py:Times", "--from-node")
    assert (code, "fields={'factor': ...} (in a shell: --field factor=NAME)" in err) == (2, True)
    said = replaced("odd", "times.py:Times", "--field", "factor=by")[1]
    assert said.startswith("edited.onnx: 'odd' is Times(factor=3.0) now\n")


def test_constants_can_stay_inputs_and_a_field_without_a_value_says_where_values_come_from(replaced, tmp_path):
    (tmp_path / "scaled.py").write_text(
        PLUGIN.replace("Times", "Scaled").replace("(self, x)", "(self, x, k)").replace("float = 1.0", "float")
    )
    code, _, err = replaced("mul", "scaled.py:Scaled", "--from-node")
    assert (code, "inputs=['b', 'k'] (in a shell: --inputs b,k)" in err) == (2, True)
    code, _, err = replaced("mul", "scaled.py:Scaled", "--inputs", "b,k")
    assert (code, err.endswith("Do: --from-node, --field FIELD=NAME, or --set FIELD=VALUE\n")) == (2, True)


def test_several_nodes_are_replaced_through_the_inputs_of_the_first(replaced, tmp_path):
    assert replaced("mul", "times.py:Times", "--inputs", "a", "--outputs", "y")[0] == 0
    assert [node.op_type for node in onnx.load(tmp_path / "edited.onnx").graph.node] == ["Relu", "Times"]


def test_a_part_runs_alone(pytrt, printed, model, tmp_path):
    code, out, err = pytrt("extract", model, "--inputs", "b", "--outputs", "y", "-o", "part.onnx")
    assert (code, err) == (0, "")
    assert out == "part.onnx: 1 of 3 nodes\n  input  b 1 x 4\n  output y 1 x 4\n"
    printed("run", "part.onnx", "--input", "b=x.npy", "--save", "y.npz")
    np.testing.assert_array_equal(np.load(tmp_path / "y.npz")["y"], [[1, -4, 9, 16]])


@pytest.mark.parametrize("names", [("b,k",), ("b", "--inputs", "k")])
def test_names_stand_between_commas_or_in_options_of_their_own(printed, model, names):
    assert "  input  b 1 x 4\n  input  k 4\n" in printed("extract", model, "--inputs", *names, "-o", "part.onnx")


def test_names_that_are_not_there_are_answered_with_near_ones_and_the_list(printed, refused, replaced, model):
    code, _, err = replaced("ood", "times.py:Times")
    assert (code, "Near: 'odd'." in err, "pytrt inspect MODEL --nodes" in err) == (2, True, True)
    assert "--inputs A,B --outputs C" in refused("extract", model, "-o", "part.onnx")
    out = printed("inspect", model, "--nodes")
    assert re.search(r"odd\s+editcli.unknown::Odd\s+a: float32\[1, 4\] → b: float32\[1, 4\]", out)


def test_inspect_lists_what_an_engine_lacks(pytrt, model, tmp_path):
    code, out, err = pytrt("inspect", model, "--engine", "cpu")
    assert (code, err) == (0, "")
    assert re.search(r"odd\s+editcli.unknown.Odd\s+a: float32\[1, 4\] → b: float32\[1, 4\]", out)
    assert "Do: pytrt run MODEL --engine cpu" in out
    assert re.search(r"^Engine cpu lacks editcli.unknown.Odd 1$", out, re.MULTILINE)
    net = onnx.load(model)
    net.graph.node[1].domain = ""
    onnx.save(net, tmp_path / "own.onnx")
    assert "not ONNX's own: Odd 1; pytrt inspect MODEL --engine NAME" in pytrt("inspect", "own.onnx")[1]
    net.graph.node[1].op_type = "Neg"
    onnx.save(net, tmp_path / "known.onnx")
    assert pytrt("inspect", "known.onnx", "--engine", "cpu")[:2] == (0, "Engine cpu has all operators of this model.\n")


def test_what_a_library_reports_is_shown_where_it_is_asked_for(pytrt, model, tmp_path):
    net = onnx.load(model)
    net.graph.node[1].domain = ""
    onnx.save(net, tmp_path / "own.onnx")
    code, _, err = pytrt("run", "own.onnx", "--engine", "onnxruntime", "--verbose")
    assert (code, "No Op registered for Odd" in err, "class Odd(ptp.Plugin)" in err) == (2, True, True)
    code, _, err = pytrt("run", "own.onnx", "--engine", "onnxruntime")
    assert (code, "No Op registered" in err, "class Odd(ptp.Plugin)" in err) == (2, False, True)


@pytest.mark.parametrize(
    ("name", "data", "what", "do"),
    [
        ("dog.jpg", b"", "an image", "pytrt run MODEL dog.jpg"),
        ("dog.onnx", b"\xff\xd8\xff\xe0", "an image", "pytrt run MODEL dog.onnx"),
        ("dog", b"RIFF\0\0\0\0WEBPVP8 ", "an image", "pytrt run MODEL dog"),
        ("dog.MP4", b"", "a video", "pytrt run MODEL dog.MP4"),
        ("net.weights", b"", "darknet's weights", "net.cfg"),
        ("net.pt", b"", "PyTorch's weights", "torch.onnx.export"),
        ("x.npz", b"", "arrays", "--input NAME=x.npz"),
        ("net.cache", b"", "a calibration cache", "--cache net.cache"),
        ("net.plan", b"", "an engine of TensorRT's own tools", "pytrt build MODEL.onnx --engine tensorrt -o net.engine"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["run FILE", "inspect FILE", "build FILE -o x.engine", "compare net.onnx FILE"])
@pytest.mark.parametrize("exists", [True, False])
def test_a_file_of_another_kind_is_told_by_what_it_is(refused, tmp_path, command, exists, name, data, what, do):
    if exists or data:
        (tmp_path / name).write_bytes(data)
    err = refused(*command.replace("FILE", name).split())
    assert f"{name} is {what}" in err
    assert do in err.partition("\nDo: ")[2]


def test_a_folder_and_an_engine_where_a_model_is_needed_are_said_to_be_one(pytrt, refused, replaced, tmp_path):
    assert replaced("odd", "times.py:Times")[0] == 0
    assert pytrt("build", "edited.onnx", "--plugins", "times.py", "-o", "net.engine")[0] == 0
    code, _, err = pytrt("extract", "net.engine", "--outputs", "a", "-o", "part.onnx")
    assert (code, "net.engine is an engine, built already" in err) == (2, True)
    assert "net.engine is an engine, built already" in refused("build", "net.engine", "-o", "again.engine")
    assert not (tmp_path / "again.engine").exists()
    assert "is a folder; expected a model" in refused("run", tmp_path)


EMBEDDED = """
import pytrtplugins as ptp

@ptp.plugin(namespace="editcli")
class Shifted(ptp.Plugin):
    by: float = 1.0

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x + x.dtype.type(self.by)

    def decompose(self, op, x):
        return op.Add(x, self.by)

@ptp.plugin(namespace="editcli")
class Opaque(ptp.Plugin):
    def output_dims(self, x):
        return x

    def compute(self, x):
        return x + x
"""


def write_network(path, namespace, *calls):
    """x → plugins of this namespace, each with its fields → y; gives nothing."""
    names = ["x", *(f"t{index}" for index in range(1, len(calls))), "y"]
    fields = f'plugin_namespace = "{namespace}", plugin_version = "1"'
    nodes = "".join(
        f"[node{index}] {names[index + 1]} = {namespace}.{kind} <{', '.join([fields, *more])}> ({names[index]})\n"
        for index, (kind, *more) in enumerate(calls)
    )
    head = f'<ir_version: 10, opset_import: ["": 18, "{namespace}": 1]> g (float[1, 4] x) => (float[1, 4] y)'
    onnx.save(onnx.parser.parse_model(f"{head} {{ {nodes} }}"), path)


def test_an_embedded_file_runs_in_plain_onnxruntime(pytrt, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    (tmp_path / "bodies.py").write_text(EMBEDDED)
    write_network(tmp_path / "net.onnx", "editcli", ("Shifted", "by = 2.0"), ("Shifted", "by = 0.5"))
    code, out, err = pytrt("embed", "net.onnx", "--plugins", "bodies.py", "-o", "all.onnx")
    assert (code, out, err) == (0, "all.onnx: 2 of 2 plugin nodes with a function body\n", "")
    session = onnxruntime.InferenceSession(tmp_path / "all.onnx", providers=["CPUExecutionProvider"])
    x = np.array([[0.1, -3, 7, 1e8]], np.float32)
    (found,) = session.run(None, {"x": x})
    np.testing.assert_array_equal(found, (x + np.float32(2)) + np.float32(0.5))
    node = onnx.load(tmp_path / "all.onnx").graph.node[0]
    assert {attribute.name for attribute in node.attribute} == {"plugin_namespace", "plugin_version", "by"}


def test_plugins_that_stay_without_a_body_are_named(pytrt, tmp_path):
    (tmp_path / "bodies2.py").write_text(EMBEDDED.replace("editcli", "editcli2"))
    write_network(tmp_path / "net.onnx", "editcli2", ("Shifted", "by = 2.0"), ("Opaque",))
    code, out, _ = pytrt("embed", "net.onnx", "--plugins", "bodies2.py", "-o", "all.onnx")
    assert (code, out) == (0, "all.onnx: 1 of 2 plugin nodes with a function body; without: 'node1'\n")
