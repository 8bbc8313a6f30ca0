"""Classification extension: an output's largest values with class names, instead of all values."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import RequestError
from ..model.signature import Signature
from ..model.tensors import datatype_of, to_strings

__all__ = ["classify"]

_MOST_CLASSES = 1_000_000  # Triton's number: they are sorted while other requests wait


def classify(name: str, array: npt.NDArray[Any], count: int, signature: Signature) -> npt.NDArray[Any]:
    """The largest values of each row as ``value:index:name``; names are those of the model's facts.

    Raises:
        RequestError: the output has no numbers.
    """
    if array.dtype.kind in "Ob":
        raise RequestError(
            f"class result not available for output due to unsupported type {datatype_of(array)!r}: {name!r} must have numbers"
        )
    rows = array.reshape(len(array), -1) if signature.joined and array.ndim else array.reshape(1, -1)
    if rows.shape[1] > _MOST_CLASSES:
        raise RequestError(
            f"classification output tensor too large: {name!r} has {rows.shape[1]:,} values, and {_MOST_CLASSES:,} are the most"
        )
    names = signature.facts.get("names", ())
    count = min(count, rows.shape[1])
    texts = []
    for row in rows:
        for k in np.argsort(-row.astype(np.float64), kind="stable")[:count].tolist():
            value = str(row[k]) if row.dtype.kind in "iu" else f"{float(row[k]):f}"
            label = f":{names[k]}" if len(names) == rows.shape[1] else ""
            texts.append(f"{value}:{k}{label}")
    return to_strings(texts, (len(rows), count) if signature.joined else (count,))
