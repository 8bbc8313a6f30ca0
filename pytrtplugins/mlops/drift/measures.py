"""Distances between two distributions, and their size by chance between samples of one."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

__all__ = ["bin_edges", "chance_of", "jensen_shannon", "mmd", "population_stability", "shares"]

Values = npt.NDArray[np.float64]
_BINS = 10
_FEW = 20  # different values, each of which gets a bin of its own
_ATOM = 0.1  # share of equal values that get a bin of their own
_SMOOTHING = 0.5  # is added to each count, so that no share is 0
_Z = 3.0902  # of the normal distribution at 0.999
_PERMUTATIONS = 200


def bin_edges(a: Values, b: Values) -> Values:
    """Left edges of bins: the deciles of ``a``; frequent values of ``a`` get a bin of their own.

    Returns:
        What `shares` takes: a value belongs to the bin whose number is that of the edges that are not above it.
    """
    values = np.unique(np.concatenate([a, b]))
    if len(values) <= _FEW:
        return np.asarray((values[1:] + values[:-1]) / 2)
    deciles = np.quantile(a, np.linspace(0, 1, _BINS + 1)[1:-1], method="inverted_cdf")
    distinct, counts = np.unique(a, return_counts=True)
    atoms = distinct[counts >= _ATOM * len(a)]
    return np.unique(np.concatenate([deciles, atoms, np.nextafter(atoms, np.inf)]))


def shares(values: Values, edges: Values) -> Values:
    """The share of the values in each bin, smoothed, so that none is 0; they add up to 1."""
    counts = np.bincount(np.searchsorted(edges, values, side="right"), minlength=len(edges) + 1) + _SMOOTHING
    return np.asarray(counts / counts.sum(), np.float64)


def population_stability(p: Values, q: Values) -> float:
    """Population stability index of two distributions: the sum of (q - p) ln(q / p), 0 where they are equal.

    It is the symmetric Kullback-Leibler divergence: H. Jeffreys, An invariant form for the prior probability in estimation problems,
    1946; as a measure of drift: N. Siddiqi, Credit Risk Scorecards, 2006, who calls more than 0.1 a small change and more than 0.25 a
    large one.

    Args:
        p: Shares, none of them 0.
        q: Likewise, of the same bins.
    """
    return float(((q - p) * np.log(q / p)).sum())


def chance_of(bins: int, n: int, m: int) -> float:
    """The index that samples of n and m values of one distribution exceed in one of 1,000 cases.

    The index of two such samples is 1/n + 1/m times a chi-squared variable with a degree of freedom less than there are bins: B. Yurdakul
    and J. Naranjo, Statistical properties of the population stability index, 2020. Its quantile is Wilson and Hilferty's, 1931.
    """
    degrees = bins - 1
    if degrees < 1 or not n or not m:
        return 0.0
    quantile = degrees * (1 - 2 / (9 * degrees) + _Z * math.sqrt(2 / (9 * degrees))) ** 3
    return quantile * (1 / n + 1 / m)


def jensen_shannon(p: Values, q: Values) -> float:
    """Jensen-Shannon divergence of two distributions to the base 2: 0 where they are equal, 1 where they share nothing.

    J. Lin, Divergence measures based on the Shannon entropy, 1991.

    Args:
        p: Shares, none of them 0.
        q: Likewise, of the same bins.
    """
    middle = (p + q) / 2
    return float((p * np.log2(p / middle) + q * np.log2(q / middle)).sum() / 2)


def mmd(a: Values, b: Values, *, seed: int = 0) -> tuple[float, float]:
    """Unbiased squared maximum mean discrepancy of two samples of vectors, and its size by chance (largest of permutations).

    The kernel is Gaussian, as wide as the median distance of two vectors: A. Gretton et al., A kernel two-sample test, 2012, equation 3.
    It is 0 on average where both come from one distribution, and may be below. By chance: the largest of 200 permutations of both
    samples.

    Args:
        a: (N, values); two vectors or more.
        b: (M, values).
        seed: Of the permutations.
    """
    joined = np.concatenate([a, b])
    squares = (joined**2).sum(axis=1)
    distances = np.maximum(squares[:, None] + squares - 2 * joined @ joined.T, 0)
    median = float(np.median(distances[np.triu_indices(len(joined), 1)]))
    kernel = np.exp(-distances / (median or 1.0))
    np.fill_diagonal(kernel, 0)
    n, m = len(a), len(b)
    order = np.tile(np.arange(n + m) < n, (_PERMUTATIONS + 1, 1))
    random = np.random.default_rng(seed)
    random.permuted(order[1:], axis=1, out=order[1:])
    of_a = order.astype(np.float64)
    within_a = ((of_a @ kernel) * of_a).sum(axis=1) / (n * (n - 1))
    within_b = (((1 - of_a) @ kernel) * (1 - of_a)).sum(axis=1) / (m * (m - 1))
    between = ((of_a @ kernel) * (1 - of_a)).sum(axis=1) / (n * m)
    statistics = within_a + within_b - 2 * between
    return float(statistics[0]), float(statistics[1:].max())
