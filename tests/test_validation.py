"""What comes in as a model is sound, or refused with the place and the reason, before memory is taken."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.errors import EngineFileError, ModelError

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper  # noqa: E402

from pytrtplugins import passes  # noqa: E402
from pytrtplugins._validation import load_external_data, validated  # noqa: E402
from pytrtplugins._validation.limits import MOST_DEPTH  # noqa: E402
from pytrtplugins.calibration import MinMaxCalibrator  # noqa: E402
from pytrtplugins.cli.loading import open_model  # noqa: E402
from pytrtplugins.decompose import check_claims, infer_shapes  # noqa: E402
from pytrtplugins.engines.base import BuildOptions  # noqa: E402
from pytrtplugins.engines.calibrate import calibrate  # noqa: E402
from pytrtplugins.engines.container import read_engine_file, write_engine_file  # noqa: E402
from pytrtplugins.engines.cpu import CpuEngine  # noqa: E402
from pytrtplugins.onnx_node import node_attributes  # noqa: E402

DIMS = (1, 3, 8, 8)
PHOTO = np.random.default_rng(0).standard_normal(DIMS).astype(np.float32)


def info(name, dims=DIMS, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, dims)


def model(*nodes, weights=(), inputs=None, outputs=("y",), functions=(), opset=18):
    graph = helper.make_graph(
        list(nodes),
        "g",
        [info("x")] if inputs is None else inputs,
        [info(name, None) for name in outputs],
        list(weights),
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=10)


def node(op_type, inputs, outputs, name="", **attributes):
    return helper.make_node(op_type, inputs.split(), outputs.split(), name or outputs.split()[0], **attributes)


def shape(name, *sizes):
    return helper.make_tensor(name, TensorProto.INT64, [len(sizes)], sizes)


def add(weight):
    return model(node("Add", "x w", "y"), weights=[weight])


def external(name="w", location="secret", kind=TensorProto.FLOAT, dims=DIMS, **places):
    tensor = TensorProto(name=name, data_type=kind, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **places}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def body(*nodes, weights=(), output="b"):
    return helper.make_graph(list(nodes), "body", [], [info(output, None)], list(weights))


def branches(then):
    """An If whose first branch is ``then``, and whose second is a constant."""
    other = body(node("Constant", "", "c", value=helper.make_tensor("v", 1, [1], [1.0])), output="c")
    return model(
        node("If", "when", "y", then_branch=then, else_branch=other),
        inputs=[info("x"), info("when", [], TensorProto.BOOL)],
    )


def function(name, *nodes, inputs=("a",), outputs=("b",)):
    return helper.make_function("local", name, list(inputs), list(outputs), list(nodes), [helper.make_opsetid("", 18)])


def call(name, inputs, outputs):
    return node(name, inputs, outputs, domain="local")


def nested(depth):
    graph = body(node("Identity", "x", "b"))
    for _ in range(depth):
        graph = body(node("If", "when", "b", then_branch=graph, else_branch=body(node("Identity", "x", "b"))))
    return model(
        node("If", "when", "y", then_branch=graph, else_branch=body(node("Identity", "x", "b"))),
        inputs=[info("x"), info("when", [], TensorProto.BOOL)],
    )


# -- structure ---------------------------------------------------------------------------------------------------------

RELU = node("Relu", "x", "y")
RAW = TensorProto(name="w", data_type=1, dims=[4], raw_data=bytes(8))
BOTH = TensorProto(name="w", data_type=1, dims=[2], raw_data=bytes(8), float_data=[1, 2])
WRONG_FIELD = TensorProto(name="w", data_type=1, dims=[2], int32_data=[1, 2])
NEGATIVE = TensorProto(name="w", data_type=1, dims=[-2, -2], raw_data=bytes(16))
OVERFLOW = TensorProto(name="w", data_type=1, dims=[2**33, 2**33], raw_data=b"")
TWO_KINDS = helper.make_node("Softmax", ["x"], ["y"], "soft")
TWO_KINDS.attribute.add(name="axis", type=onnx.AttributeProto.FLOAT, f=1.0)
TWICE = helper.make_node("Softmax", ["x"], ["y"], "soft", axis=1)
TWICE.attribute.add().CopyFrom(TWICE.attribute[0])

BROKEN = {
    "a convolution without weights": (model(node("Conv", "x", "y", "c")), r"'c' \(Conv\) has 1 input; .* has 2 to 3"),
    "an input left out": (
        model(helper.make_node("Conv", ["", "w"], ["y"], "c"), weights=[shape("w", 1)]),
        r"'c' \(Conv\) leaves out its input 0, X",
    ),
    "too many outputs": (model(node("Relu", "x", "y z")), r"has 2 outputs; Relu of opset 18 has 1"),
    "a cycle": (
        model(node("Relu", "x", "y"), node("Add", "x q", "p"), node("Relu", "p", "q"), node("Relu", "q", "r")),
        r"in a cycle: node 'p' \(Add\), node 'q' \(Relu\)",
    ),
    "a node that reads itself": (model(node("Add", "x y", "y")), r"in a cycle: node 'y' \(Add\)"),
    "a tensor that nobody writes": (model(node("Add", "x nowhere", "y")), "reads 'nowhere', which no node writes"),
    "an output that nobody writes": (model(node("Relu", "x", "z")), "output 'y' of the graph is written by no node"),
    "a tensor written twice": (model(node("Relu", "x", "y"), node("Abs", "x", "y", "again")), "'again'.*writes 'y'"),
    "a node that writes an input": (model(node("Relu", "x", "x"), RELU), "writes 'x'"),
    "two inputs of one name": (model(RELU, inputs=[info("x"), info("x")]), "two inputs have the name 'x'"),
    "two weights of one name": (
        model(RELU, weights=[shape("w", 1), shape("w", 1)]),
        "two initializers have the name 'w'",
    ),
    "an unknown attribute": (model(node("Relu", "x", "y", slope=1.0)), "has the attribute 'slope'; Relu .* has none"),
    "an attribute of another type": (model(TWO_KINDS), "attribute 'axis' is FLOAT; expected INT"),
    "an attribute given twice": (model(TWICE), "two attributes 'axis'"),
    "a missing attribute": (model(node("Cast", "x", "y")), "lacks the attribute 'to'"),
    "strides of zero": (
        model(node("MaxPool", "x", "y", kernel_shape=[2, 2], strides=[0, 1])),
        "attribute 'strides' has the value 0; expected 1 to 2147483647",
    ),
    "no opset": (model(RELU), "opset_import"),
    "an opset of version 0": (model(RELU, opset=0), "version 0"),
    "an input without a type": (model(RELU, inputs=[onnx.ValueInfoProto(name="x")]), "input 'x' has no type"),
    "an unknown element type": (model(RELU, inputs=[info("x", DIMS, 99)]), "input 'x' has the element type 99"),
    "too few bytes": (add(RAW), r"initializer 'w': FLOAT of dims \(4\) needs 16 bytes, found 8"),
    "data in two fields": (add(BOTH), "FLOAT data in raw_data and float_data"),
    "data in another field": (add(WRONG_FIELD), "FLOAT data belong into float_data, found int32_data"),
    "negative dims": (add(NEGATIVE), r"a negative size in its dims \(-2, -2\)"),
    "dims whose product overflows": (add(OVERFLOW), "2\\^68 bytes|256 EiB"),
    "too many dims": (add(TensorProto(name="w", data_type=1, dims=[1] * 1000, raw_data=bytes(4))), "1,000 dims"),
    "a constant in an attribute": (
        model(node("Constant", "", "w", value=RAW), node("Add", "x w", "y")),
        r"node 'w' \(Constant\): attribute 'value': .* needs 16 bytes",
    ),
    "a constant in a body": (
        branches(body(node("Identity", "w", "b"), weights=[RAW])),
        r"in node 'y' \(If\): initializer 'w': .* needs 16 bytes",
    ),
    "a body that reads what nobody writes": (branches(body(node("Identity", "nowhere", "b"))), "reads 'nowhere'"),
    "a function that calls itself": (
        model(call("F", "x", "y"), functions=[function("F", call("F", "a", "b"))]),
        "local::F calls itself",
    ),
    "functions that call each other": (
        model(call("F", "x", "y"), functions=[function("F", call("G", "a", "b")), function("G", call("F", "a", "b"))]),
        "local::[FG] calls itself",
    ),
    "functions of 2^40 nodes": (
        model(
            call("F39", "x", "y"),
            functions=[function("F0", node("Relu", "a", "b"))]
            + [function(f"F{i}", call(f"F{i - 1}", "a", "c"), call(f"F{i - 1}", "c", "b")) for i in range(1, 40)],
        ),
        "more than 1,000,000 nodes where its local functions are written out",
    ),
    "graphs within graphs": (nested(MOST_DEPTH), f"more than {MOST_DEPTH} deep"),
}
del BROKEN["no opset"][0].opset_import[:]
NOT_TEXT = onnx.ModelProto.FromString(model(node("Relu", "x", "y")).SerializeToString().replace(b"Relu", b"Re\xffu"))
BROKEN["a name that is no text"] = (NOT_TEXT, "op_type of a NodeProto is no text")


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_model_is_refused_by_every_engine_with_the_place_and_the_reason(name):
    broken, reason = BROKEN[name]
    for engine in ("cpu", "onnxruntime", "reference", "null"):
        with pytest.raises(ModelError, match=reason) as caught:
            ptp.build(broken, engine=engine)
        assert "\nDo: " in str(caught.value)


def test_the_error_names_the_file(tmp_path):
    onnx.save(BROKEN["a cycle"][0], tmp_path / "model.onnx")
    with pytest.raises(ModelError, match=r"model\.onnx: nodes wait") as caught:
        ptp.load_onnx(tmp_path / "model.onnx")
    assert caught.value.path == tmp_path / "model.onnx"
    assert caught.value.node == "p"


def test_a_sound_model_is_given_back_itself():
    sound = model(RELU)
    assert validated(sound) is sound


def test_graphs_within_graphs_may_be_as_deep_as_files_can_hold():
    validated(nested(MOST_DEPTH - 3))


@pytest.mark.parametrize("engine", ["cpu", "onnxruntime", "reference"])
def test_shuffled_nodes_run_with_the_numbers_of_the_model_in_order(engine):
    chain = [node("Relu", "x", "a"), node("Add", "a x", "b"), node("Mul", "b a", "c"), node("Abs", "c", "y")]
    shuffled = model(*(chain[index] for index in (3, 1, 2, 0)))
    before = shuffled.SerializeToString()
    with ptp.build(shuffled, engine=engine).create_context() as context:
        found = context.run({"x": PHOTO})["y"]
    relu = np.maximum(PHOTO, 0)
    np.testing.assert_allclose(found, np.abs((relu + PHOTO) * relu), rtol=1e-6)
    assert shuffled.SerializeToString() == before


def test_shuffled_nodes_of_bodies_are_sorted():
    found = validated(branches(body(node("Relu", "t", "b"), node("Abs", "x", "t"))))
    (then,) = (item.g for item in found.graph.node[0].attribute if item.name == "then_branch")
    assert [item.op_type for item in then.node] == ["Abs", "Relu"]


def test_every_model_of_onnxs_own_node_tests_comes_in():
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of NumPy, about the cases' own numbers
        cases = collect_testcases(None)
    assert len(cases) > 1000
    for case in cases:
        check_claims(case.model)


def test_what_onnxs_checker_says_of_arity_and_attributes_is_said_here_too():
    names = ["a convolution without weights", "too many outputs", "an unknown attribute", "a missing attribute", "a cycle",
             "an attribute of another type", "a tensor that nobody writes", "a tensor written twice"]  # fmt: skip
    for name in names:
        with pytest.raises(onnx.checker.ValidationError):
            onnx.checker.check_model(BROKEN[name][0])


# -- claims ------------------------------------------------------------------------------------------------------------

CLAIMS = {
    "ConstantOfShape": model(
        node("ConstantOfShape", "s", "k"), node("ReduceMax", "k", "m", keepdims=0), node("Add", "x m", "y"),
        weights=[shape("s", 2**40)],
    ),
    "Expand": model(node("Expand", "x", "y"), weights=[shape("s", 2**30, 3, 8, 8)]),
    "Tile": model(node("Tile", "x s", "y"), weights=[shape("s", 2**20, 2**20, 1, 1)]),
    "Range": model(
        node("Range", "zero most one", "k"), node("Cast", "k", "f", to=1), node("ReduceMax", "f", "m", keepdims=0),
        node("Add", "x m", "y"),
        weights=[helper.make_tensor(n, 7, [], [v]) for n, v in (("zero", 0), ("most", 2**50), ("one", 1))],
    ),
    "Pad": model(node("Pad", "x s", "y"), weights=[shape("s", 0, 0, 2**20, 2**20, 0, 0, 0, 0)]),
    "Conv": model(
        node("Conv", "x w", "y", pads=[2**20] * 4), weights=[helper.make_tensor("w", 1, [1, 3, 1, 1], [1.0] * 3)]
    ),
    "RandomNormal": model(node("RandomNormal", "", "r", shape=[2**40]), node("ReduceMax", "r", "m", keepdims=0), node("Add", "x m", "y")),
    "EyeLike": model(
        node("ConstantOfShape", "s", "k"), node("MatMul", "k k", "mm"), node("ReduceMax", "mm", "m", keepdims=0), node("Add", "x m", "y"),
        weights=[shape("s", 2**16, 2**16)],
    ),
    "Resize": model(node("Resize", "x  roi scales".replace("  roi", " roi"), "y"), weights=[
        helper.make_tensor("roi", 1, [0], []), helper.make_tensor("scales", 1, [4], [1, 1, 2.0**20, 2.0**20]),
    ]),
    "a body": branches(
        body(node("ConstantOfShape", "s", "k"), node("ReduceMax", "k", "b", keepdims=1), weights=[shape("s", 2**40)])
    ),
    "a function": model(
        node("Constant", "", "s", value=shape("v", 2**40)), call("F", "s", "m"), node("Add", "x m", "y"),
        functions=[function("F", node("ConstantOfShape", "a", "k"), node("ReduceMax", "k", "b", keepdims=0))],
    ),
    "many": model(
        node("ConstantOfShape", "s", "k0"), *(node("Neg", f"k{i}", f"k{i + 1}") for i in range(9)),
        node("ReduceMax", "k9", "m", keepdims=0), node("Add", "x m", "y"),
        weights=[shape("s", 2**27)],
    ),
    "an input": model(RELU, inputs=[info("x", [2**20, 2**20])]),
}  # fmt: skip
CLAIMS["Expand"].graph.node[0].input.append("s")


@pytest.mark.parametrize("name", CLAIMS)
def test_a_model_of_few_bytes_that_claims_all_memory_is_refused_with_its_claim_and_the_limit(name):
    claim = CLAIMS[name]
    assert claim.ByteSize() < 800
    with pytest.raises(ModelError, match=r"(TiB|GiB|PiB|EiB)[\s\S]*the limit"):
        check_claims(claim)
    with pytest.raises(ModelError, match="the limit"):
        ptp.build(claim, engine="null")


@pytest.mark.parametrize("sizes", [(0, 64), (1, 100), (2, 3, 8, 8)])
def test_a_reshape_to_another_number_of_elements_is_refused(sizes):
    """OpenVINO took the first one, and wrote behind its memory."""
    wrong = model(node("Reshape", "x s", "y"), weights=[shape("s", *sizes)])
    for engine in ("cpu", "onnxruntime", "reference"):
        with pytest.raises(
            ModelError, match=r"'y' \(Reshape\) makes .* of \(1, 3, 8, 8\), which has another number|infer"
        ):
            ptp.build(wrong, engine=engine)


def test_constants_may_grow_with_the_weights():
    weights = helper.make_tensor("w", TensorProto.INT8, [4], bytes(4), raw=True)
    scale = helper.make_tensor("s", 1, [], [0.5])
    check_claims(model(node("DequantizeLinear", "w s", "d"), node("Expand", "d e", "f"), node("ReduceMax", "f", "m", keepdims=0),
                       node("Add", "x m", "y"), weights=[weights, scale, shape("e", 2**20, 4)]))  # fmt: skip


# -- data in other files -----------------------------------------------------------------------------------------------

SECRET = external()
EXTERNAL = {
    "an initializer": add(SECRET),
    "an attribute": model(node("Constant", "", "w", value=SECRET), node("Add", "x w", "y")),
    "a body": branches(body(node("Identity", "w", "b"), weights=[SECRET])),
    "an attribute of a body": branches(body(node("Constant", "", "b", value=SECRET))),
    "a function": model(
        call("F", "x", "y"), functions=[function("F", node("Constant", "", "w", value=SECRET), node("Add", "a w", "b"))]
    ),
    "an attribute with a list": model(
        helper.make_node("Ours", ["x"], ["y"], domain="acme", values=[SECRET]),
    ),
}
EXTERNAL["a sparse initializer"] = model(node("Add", "x w", "y"))
EXTERNAL["a sparse initializer"].graph.sparse_initializer.add(
    values=external(dims=[2]), indices=shape("i", 0, 1), dims=DIMS
)


@pytest.fixture
def secret(tmp_path, monkeypatch):
    """A folder with a file that no model may read, as the working directory."""
    (tmp_path / "secret").write_bytes(np.full(DIMS, 7, np.float32).tobytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


DOORS = {
    "build": lambda m: ptp.build(m, engine="onnxruntime"),
    "load_onnx": ptp.load_onnx,
    "prepare": passes.prepare,
    "load_model": passes.load_model,
    "to_ir": passes.to_ir,
    "infer_shapes": infer_shapes,
    "an engine": lambda m: CpuEngine(m, BuildOptions()),
    "calibrate": lambda m: calibrate(m, MinMaxCalibrator([{"x": PHOTO}])),
}


@pytest.mark.parametrize("name", EXTERNAL)
@pytest.mark.parametrize("door", DOORS)
def test_a_model_handed_over_with_data_in_other_files_is_refused_at_every_door(secret, name, door):
    with pytest.raises(ModelError, match=r"data lie in another file \('secret'\)") as caught:
        DOORS[door](EXTERNAL[name])
    assert "Do: pytrtplugins.load_onnx(PATH)" in str(caught.value)
    assert caught.value.location == "secret"


def test_a_node_with_data_in_another_file_is_refused(secret):
    with pytest.raises(ModelError, match="data lie in another file"):
        node_attributes(EXTERNAL["an attribute"].graph.node[0])


@pytest.mark.parametrize("name", EXTERNAL)
def test_an_engine_file_with_data_in_other_files_is_refused(secret, name):
    ptp.build(model(RELU), engine="cpu").save("good.engine")
    facts = {k: v for k, v in read_engine_file("good.engine").metadata.items() if k not in ("format", "model_sha256")}
    write_engine_file("bad.engine", facts, EXTERNAL[name].SerializeToString())
    with pytest.raises(EngineFileError, match=r"data lie in another file \('secret'\)"):
        ptp.load_engine("bad.engine")


@pytest.mark.parametrize("name", [name for name in EXTERNAL if "list" not in name])
def test_a_file_brings_the_data_beside_it(secret, name):
    onnx.save(EXTERNAL[name], "model.onnx")
    if "sparse" in name:
        (secret / "secret").write_bytes(np.full(2, 7, np.float32).tobytes())
    loaded = ptp.load_onnx("model.onnx").model
    assert np.full(2, 7, np.float32).tobytes() in loaded.SerializeToString()
    assert (
        open_model(secret / "model.onnx").SerializeToString() == ptp.passes.load_model("model.onnx").SerializeToString()
    )
    validated(loaded)


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("/etc/hostname", "expected the name of a file within"),
        ("../above", "expected the name of a file within"),
        ("folder/../../above", "expected the name of a file within"),
        ("", "expected the name of a file within"),
        (".", "expected the name of a file within"),
        ("link", "symbolic link"),
        ("inner", "symbolic link"),
        ("linked/data", "symbolic link"),
        ("pipe", "no regular file"),
        ("folder", "no regular file"),
        ("hard", "hard links"),
        ("missing", "No such file"),
        ("short", "the file has 3 bytes; expected 768 from byte 0 on"),
    ],
)
def test_only_regular_files_within_the_folder_are_read(tmp_path, location, problem):
    import os

    folder = tmp_path / "model"
    (folder / "folder").mkdir(parents=True)
    for path in (tmp_path / "above", folder / "data", folder / "folder" / "data"):
        path.write_bytes(bytes(768))
    (folder / "short").write_bytes(b"abc")
    (folder / "link").symlink_to(tmp_path / "above")
    (folder / "inner").symlink_to("data")
    (folder / "linked").symlink_to("folder")
    (folder / "hard").hardlink_to(tmp_path / "above")
    os.mkfifo(folder / "pipe")
    onnx.save(add(external(location=location, length=768)), folder / "model.onnx")
    with pytest.raises(ModelError, match=rf"model\.onnx: its weights lie in other files[\s\S]*{problem}"):
        ptp.load_onnx(folder / "model.onnx")


@pytest.mark.parametrize(
    ("places", "problem"),
    [
        ({"offset": 4}, r"from byte 4 on the file has 1,532 bytes; expected 768"),
        ({"offset": 1000, "length": 768}, "the file has 1,536 bytes; expected 768 from byte 1,000 on"),
        ({"offset": -4}, "-4 is no number of bytes"),
        ({"offset": 2**70, "length": 768}, "the file has 1,536 bytes"),
        ({"length": 2**40}, "it says 1,099,511,627,776 bytes where its type and dims need 768"),
        ({"length": "many"}, "'many' is no number of bytes"),
    ],
)
def test_places_are_held_against_the_size_of_the_file(tmp_path, places, problem):
    (tmp_path / "data").write_bytes(bytes(1536))
    onnx.save(add(external(location="data", **places)), tmp_path / "model.onnx")
    with pytest.raises(ModelError, match=problem):
        ptp.load_onnx(tmp_path / "model.onnx")


def test_a_place_that_is_claimed_a_thousand_times_is_refused(tmp_path):
    (tmp_path / "data").write_bytes(bytes(768))
    tensors = [external(f"w{index}", "data", length=768) for index in range(1000)]
    onnx.save(model(RELU, weights=tensors), tmp_path / "model.onnx")
    with pytest.raises(ModelError, match=r"claim 750 KiB of data files of 768 bytes; the limit is 4 times"):
        ptp.load_onnx(tmp_path / "model.onnx")
    onnx.save(model(RELU, weights=tensors[:2]), tmp_path / "model.onnx")
    assert len(ptp.load_onnx(tmp_path / "model.onnx").model.graph.initializer) == 2  # tied weights


def test_data_that_are_exchanged_while_they_are_read_are_not_followed(tmp_path, monkeypatch):
    """Between the check and the reading a link takes the place of the file: what was opened is read."""
    import os

    (tmp_path / "data").write_bytes(np.full(DIMS, 1, np.float32).tobytes())
    (tmp_path / "other").write_bytes(np.full(DIMS, 9, np.float32).tobytes())
    found = add(external(location="data", length=768))
    fstat = os.fstat

    def exchange(handle):
        (tmp_path / "data").unlink(missing_ok=True)
        (tmp_path / "data").symlink_to("other")
        return fstat(handle)

    original = fstat

    class Facts:
        def __init__(self, facts):
            self.st_mode, self.st_nlink, self.st_size = facts.st_mode, 1, facts.st_size

    monkeypatch.setattr("pytrtplugins._validation.external.os.fstat", lambda handle: Facts(exchange(handle)))
    assert load_external_data(found, tmp_path / "model.onnx")
    monkeypatch.setattr("pytrtplugins._validation.external.os.fstat", original)
    assert np.frombuffer(found.graph.initializer[0].raw_data, np.float32)[0] == 1


def test_the_door_needs_no_engine_and_no_weights_of_its_own():
    code = (
        "import sys, onnx; from pytrtplugins._validation import validated; validated(onnx.ModelProto.FromString(sys.stdin.buffer.read()));"
        "print([name for name in ('onnxruntime', 'openvino', 'onnx_ir') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=model(RELU).SerializeToString(), capture_output=True, check=True
    )
    assert done.stdout.strip() == b"[]"


@pytest.mark.parametrize("text", [b"Relu", b"local", b"middle"])
def test_texts_that_are_not_utf8_are_refused(text):
    """Such as an operator's name: protobuf gives bytes for it, at which ONNX's own functions end with TypeError."""
    data = model(node("Relu", "x", "middle"), node("Neg", "middle", "y")).SerializeToString()
    assert validated(onnx.ModelProto.FromString(data)).graph.node
    broken = onnx.ModelProto.FromString(data.replace(text, b"\xff" + text[1:]))
    with pytest.raises(ModelError, match="is not UTF-8"):
        validated(broken)
