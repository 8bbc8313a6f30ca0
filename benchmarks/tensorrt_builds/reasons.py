"""Sorts the reasons for which models are refused: who refuses, and why, without what differs from model to model."""

from __future__ import annotations

import re

__all__ = ["BUILDER", "PACKAGE", "PARSER", "general_reason", "refused_by"]

PARSER, BUILDER, PACKAGE = "TensorRT's parser", "TensorRT's builder", "this package"
_PARSER_BEGIN = "BuildError: TensorRT's parser cannot read the model:\n"
_BUILDER_BEGIN = re.compile(r"BuildError: TensorRT.*? cannot build the model:\n")
_LACKS = re.compile(r"BuildError: engine '\w+' does not have the operator ")
_NODE = re.compile(r"node -?\d+ '.*?' \(\w*\): ")
_LOGGED = re.compile(r"Error Code \d+: [\w ]+\((.*?)(?: In \w+ at /\S+|\)$|\n|$)")
_LONGEST = 160  # characters


def refused_by(reason: str) -> str:
    """Return which part refuses a model: `PARSER`, `BUILDER` or `PACKAGE`."""
    if reason.startswith(_PARSER_BEGIN) or _LACKS.match(reason):
        return PARSER
    return BUILDER if _BUILDER_BEGIN.match(reason) else PACKAGE


def general_reason(reason: str) -> str:
    """Return a reason without names, numbers and advice; two models that lack the same have the same text."""
    if _LACKS.match(reason):
        return "the operator is not supported"
    text = _BUILDER_BEGIN.sub("", reason.removeprefix(_PARSER_BEGIN))
    text = text.partition("\nDo: ")[0].partition("; inputs and outputs of engine")[0]
    text = re.sub(r"is of the element type \w+", "is of an element type that no input or output has", text)
    text = _NODE.sub("", text, count=1)
    if logged := _LOGGED.search(text):
        text = re.sub(r".*CHECK\(.*\) failed\. ", "", logged[1])
    text = text.removeprefix("Assertion failed: ")
    if message := re.search(r'&& "(.*)"\s*$', text, re.DOTALL):
        text = message[1].replace('" "', "")
    elif refused_by(reason) == PACKAGE:
        text = re.sub(r"(?<=Error: )\S*/\S+: ", "", text.partition(". ")[0])
        text = re.sub(r"\[\w+\]", "[…]", text)
    elif message := re.match(r"[^\n]*?[)=\w]: (?=[A-Za-z`])(.*)", text, re.DOTALL):
        text = message[1]
    text = text.partition("\n")[0]
    text = re.sub(r"\b(node_of_)?\w+/\w+|\bnode_of_\w+", "…", text)
    text = re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`", "…", text)
    text = re.sub(r"\[(\d|, )*\]|\(\d[\d, ]*\)", "…", text)
    text = re.sub(r"(?<![\w.])-?\d[\d.,]*", "n", text)
    return _cell(text)


def _cell(text: str) -> str:
    """Return a text that fits into a cell of a Markdown table."""
    text = " ".join(text.split()).replace("|", "/").replace("<", "‹").replace(">", "›")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST].rsplit(' ', 1)[0]} …"
