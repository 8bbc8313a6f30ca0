"""Fourier transforms of signals, and what goes with them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .table import Attributes, op


@op("DFT", host_inputs=(1, 2), capturable=False)
def _dft(xp: Any, attributes: Attributes, dims: Any, x: Any, length: Any = None, axis: Any = None) -> Any:
    along = int(np.asarray(axis).reshape(())) if axis is not None else attributes.get("axis", -2)
    along %= x.ndim
    inverse, onesided = bool(attributes.get("inverse")), bool(attributes.get("onesided"))
    whole = 2 * (x.shape[along] - 1) if inverse and onesided else x.shape[along]
    count = whole if length is None else int(np.asarray(length).reshape(()))
    return _transformed(xp, x, count, along, inverse, onesided)


@op("STFT", host_inputs=(1, 3), capturable=False)
def _stft(xp: Any, attributes: Attributes, dims: Any, x: Any, step: Any, window: Any = None, length: Any = None) -> Any:
    hop = int(np.asarray(step).reshape(()))
    if x.ndim == 2:
        x = x[..., None]
    size = x.shape[1] if window is None else xp.asarray(window).shape[0]
    count = size if length is None else int(np.asarray(length).reshape(()))
    frames = 1 + (x.shape[1] - count) // hop
    places = xp.arange(frames)[:, None] * hop + xp.arange(count)[None]
    parts = xp.take(x, places, axis=1)  # [batch, frames, length, 1 or 2]
    if window is not None:
        parts = parts * xp.asarray(window).reshape(-1, 1)
    return _transformed(xp, parts, count, 2, False, bool(attributes.get("onesided", 1)))


@op("MelWeightMatrix", host_inputs=(0, 1, 2, 3, 4), capturable=False)
def _mel_weight_matrix(
    xp: Any, attributes: Attributes, dims: Any, bins: Any, length: Any, rate: Any, lowest: Any, highest: Any
) -> Any:
    count, size, samples = (int(np.asarray(value).reshape(())) for value in (bins, length, rate))
    low, high = (2595 * np.log10(1 + float(np.asarray(value).reshape(())) / 700) for value in (lowest, highest))
    mels = low + np.arange(count + 2) * ((high - low) / (count + 2))
    edges = np.floor((size + 1) * (700 * (10 ** (mels / 2595) - 1)) / samples)
    rows, (begin, top, end) = np.arange(size // 2 + 1)[:, None], (edges[place : place + count] for place in range(3))
    rising = np.where(top == begin, rows == top, (rows - begin) / np.where(top == begin, 1, top - begin))
    falling = (end - rows) / np.where(end == top, 1, end - top)
    matrix = np.where(rows <= top, rising, np.where(end == top, 0, falling))
    return np.maximum(matrix, 0).astype(np.float32)


def _transformed(xp: Any, x: Any, count: int, axis: int, inverse: bool, onesided: bool) -> Any:
    """A transform of values whose last axis has a real part, and perhaps an imaginary one."""
    values = x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]
    if inverse and onesided:
        return xp.fft.irfft(values, n=count, axis=axis)[..., None]
    found = (xp.fft.ifft if inverse else xp.fft.fft)(values, n=count, axis=axis)
    if onesided:
        found = xp.take(found, xp.arange(count // 2 + 1), axis=axis)
    return xp.stack([found.real, found.imag], axis=-1)
