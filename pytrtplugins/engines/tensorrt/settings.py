"""Settings of the engine, as a caller gives them and as an engine file holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ...tensor import SymbolicDim, TensorDesc

__all__ = ["NAMES", "TARGETS", "Settings"]

_QUANTIZATION = ("explicit", "implicit")
_MAX_LEVEL = 5
TARGETS = ("sm75", "sm80", "sm86", "sm89", "sm120", "sm121")
"""GPUs that TensorRT for RTX builds for: compute capabilities 7.5 to 8.9, and 12; 9.0 and 10.0 are TensorRT's."""

Range = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Settings:
    """TensorRT's own settings.

    Attributes:
        batch: Smallest, optimal and largest size of the free first axis.
        shapes: For inputs with other free axes: name → smallest, optimal and largest dims.
        workspace_bytes: Largest memory for a layer's scratch; None: all that the GPU has.
        timing_cache: File that keeps the measured times of kernels for the next build; "" keeps none; None: one in the
            user's cache folder for each TensorRT version and GPU.
        quantization: ``"explicit"``: INT8 through Q/DQ nodes. ``"implicit"``: through TensorRT's own calibrator, which
            TensorRT 10 has, and 11 has not.
        version_compatible: Whether newer versions of the same major version may load the engine; a little slower.
        level: How long TensorRT searches for fast kernels, 0 to 5; None: its default.
        target: For TensorRT for RTX: the GPUs that are to run the engine, such as ``("sm86", "sm120")``; empty: all that it knows, from
            8.0 on.
    """

    batch: tuple[int, int, int] = (1, 1, 8)
    shapes: tuple[tuple[str, Range], ...] = ()
    workspace_bytes: int | None = None
    timing_cache: str | None = None
    quantization: str = "explicit"
    version_compatible: bool = False
    level: int | None = None
    target: tuple[str, ...] = ()

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Settings:
        """Check settings."""
        values = dict(given)
        if "batch" in values:
            values["batch"] = _sizes("batch", values["batch"])
        if "shapes" in values:
            values["shapes"] = _shapes(values["shapes"])
        _check(values, "workspace_bytes", lambda value: type(value) is int and value > 0, "a number of bytes above 0")
        _check(values, "level", lambda value: type(value) is int and 0 <= value <= _MAX_LEVEL, f"0 to {_MAX_LEVEL}")
        _check(values, "timing_cache", lambda value: isinstance(value, (str, Path)), "a path")
        _check(values, "quantization", lambda value: value in _QUANTIZATION, " or ".join(_QUANTIZATION))
        _check(values, "version_compatible", lambda value: isinstance(value, bool), "true or false")
        if "target" in values:
            values["target"] = _targets(values["target"])
        if values.get("timing_cache") is not None:
            values["timing_cache"] = str(values["timing_cache"])
        return cls(**values)

    def ranges(self, inputs: Sequence[TensorDesc]) -> dict[str, Range]:
        """Smallest, optimal and largest dims of each input that has free ones.

        Raises:
            UsageError: free axes other than the first have no range, or a range does not fit its input.
        """
        shapes = dict(self.shapes)
        unknown = [name for name in shapes if name not in {desc.name for desc in inputs}]
        if unknown:
            raise UsageError(
                f"shapes: {unknown[0]!r} is not an input; there are {', '.join(desc.name for desc in inputs)}"
            )
        found: dict[str, Range] = {}
        for desc in inputs:
            free = [axis for axis, dim in enumerate(desc.dims) if isinstance(dim, SymbolicDim)]
            if desc.name in shapes:
                found[desc.name] = _fitting(desc, shapes[desc.name])
            elif free == [0]:
                smallest, optimal, largest = ((size, *desc.dims[1:]) for size in self.batch)
                found[desc.name] = (smallest, optimal, largest)  # type: ignore[assignment]  # all but the first are numbers
            elif free:
                raise UsageError(
                    f"input {desc}: TensorRT needs a range for its free axes {free}.\n"
                    f'Do: settings={{"shapes": {{"{desc.name}": [MIN, OPT, MAX]}}}} with the dims of each',
                    input=desc.name,
                )
        return found


NAMES = tuple(item.name for item in fields(Settings))
"""Names of all settings."""


def _check(values: Mapping[str, Any], name: str, fits: Any, expected: str) -> None:
    if values.get(name) is not None and not fits(values[name]):
        raise UsageError(f"setting {name}: expected {expected}, found {values[name]!r}", setting=name)


def _sizes(name: str, value: Any) -> tuple[int, int, int]:
    sizes = (value,) * 3 if type(value) is int else value
    good = isinstance(sizes, (list, tuple)) and len(sizes) == len("abc") and all(type(size) is int for size in sizes)
    if not (good and 1 <= sizes[0] <= sizes[1] <= sizes[2]):
        raise UsageError(
            f"setting {name}: expected smallest, optimal and largest size, such as 1,8,16; found {value!r}"
        )
    return sizes[0], sizes[1], sizes[2]


def _targets(value: Any) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value
    known = (
        isinstance(names, (list, tuple)) and names and all(isinstance(n, str) and n.strip() in TARGETS for n in names)
    )
    if not known:
        raise UsageError(
            f"setting target: expected compute capabilities out of {', '.join(TARGETS)}; found {value!r}",
            setting="target",
        )
    return tuple(dict.fromkeys(name.strip() for name in names))


def _shapes(value: Any) -> tuple[tuple[str, Range], ...]:
    try:
        items = dict(value).items()
        return tuple((str(name), tuple(tuple(int(d) for d in dims) for dims in ranges)) for name, ranges in items)  # type: ignore[misc]
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"setting shapes: expected name: [smallest, optimal, largest dims], found {value!r}"
        ) from error


def _fitting(desc: TensorDesc, ranges: Range) -> Range:
    fits = len(ranges) == len("abc") and all(
        len(dims) == len(desc.dims)
        and all(isinstance(known, SymbolicDim) or known == size for known, size in zip(desc.dims, dims, strict=True))
        for dims in ranges
    )
    if not fits or not all(a <= b <= c for a, b, c in zip(*ranges, strict=True)):
        raise UsageError(f"setting shapes: expected three growing shapes that fit {desc}, found {ranges}")
    return ranges
