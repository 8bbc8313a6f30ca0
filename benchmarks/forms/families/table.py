"""Which function draws the forms of which operator."""

from __future__ import annotations

from collections.abc import Callable

from ..contrib import CONTRIB
from ..draft import Draft

__all__ = ["BUILDERS", "Builder", "builds", "builds_contrib"]

Builder = Callable[[Draft], None]
BUILDERS: dict[str, Builder] = {}
"""Operator, with its domain unless that is ai.onnx → its builder."""


def builds(*operators: str) -> Callable[[Builder], Builder]:
    """Enter a builder for some operators; a text may name several."""

    def enter(builder: Builder) -> Builder:
        for operator in " ".join(operators).split():
            assert operator not in BUILDERS, operator
            BUILDERS[operator] = builder
        return builder

    return enter


def builds_contrib(operators: str) -> Callable[[Builder], Builder]:
    """Enter a builder for some operators of onnxruntime."""
    return builds(*(f"{CONTRIB}.{operator}" for operator in operators.split()))
