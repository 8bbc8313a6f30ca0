"""The published entropy calibration in plain loops, from distributions to threshold, nothing precomputed.

S. Migacz, "8-bit Inference with TensorRT", GTC 2017, slide "Calibration: pseudocode", with the level of a bin, the
weight of bin 0, the last candidate and ties as in NVIDIA's pytorch-quantization (calib/histogram.py).
"""

from __future__ import annotations

import math

LEVELS = 128


def threshold(counts: list[int], width: float, tie: float = 1e-9) -> float:
    bins = [float(count) for count in counts]
    bins[0] = bins[1]
    last_used = max((j for j, count in enumerate(bins) if count), default=-1)
    best_i, best = None, math.inf
    for i in range(LEVELS, last_used + 2):
        divergence = kl(*distributions(bins, i))
        if divergence <= best + tie:
            best_i, best = i, min(best, divergence)
    if best_i is None:
        last_used = max((j for j, count in enumerate(counts) if count), default=-1)
        return 0.0 if last_used < 0 else (last_used + 0.5) * width
    return (best_i + 0.5) * width


def distributions(bins: list[float], i: int) -> tuple[list[float], list[float]]:
    """P: the reference with outliers in its last bin. Q: the first i bins, quantized to 128 levels, expanded again."""
    reference = bins[:i]
    reference[i - 1] += sum(bins[i:])
    level_of = [j * LEVELS // i for j in range(i)]
    mass, used = [0.0] * LEVELS, [0] * LEVELS
    for j in range(i):
        if bins[j] > 0:
            mass[level_of[j]] += bins[j]
            used[level_of[j]] += 1
    expanded = [mass[level_of[j]] / used[level_of[j]] if bins[j] > 0 else 0.0 for j in range(i)]
    return normalized(reference), normalized(expanded)


def normalized(values: list[float]) -> list[float]:
    total = sum(values)
    return [value / total for value in values] if total else values


def kl(p: list[float], q: list[float]) -> float:
    total = 0.0
    for p_j, q_j in zip(p, q, strict=True):
        if p_j > 0:
            if q_j == 0:
                return math.inf
            total += p_j * math.log(p_j / q_j)
    return total
