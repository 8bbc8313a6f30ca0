"""Parse texts of options into arrays, settings, forms of plugins, pairs and words."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...errors import FormatError, UsageError
from ...plugin.policy import FORMS
from ...tensor import AnyDims
from ...utils.array_files import MAX_BYTES, read_npy
from ...utils.text_formats import parse_json

if TYPE_CHECKING:
    from ...engines import Engine

__all__ = ["read_array", "read_forms", "read_inputs", "read_pairs", "read_settings", "read_value", "read_words"]


def read_inputs(
    pairs: Sequence[str] | None, engine: Engine, max_bytes: int = MAX_BYTES, *, free: int = 1
) -> dict[str, npt.NDArray[Any]]:
    """Arrays for every input of an engine: from ``name=file.npy``, else random numbers in 0..1.

    No array that is read may be larger than ``max_bytes``; in random ones free dims are ``free``.

    Raises:
        UsageError: a pair has another form, names no input, or its file is not a .npy file; or an input of unknown rank is not given.
    """
    names = [desc.name for desc in engine.inputs]
    arrays: dict[str, npt.NDArray[Any]] = {}
    expected = f"NAME=FILE.npy. Inputs: {', '.join(names)}"
    for name, text in read_pairs(pairs, "--input", expected, names).items():
        file = text.removeprefix("@")  # as check-plugin and --set have it
        arrays[name] = read_array(file, f"--input {name}={text}", max_bytes)
    rng = np.random.default_rng(0)
    for desc in engine.inputs:
        if desc.name not in arrays and isinstance(desc.dims, AnyDims):
            raise UsageError(
                f"input {desc.name!r} is of any rank: the model does not say how many axes it has.\n"
                f"Do: --input {desc.name}=FILE.npy"
            )
        if desc.name not in arrays:
            dims = [dim if isinstance(dim, int) else free for dim in desc.dims]
            arrays[desc.name] = rng.random(dims, dtype=np.float32).astype(desc.dtype.numpy)
    return arrays


def read_array(file: str, option: str, max_bytes: int = MAX_BYTES) -> npt.NDArray[Any]:
    """The array of a .npy file that an option names.

    Raises:
        UsageError: it is no such file, or holds more than ``max_bytes``.
    """
    try:
        return read_npy(file, max_bytes=max_bytes)
    except (OSError, ValueError) as error:
        target = str(Path(file).with_suffix(".npy"))  # never the user's own file of another kind
        raise UsageError(f"{option}: {error}\nDo: numpy.save({target!r}, array)", path=Path(file)) from error


def read_settings(pairs: Sequence[str] | None) -> dict[str, Any]:
    """Settings written as ``name=value``: numbers, lists such as ``1,8,16``, JSON, text, or words such as ``tactics,graph``."""
    settings: dict[str, Any] = {}
    for name, text in read_pairs(pairs, "--setting", "NAME=VALUE, such as batch=1,8,16", empty=True).items():
        settings[name] = read_value(text)
    return settings


def read_value(text: str) -> Any:
    """Parse a value: JSON, a list such as ``1,8,16``, text, or words such as ``tactics,graph``."""
    for form in (text, f"[{text}]"):
        with contextlib.suppress(FormatError):
            return parse_json(form, "the value")
    return text.split(",") if "," in text else text


def read_words(text: str, option: str) -> tuple[str, ...]:
    """Names with commas between them."""
    words = tuple(text.split(","))
    if not all(words):
        raise UsageError(f"{option} {text[:80]}: expected names with commas between them, such as cpu,onnxruntime.")
    return words


def read_forms(pairs: Sequence[str] | None) -> dict[str, str]:
    """Forms of plugins written as ``acme::Scale=compute``."""
    return read_pairs(pairs, "--plugin-form", f"NAME=FORM with a form of {', '.join(FORMS)}", values=FORMS)


def read_pairs(
    texts: Sequence[str] | None,
    option: str,
    expected: str,
    names: Collection[str] | None = None,
    values: Collection[str] | None = None,
    *,
    empty: bool = False,
) -> dict[str, str]:
    """Parse values ``name=value`` of a repeatable option; the value may be empty if ``empty`` is on.

    Raises:
        UsageError: a text has another form, or another name or value than those that are given.
    """
    pairs: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if (
            not (name and equals and (value or empty))
            or name not in (names or (name,))
            or value not in (values or (value,))
        ):
            raise UsageError(f"{option} {text[:80]}: expected {expected}.")
        pairs[name] = value
    return pairs
