"""The entry point of a kernel's source: its parameters and their types."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from ..errors import KernelError

__all__ = ["C_TYPES", "ELEMENT_TYPES", "Parameter", "Signature", "parse_signature"]

C_TYPES = {
    "float": "float32",
    "double": "float64",
    "__half": "float16",
    "half": "float16",
    "bool": "bool",
    "char": "int8",
    "signed char": "int8",
    "int8_t": "int8",
    "unsigned char": "uint8",
    "uint8_t": "uint8",
    "short": "int16",
    "int16_t": "int16",
    "unsigned short": "uint16",
    "uint16_t": "uint16",
    "int": "int32",
    "int32_t": "int32",
    "unsigned": "uint32",
    "unsigned int": "uint32",
    "uint32_t": "uint32",
    "long long": "int64",
    "long long int": "int64",
    "int64_t": "int64",
    "unsigned long long": "uint64",
    "uint64_t": "uint64",
    "size_t": "uint64",
}
"""C types that parameters may have, and NumPy's names for them."""

ELEMENT_TYPES = {
    "float32": "float",
    "float16": "__half",
    "float64": "double",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int16": "int16_t",
    "int32": "int",
    "int64": "long long",
    "bool": "bool",
}
"""What the type parameter of a kernel becomes, by the element type of an array."""
_HEAD = re.compile(
    r"(?:template\s*<(?P<template>[^>]*)>\s*)?(?:extern\s+\"C\"\s+)?__global__\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?"
    r"void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(?P<name>\w+)\s*\("
)


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel.

    Attributes:
        name: Its name in the source.
        type: C type of the value or of what it points to, without ``const``; may be the kernel's type parameter.
        pointer: Whether it takes an array.
        const: Whether the kernel only reads the array.
        text: The declaration as the source has it.
    """

    name: str
    type: str
    pointer: bool
    const: bool
    text: str

    def __str__(self) -> str:
        return f"{'const ' if self.const else ''}{self.type}{'*' if self.pointer else ''} {self.name}"


@dataclass(frozen=True)
class Signature:
    """The entry point of a kernel.

    Attributes:
        name: Its name.
        parameters: In order.
        element: Name of the type parameter, ``"T"`` as a rule; None for a kernel that is not a template.
        line: Line of the source where it starts, from 1.
    """

    name: str
    parameters: tuple[Parameter, ...]
    element: str | None
    line: int

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.parameters))})"


def parse_signature(source: str, name: str, label: str) -> Signature:
    """Find ``__global__ void name(...)`` in a kernel's source; ``label`` is what messages call the source.

    Raises:
        KernelError: there is no such kernel, or a parameter has a type that cannot be passed; ``.line`` says where.
    """
    code, heads = _heads(source)
    found = heads.get(name)
    if found is None:
        others = sorted(
            set(re.findall(r"__global__[^;{(]*?(?:\([^)]*\)\s*)?\b(\w+)\s*\(", code)) - {"__launch_bounds__"}
        )
        known = ", ".join(others) or "none"
        raise KernelError(
            f"{label}: there is no `__global__ void {name}(...)`. Kernels in it: {known}.", path=label, line=None
        )
    line = code.count("\n", 0, found.start()) + 1
    element = _type_parameter(found["template"], f"{label}:{line}: kernel {name}", label, line)
    text = code[found.end() : _closing(code, found.end())]
    parameters = []
    for part in filter(None, (" ".join(piece.split()) for piece in text.split(","))):
        parameters.append(_parameter(part, element, f"{label}:{line}: kernel {name}", label, line))
    return Signature(name, tuple(parameters), element, line)


@functools.lru_cache(maxsize=16)  # a source with many kernels is looked through once
def _heads(source: str) -> tuple[str, dict[str, re.Match[str]]]:
    """A source without comments, and where the first kernel of each name begins."""
    code = _without_comments(source)
    heads: dict[str, re.Match[str]] = {}
    for found in _HEAD.finditer(code):
        heads.setdefault(found["name"], found)
    return code, heads


def _without_comments(source: str) -> str:
    """The source with comments blanked out, line by line."""

    def blank(match: re.Match[str]) -> str:
        return match[0] if match[0].startswith('"') else re.sub(r"[^\n]", " ", match[0])

    return re.sub(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', blank, source, flags=re.S)


def _type_parameter(template: str | None, where: str, label: str, line: int) -> str | None:
    if template is None:
        return None
    match = re.fullmatch(r"\s*(?:typename|class)\s+(\w+)\s*", template)
    if match is None:
        raise KernelError(
            f"{where}: template <{template.strip()}>: expected one type parameter, `template <typename T>`.\n"
            "Do: name the types of the other arrays, such as `const long long* index`",
            path=label,
            line=line,
        )
    return match[1]


def _closing(code: str, start: int) -> int:
    depth = 1
    for place in range(start, len(code)):
        depth += {"(": 1, ")": -1}.get(code[place], 0)
        if depth == 0:
            return place
    return len(code)


def _parameter(text: str, element: str | None, where: str, label: str, line: int) -> Parameter:
    words = re.sub(r"\b(__restrict__|__restrict|__grid_constant__|volatile)\b", " ", text).replace("*", " * ")
    tokens = words.split()
    stars = tokens.count("*")
    const = "const" in tokens[: tokens.index("*")] if stars else False
    plain = [token for token in tokens if token not in ("*", "const")]
    name, kind = (plain[-1], " ".join(plain[:-1])) if len(plain) > 1 else ("", " ".join(plain))
    allowed = kind in C_TYPES or (kind in (element, "void") and stars == 1)
    if stars > 1 or not allowed or not name:
        own = f", {element} *" if element else ""
        raise KernelError(
            f"{where}: parameter `{text}` cannot be passed. Expected `type name` or `type* name` with a type of: "
            f"{', '.join(C_TYPES)}{own}.",
            path=label,
            line=line,
        )
    return Parameter(name, kind, bool(stars), const, text)
