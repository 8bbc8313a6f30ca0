"""Parse attributes of MXNet's operators from text: numbers, truth values, words and tuples, without evaluation."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from ..utils.text_formats import shorten
from .symbol import Node

__all__ = ["LARGEST", "Attributes"]

LARGEST = 2**31 - 1
"""Of whole numbers and dims."""

_WHOLE = re.compile(r"[+-]?\d{1,12}L?")
_TUPLE = re.compile(r"[(\[]([\dL,\s+-]{0,2000})[)\]]")
_TRUTH = {"True": True, "true": True, "1": True, "False": False, "false": False, "0": False}
_WITHOUT_EFFECT = frozenset(
    {
        *(
            "workspace",
            "cudnn_tune",
            "cudnn_off",
            "momentum",
            "grad_scale",
            "normalization",
            "out_grad",
            "smooth_alpha",
        ),
        *("lr_mult", "wd_mult", "mirror_stage", "force_mirroring", "ctx_group", "weight_lr_mult", "profiler_scope"),
        *("use_global_stats", "ignore_label", "use_ignore", "min_calib_range", "max_calib_range"),
    }
)
"""What changes the training, or the speed, and not what the trained network computes."""


class Attributes:
    """The attributes of one node. `finish` refuses those that were not read, since they might change the result."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._left = {
            name: text
            for name, text in node.attributes.items()
            if name not in _WITHOUT_EFFECT and not name.startswith("__")
        }

    def finish(self) -> None:
        """Require that all attributes were read."""
        if self._left:
            name, text = next(iter(self._left.items()))
            raise self.node.error(
                f"the attribute {shorten(name)} = {shorten(text)} is unknown",
                "Do: remove it from the symbol.json if it has no effect",
            )

    def integer(self, name: str, default: int | None = None, *, least: int = 0, most: int = LARGEST) -> int:
        """Read an integer attribute."""
        text = self._text(name, None if default is None else str(default))
        if not _WHOLE.fullmatch(text) or not least <= int(text.rstrip("L")) <= most:
            raise self._value_error(name, text, f"a whole number of {least:,} to {most:,}")
        return int(text.rstrip("L"))

    def real(self, name: str, default: float | None = None) -> float:
        """Read an attribute that is a number in float32's range."""
        text = self._text(name, None if default is None else str(default))
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not abs(number) < 3.4e38:
            raise self._value_error(name, text, "a number that float32 can hold")
        return number

    def boolean(self, name: str, default: bool) -> bool:
        """Read a bool attribute."""
        text = self._text(name, str(default))
        if text not in _TRUTH:
            raise self._value_error(name, text, "True or False")
        return _TRUTH[text]

    def word(self, name: str, words: Sequence[str], default: str | None = None) -> str:
        """Read an attribute that is one of some words; ``None`` means the default."""
        text = self._text(name, default)
        if text == "None" and default is not None:
            return default
        if text not in words:
            raise self._value_error(name, text, " or ".join(words))
        return text

    def dims(
        self, name: str, default: tuple[int, ...] | None = None, *, rank: int | None = None, least: int = 0
    ) -> tuple[int, ...]:
        """Read a tuple of integers in brackets; empty brackets and ``None`` mean the default."""
        text = self._text(name, None if default is None else str(default))
        match = _TUPLE.fullmatch(text)
        parts = [part.strip() for part in match[1].split(",")] if match else [text]
        if parts[-1] == "" and len(parts) > 1:
            parts.pop()  # (1,)
        if default is not None and (text == "None" or parts == [""]):
            return default
        if not all(_WHOLE.fullmatch(part) for part in parts):
            raise self._value_error(name, text, "whole numbers in brackets")
        numbers = tuple(int(part.rstrip("L")) for part in parts)
        if any(not least <= number <= LARGEST for number in numbers) or (rank is not None and len(numbers) != rank):
            count = "" if rank is None else f"{rank} "
            raise self._value_error(name, text, f"{count}whole numbers of {least:,} to {LARGEST:,} in brackets")
        return numbers

    def _text(self, name: str, default: str | None) -> str:
        text = self._left.pop(name, default)
        if text is None:
            raise self.node.error(f"it lacks the attribute {name!r}")
        return text.strip()

    def _value_error(self, name: str, text: str, expected: str) -> Exception:
        return self.node.error(f"the attribute {name!r} is {shorten(text)}; expected {expected}")
