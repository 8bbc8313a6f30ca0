"""Write Python values as literals of C++."""

from __future__ import annotations

import json
import math
import re

import numpy as np

__all__ = ["float_literal", "int_literal", "text_literal"]


def text_literal(text: str) -> str:
    """A string literal: what JSON writes, with bytes beyond ASCII as octal numbers, which end by themselves."""
    quoted = json.dumps(text, ensure_ascii=False)
    plain = re.sub(r"\\u([0-9a-f]{4})", lambda match: chr(int(match[1], 16)), quoted)
    return "".join(
        char if 32 <= ord(char) < 127 else "".join(f"\\{byte:03o}" for byte in char.encode()) for char in plain
    ).replace("??", "?\\?")


def int_literal(value: int) -> str:
    """A literal of 64 bits."""
    return "(-9223372036854775807 - 1)" if value == -(2**63) else str(value)


def float_literal(value: float, suffix: str = "") -> str:
    """A literal with the fewest digits that give the same number; ``suffix`` is ``"f"`` for a float."""
    kind = "float" if suffix else "double"
    if math.isnan(value):
        return f"std::numeric_limits<{kind}>::quiet_NaN()"
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}std::numeric_limits<{kind}>::infinity()"
    text = str(np.float32(value)) if suffix else repr(float(value))
    return f"{text if '.' in text or 'e' in text else text + '.0'}{suffix}"
