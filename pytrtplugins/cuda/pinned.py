"""Page-locked memory of the host, which GPUs read and write directly, without a copy before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import UnavailableError
from ..utils.optional import require

__all__ = ["pinned_empty"]

_NO_MEMORY = 2  # cudaErrorMemoryAllocation


def pinned_empty(shape: int | Sequence[int], dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
    """A NumPy array in page-locked memory, which engines on a GPU copy from in half the time or less.

    Make it once and fill it anew for each run: locking pages takes longer than a run, and takes memory from all other programs.
    It is freed with its last view.

    Args:
        shape: Its dims.
        dtype: Its element type.

    Returns:
        The array; its values are undefined.

    Raises:
        MissingExtraError: CuPy is not installed.
        UnavailableError: the host has not so much memory that can be locked.

    Example:
        >>> image = pinned_empty((576, 768, 3), "uint8")        # doctest: +SKIP
        >>> camera.read_into(image)                               # doctest: +SKIP
        >>> boxes = detector(image)                               # doctest: +SKIP
    """
    cupy, cupyx = (
        require(name, extra="cuda", package="cupy-cuda13x", feature="page-locked memory") for name in ("cupy", "cupyx")
    )
    try:
        array: npt.NDArray[Any] = cupyx.empty_pinned(shape, dtype)
    except cupy.cuda.runtime.CUDARuntimeError as error:
        if error.status != _NO_MEMORY:
            raise
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        raise UnavailableError(
            f"page-locked memory for {np.dtype(dtype)}{list(np.atleast_1d(shape))}, {size / 2**20:.0f} MiB, cannot be allocated: {error}.\n"
            "Do: make smaller or fewer of such arrays, run smaller batches, or give this machine or container more memory",
            needed=size,
        ) from error
    return array
