"""How well embeddings tell whether two images show the same: figures of verification."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import UsageError

__all__ = ["Verification", "cosines", "normalized", "pairs_of", "verify"]

_MOST = 12_000  # images, whose pairs are 72 million


@dataclass(frozen=True)
class Verification:
    """Figures of verification.

    Attributes:
        balanced_accuracy: Mean of the shares of same and of different pairs that are told rightly, at the best threshold.
        tpr_at_01: Share of the pairs of the same that are accepted where at most 0.01 of the others are.
        tpr_at_001: The same for 0.001.
        threshold: Cosine above which a pair is accepted for ``tpr_at_001``.
        pairs: How many pairs there are.
        same: How many of them show the same.
    """

    balanced_accuracy: float
    tpr_at_01: float
    tpr_at_001: float
    threshold: float
    pairs: int
    same: int


def normalized(embeddings: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Rows of length 1; rows of zeros stay."""
    rows = np.asarray(embeddings, np.float64).reshape(len(embeddings), -1)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: npt.NDArray[np.float64] = rows / np.where(lengths > 0, lengths, 1.0)
    return unit


def pairs_of(
    labels: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """All pairs of different images: first, second, and whether their labels are the same.

    Raises:
        UsageError: there are too many images, or all pairs are of one kind.
    """
    if len(labels) > _MOST:
        raise UsageError(f"verification: expected at most {_MOST:,} images, found {len(labels):,}")
    first, second = np.triu_indices(len(labels), 1)
    same = labels[first] == labels[second]
    if not same.any() or same.all():
        raise UsageError("verification: expected at least two labels, and two images of one of them")
    return first, second, same


def cosines(
    embeddings: npt.NDArray[np.floating], first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Cosine of the angle between the embeddings of each pair."""
    rows = normalized(embeddings)
    found: npt.NDArray[np.float64] = (rows @ rows.T)[first, second]
    return found


def verify(similarity: npt.NDArray[np.floating], same: npt.NDArray[np.bool_]) -> Verification:
    """Figures of pairs.

    Args:
        similarity: (P,): the larger, the more alike.
        same: (P,): whether a pair shows the same.

    Raises:
        UsageError: all pairs are of one kind, or a similarity is not a number.
    """
    similarity, same = np.asarray(similarity, np.float64), np.asarray(same, np.bool_)
    positives, negatives = np.sort(similarity[same]), np.sort(similarity[~same])
    if not (len(positives) and len(negatives)):
        raise UsageError("verification: expected pairs of both kinds")
    if not np.isfinite(similarity).all():
        raise UsageError("verification: an embedding has values that are infinite or no numbers")
    thresholds = np.unique(similarity)  # accept what is at least so similar
    accepted = 1 - np.searchsorted(positives, thresholds, side="left") / len(positives)
    refused = np.searchsorted(negatives, thresholds, side="left") / len(negatives)
    (loose, _), (strict, threshold) = _at(positives, negatives, 0.01), _at(positives, negatives, 0.001)
    best = float(((accepted + refused) / 2).max())
    return Verification(best, loose, strict, threshold, len(similarity), len(positives))


def _at(positives: npt.NDArray[np.float64], negatives: npt.NDArray[np.float64], rate: float) -> tuple[float, float]:
    """Share of the same that is accepted above the lowest threshold with at most this rate of false positives; and that."""
    allowed = int(rate * len(negatives) + 1e-9)
    threshold = negatives[-1 - allowed]  # what is more similar than that is accepted: `allowed` others at most
    return float((positives > threshold).mean()), float(threshold)
