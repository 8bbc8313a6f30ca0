"""Formulas of onnxruntime's own operators, by the text of their schemas."""

from __future__ import annotations

from collections.abc import Mapping

from .attention_formulas import ATTENTION
from .code_formulas import CODES
from .contrib import CONTRIB
from .fused_formulas import FUSED, Formula

__all__ = ["CONTRIB_FORMULAS"]

CONTRIB_FORMULAS: Mapping[str, Formula] = {
    f"{CONTRIB}.{operator}": formula for operator, formula in {**FUSED, **CODES, **ATTENTION}.items()
}
"""Operator → a function of attributes and operands that gives all outputs; None stands for one that is left out."""
