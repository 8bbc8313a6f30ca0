"""Operators and parts of schemas that no form uses, each with the reason."""

from __future__ import annotations

from onnx.defs import OpSchema

from .draft import element_type

__all__ = ["OPERATORS", "RANDOM", "excluded"]

_SEQUENCES = "sequences and optionals"
_TEXT = "text"
_SEQUENCE_OPERATORS = (
    "ConcatFromSequence SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength SequenceMap "
    "SplitToSequence Optional OptionalGetElement OptionalHasElement"
)
_RANDOM = "random numbers, which each library draws differently"

RANDOM = frozenset(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)
"""Operators that draw random numbers."""

OPERATORS: dict[str, str] = {
    **dict.fromkeys(
        _SEQUENCE_OPERATORS.split(),
        _SEQUENCES,
    ),
    **dict.fromkeys(["RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"], _TEXT),
    **dict.fromkeys(sorted(RANDOM), _RANDOM),
    "ImageDecoder": "files of images as input",
}
"""Operator → why no form of it is drawn."""

_ATTRIBUTES = {
    "training_mode": "training",
    "seed": _RANDOM,
    "sparse_value": "tested by tests/passes",
    "value_string": _TEXT,
    "value_strings": _TEXT,
    "activation_alpha": "of activations that are not drawn",
    "activation_beta": "of activations that are not drawn",
}


def excluded(schema: OpSchema, item: tuple[str, str, str]) -> str:
    """Why no form uses a part of a schema; empty where forms are to use it."""
    if schema.name in OPERATORS:
        return OPERATORS[schema.name]
    kind, name, what = item
    if kind == "type" and element_type(what) is None:
        return _SEQUENCES if what.startswith(("seq(", "optional(")) else "text and complex numbers"
    if kind == "attribute" and what == "set" and name in _ATTRIBUTES:
        return _ATTRIBUTES[name]
    return ""
