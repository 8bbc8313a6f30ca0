"""What the reference engine refuses when it is built: what ONNX does not know, and what is known to be computed wrongly."""

from functools import cache, partial

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pytrtplugins as ptp
from pytrtplugins.engines.base.engine_file import read_engine_file, write_engine_file
from pytrtplugins.engines.base.types import BuildOptions
from pytrtplugins.engines.reference import ReferenceEngine
from pytrtplugins.engines.reference.coverage import VERSIONS, covers
from pytrtplugins.engines.reference.ops import OPS
from pytrtplugins.errors import BuildError, EngineFileError, ModelError
from tests.engines.model_parts import parsed
from tests.engines.operators import IMAGE, f, ints, model_of

SEQUENCE = f(5, 2, 3)
LSTM = [SEQUENCE, f(1, 16, 3), f(1, 16, 4)]
GRU = [SEQUENCE, f(1, 12, 3), f(1, 12, 4)]
RNN = [SEQUENCE, f(1, 4, 3), f(1, 4, 4)]


def typed(model):
    """The model, which says that its outputs are float32."""
    for info in model.graph.output:
        info.type.tensor_type.elem_type = TensorProto.FLOAT
    return model


def refused(model, words):
    """The engine's own refusal of a prepared model."""
    with pytest.raises(BuildError, match=words):
        ReferenceEngine(typed(model), BuildOptions())


def broken(model, words):
    """What is told of a model whose nodes do not keep to ONNX's schemas, before any engine sees it; the node's name."""
    with pytest.raises(ModelError, match=rf"{words}[\s\S]*\nDo: export the model again") as caught:
        ptp.build(typed(model), engine="reference")
    return caught.value.node


@pytest.mark.parametrize(
    ("op", "inputs", "words"),
    [
        ("Celux", [IMAGE], r"node 'Celux': operator Celux is not known; near: Celu\W[\s\S]*\nDo: engine="),
        ("Gelu", [IMAGE], "operator Gelu is not known in opset 18"),  # but in later ones
        ("Upsample", [IMAGE, f(4, low=1)], "operator Upsample is not known in opset 18"),  # but in earlier ones
    ],
)
def test_an_operator_that_an_opset_does_not_have_is_refused(op, inputs, words):
    refused(model_of(op, inputs, {}), words)


@pytest.mark.parametrize(("op", "inputs"), [("Relu", [IMAGE]), ("Celu", [IMAGE]), ("Conv", [IMAGE, f(4, 4, 3, 3)])])
def test_an_unknown_attribute_is_refused(op, inputs):
    words = rf"node '{op}' .*has the attribute 'slope'; {op} of opset 18 has"
    assert broken(model_of(op, inputs, {"slope": 0.5}), words) == op


def test_an_attribute_of_a_later_opset_is_refused():
    model = model_of("Reshape", [IMAGE, ints(0, -1)], {"allowzero": 1}, opset=13)
    broken(model, "has the attribute 'allowzero'; Reshape of opset 13 has none")


@pytest.mark.parametrize(
    ("op", "attributes"), [("Softmax", {"axis": 1.0}), ("LeakyRelu", {"alpha": 1}), ("TopK", {"axis": [1]})]
)
def test_an_attribute_of_another_type_is_refused(op, attributes):
    inputs = [IMAGE, ints(2)] if op == "TopK" else [IMAGE]
    model = model_of(op, inputs, attributes, outputs=2 if op == "TopK" else 1)
    broken(model, "is (INT|FLOAT|INTS); expected (INT|FLOAT)")


@pytest.mark.parametrize("make", [partial(ptp.build, engine="reference"), lambda m: ReferenceEngine(m, BuildOptions())])
def test_an_attribute_of_another_type_is_refused_behind_a_call_of_a_function_too(make):
    text = """(float[2] x) => (float[2] y) { y = own.Act <alpha = 1> (x) }
        <domain: "own", opset_import: ["": 18]> Act <alpha> (a) => (b) { b = LeakyRelu <alpha: float = @alpha> (a) }"""
    model = parsed(text, 18, 10, ["own"])
    with pytest.raises(ModelError, match=r"\(LeakyRelu\): attribute 'alpha' is INT; expected FLOAT"):
        make(model)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes"),
    [
        ("Conv", [IMAGE, f(4, 4, 3, 3)], {"auto_pad": "SAME"}),
        ("Pad", [IMAGE, ints(*[1] * 8)], {"mode": "mirror"}),
        ("Resize", [IMAGE, f(0), np.array([1, 1, 2, 2], np.float32)], {"mode": "area"}),
        ("Resize", [IMAGE, f(0), np.array([1, 1, 2, 2], np.float32)], {"nearest_mode": "round"}),
        ("GridSample", [IMAGE, f(2, 3, 3, 2)], {"padding_mode": "wrap"}),
        ("ScatterND", [IMAGE, ints(0).reshape(1, 1), IMAGE[:1]], {"reduction": "mean"}),
        ("LSTM", LSTM, {"direction": "backward", "hidden_size": 4}),
    ],
)
def test_an_unknown_word_is_refused_with_those_that_onnx_knows(op, inputs, attributes):
    name, value = next(iter(attributes.items()))
    broken(model_of(op, inputs, attributes), rf"{op} with {name}='{value}' is not known to ONNX; it knows \w+, \w+")


@pytest.mark.parametrize(("op", "inputs"), [("Add", [IMAGE]), ("Relu", [IMAGE, IMAGE]), ("Clip", [IMAGE] * 4)])
def test_a_wrong_number_of_inputs_is_refused(op, inputs):
    broken(model_of(op, inputs, {}), rf"node '{op}' .*has {len(inputs)} inputs?; {op} of opset 18 has (at least )?\d")


def test_a_wrong_number_of_outputs_is_refused():
    broken(model_of("Relu", [IMAGE], {}, outputs=2), "node 'Relu' .*has 2 outputs; Relu of opset 18 has 1")


def test_an_engine_file_of_an_opset_that_is_not_known_yet_is_refused(tmp_path):
    """As one that was saved where a newer onnx is installed: it is not prepared again."""
    path, newest = tmp_path / "net.engine", onnx.defs.onnx_opset_version()
    ptp.build(model_of("Relu", [IMAGE], {}), engine="reference").save(path)
    file = read_engine_file(path)
    model = file.model()
    model.opset_import[0].version = newest + 1
    write_engine_file(path, file.metadata, model.SerializeToString())
    words = f"the model has opset {newest + 1}, the installed onnx knows {newest}.\nDo: pip install"
    with pytest.raises(EngineFileError, match=words):
        ptp.load_engine(path)


@pytest.mark.parametrize(
    ("op", "inputs", "version"),
    [
        ("Softmax", [IMAGE], 11),  # over all axes from the given one on
        ("LogSoftmax", [IMAGE], 11),
        ("Hardmax", [IMAGE], 11),
        ("Resize", [IMAGE, np.array([1, 1, 2, 2], np.float32)], 10),
        ("RoiAlign", [IMAGE, f(1, 4, low=0), ints(0)], 10),
        ("Upsample", [IMAGE], 7),
        ("PRelu", [IMAGE, f(4)], 6),
        ("Add", [IMAGE, f(4)], 6),
    ],
)
def test_an_old_version_of_an_operator_that_meant_something_else_is_refused(op, inputs, version):
    attributes = {"scales": [1.0, 1.0, 2.0, 2.0]} if op == "Upsample" else {}
    words = rf"node '{op}': .*not computed here: .*version {version}\W|no attribute"
    refused(model_of(op, inputs, attributes, opset=version), words)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "words"),
    [
        ("LSTM", LSTM, {"hidden_size": 4, "clip": 1.0}, "does not read clip=1.0"),
        ("LSTM", LSTM, {"hidden_size": 4, "input_forget": 1}, "does not read input_forget=1"),
        ("LSTM", LSTM, {"hidden_size": 4, "activations": ["Relu", "Tanh", "Tanh"]}, "does not read activations="),
        ("LSTM", [*LSTM, None, np.array([5, 4], np.int32)], {"hidden_size": 4}, "does not read sequence_lens"),
        ("GRU", GRU, {"hidden_size": 4, "activations": ["Relu", "Tanh"]}, "does not read activations="),
        ("GRU", [*GRU, None, np.array([5, 4], np.int32)], {"hidden_size": 4}, "does not read sequence_lens"),
        ("RNN", RNN, {"hidden_size": 4, "clip": 1.0}, "does not read clip=1.0"),
        ("RandomUniformLike", [IMAGE], {}, "its result is random"),
        ("RandomUniformLike", [IMAGE], {"seed": 1.0}, "its result is random"),
        ("Bernoulli", [f(2, 3, low=0, high=1)], {}, "its result is random"),
        ("Dropout", [IMAGE, np.float32(0.5), np.array(True)], {}, "with training_mode it is random"),
    ],
)  # fmt: skip
def test_what_onnx_reference_would_compute_wrongly_is_refused_by_name(op, inputs, attributes, words):
    words = rf"node '{op}': {op} is not computed here: [\s\S]*{words}[\s\S]*\nDo: engine="
    refused(model_of(op, inputs, attributes), words)


def test_activations_that_are_the_usual_ones_are_no_reason_to_refuse():
    for op, inputs, usual in (("LSTM", LSTM, ["Sigmoid", "Tanh", "Tanh"]), ("GRU", GRU, ["Sigmoid", "Tanh"])):
        ptp.build(model_of(op, inputs, {"hidden_size": 4, "activations": usual}), engine="reference")


def test_text_is_refused():
    model = parsed("(float[2] x) => (float[2] y) { text = Cast <to = 8> (x) y = Cast <to = 1> (text) }", 18)
    with pytest.raises(BuildError, match="node 'Cast_text': tensor 'text' holds text"):
        ptp.build(model, engine="reference")


def test_a_scan_over_batches_is_refused():
    text = """(float[] i, float[] x) => (float[] y) { y = Scan <num_scan_inputs = 1,
        body = b (float[2] s, float[2] v) => (float[2] t) { t = Add (s, v) }> ( , i, x) }"""
    refused(parsed(text, 8), "node 'Scan_y': Scan over batches")


@cache
def _all_schemas():
    return onnx.defs.get_all_schemas_with_history()


def _schemas(op):
    return [s for s in _all_schemas() if s.domain == "" and s.name == op]


def test_every_function_says_which_versions_it_computes():
    assert VERSIONS.keys() == OPS.keys()
    for op, (first, last) in VERSIONS.items():
        known = {schema.since_version for schema in _schemas(op)}
        assert {first, last} <= known
        newer = [version for version in known if version > last]
        assert not newer, (
            f"onnx has {op} of opset {newer}: read what has changed, then raise its last version in coverage.py"
        )


def test_a_batch_normalization_that_trains_is_left_to_onnx_reference():
    assert [covers("BatchNormalization", 9, {}, outputs) for outputs in (1, 2, 5)] == [True, False, False]


@pytest.mark.parametrize("op", sorted(OPS))
def test_every_attribute_of_a_version_is_computed_or_left_to_onnx_reference(op):
    """Defaults are computed; a version before the first is not, and neither is an attribute that is not listed."""
    first, last = VERSIONS[op]
    for schema in _schemas(op):
        inside = first <= schema.since_version <= last
        defaults = {
            name: value.decode() if isinstance(value, bytes) else value
            for name, item in schema.attributes.items()
            if item.default_value.type and (value := helper.get_attribute_value(item.default_value)) is not None
        }
        assert covers(op, schema.since_version, defaults, 1) == inside
        assert not covers(op, schema.since_version, {**defaults, "a_new_attribute": 0}, 1)
    assert not covers(op, last + 1, {}, 1)
