"""What onnx.reference computes otherwise than ONNX says is refused, and nothing else; test_known_errors.py compares the table."""

from __future__ import annotations

import re

import onnx
import pytest
from onnx import helper

from pytrtplugins.engines.reference.refusals import check_delegable
from pytrtplugins.errors import BuildError

X, SEQUENCES = ("x", "w", "r"), ("x", "w", "r", "", "lengths")


def refusal(op, attributes, inputs, outputs, version=None, domain=""):
    """Why a node is refused; empty if it is not."""
    node = helper.make_node(op, inputs, outputs, domain=domain)
    schema = onnx.defs.get_schema(op, version or onnx.defs.onnx_opset_version(), domain)
    try:
        check_delegable(node, schema, attributes, "node 'y'")
    except BuildError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("op", "attributes", "inputs", "outputs", "reason"),
    [
        *(
            (op, {}, ("x",), ("y",), "its result is random")
            for op in ("RandomNormal", "RandomUniformLike", "Bernoulli", "Multinomial")
        ),
        *(
            (op, {}, ("x",), ("y",), "text is not computed")
            for op in ("StringConcat", "StringSplit", "RegexFullMatch", "StringNormalizer")
        ),
        ("ImageDecoder", {}, ("x",), ("y",), "files inside tensors"),
        ("SequenceMap", {}, ("x",), ("y",), "a graph that runs over a sequence"),
        ("Dropout", {}, ("x",), ("y",), "with training_mode it is random"),
        *((op, {}, X, ("y",), "") for op in ("GRU", "LSTM", "RNN")),
        *((op, {}, SEQUENCES[:4], ("y",), "") for op in ("GRU", "LSTM", "RNN")),
        *((op, {}, (*X, "", ""), ("y",), "") for op in ("GRU", "LSTM", "RNN")),
        *((op, {}, SEQUENCES, ("y",), "does not read sequence_lens") for op in ("GRU", "LSTM", "RNN")),
        *((op, {"clip": 3.0}, X, ("y",), r"does not read clip=3\.0") for op in ("GRU", "LSTM", "RNN")),
        ("LSTM", {"input_forget": 0}, X, ("y",), ""),
        ("LSTM", {"input_forget": 1}, X, ("y",), "does not read input_forget=1"),
        ("LSTM", {"activations": ("Sigmoid", "Tanh", "Tanh")}, X, ("y",), ""),
        ("LSTM", {"activations": ("Sigmoid", "Tanh", "Tanh") * 2}, X, ("y",), ""),
        ("LSTM", {"activations": ("Sigmoid", "Tanh", "Relu")}, X, ("y",), "does not read activations"),
        ("GRU", {"activations": ("Sigmoid", "Tanh")}, X, ("y",), ""),
        ("GRU", {"activations": ("Tanh", "Sigmoid")}, X, ("y",), "does not read activations"),
        *((op, {"activation_alpha": (0.5,)}, X, ("y",), "does not read activation_alpha") for op in ("GRU", "LSTM")),
        *((op, {"activation_beta": (0.5,)}, X, ("y",), "does not read activation_beta") for op in ("GRU", "LSTM")),
        ("Attention", {"softcap": 2.0}, X, ("y",), ""),
        ("Attention", {"softcap": 2.0}, X, ("y", "", "", ""), ""),
        ("Attention", {}, X, ("y", "", "", "p"), ""),
        ("Attention", {"softcap": 2.0}, X, ("y", "", "", "p"), "gives products that softcap has limited"),
        ("Attention", {"softcap": 2.0, "qk_matmul_output_mode": 2}, X, ("y", "", "", "p"), ""),
        ("Relu", {}, ("x",), ("y",), ""),
    ],
)
def test_a_node_is_refused_for_what_onnxs_reference_does_not_do(op, attributes, inputs, outputs, reason):
    found = refusal(op, attributes, inputs, outputs)
    if reason:
        assert f"node 'y': {op} is not computed here: " in found
        assert found.endswith('\nDo: engine="onnxruntime" or engine="cpu"')
        assert re.search(reason, found), found
    else:
        assert found == ""


@pytest.mark.parametrize(
    ("op", "version", "computed"),
    [
        ("PRelu", 6, False), ("PRelu", 9, True), ("GRU", 7, True), ("LSTM", 7, True), ("GatherND", 11, True), ("CastLike", 19, True),
        ("OptionalHasElement", 15, True), ("Range", 11, True), ("SpaceToDepth", 13, True),
        ("Softmax", 11, False), ("Softmax", 13, True), ("Relu", 6, True),
    ],
)  # fmt: skip
def test_an_older_version_is_computed_where_it_means_the_same_or_has_a_class(op, version, computed):
    found = refusal(op, {}, X[:1], ("y",), version)
    if computed:
        assert found == ""
    else:
        assert f"with another meaning than version {version}" in found
        assert found.endswith("Do: onnx.version_converter.convert_version(model, 18)")
