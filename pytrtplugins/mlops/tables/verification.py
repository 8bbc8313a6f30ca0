"""Figures of verification: how well embeddings decide whether two images show the same person."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...errors import UsageError

__all__ = ["FoldAccuracy", "Pairs", "Verification", "cosines", "fold_accuracy", "normalized", "pairs_of", "verify"]

_MOST = 12_000  # images, whose pairs are 72 million
_AT_ONCE = 1 << 14  # pairs, whose embeddings are copied


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of images, as arrays of length P.

    Attributes:
        first: Place of the first image.
        second: Place of the second one.
        same: Whether both show the same.
        folds: Number of the fold that the pair belongs to; None: there are none.
    """

    first: npt.NDArray[np.int64]
    second: npt.NDArray[np.int64]
    same: npt.NDArray[np.bool_]
    folds: npt.NDArray[np.int64] | None = None


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
    """Scale rows to length 1; rows of zeros stay."""
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
    if 4 * len(first) > len(rows) ** 2:  # most of all pairs
        cosine: npt.NDArray[np.float64] = (rows @ rows.T)[first, second]
        return cosine
    parts = [slice(begin, begin + _AT_ONCE) for begin in range(0, len(first), _AT_ONCE)]
    return np.concatenate([np.einsum("pv,pv->p", rows[first[part]], rows[second[part]]) for part in parts])


def verify(similarity: npt.NDArray[np.floating], same: npt.NDArray[np.bool_]) -> Verification:
    """Figures of pairs.

    Args:
        similarity: (P,): the larger, the more alike.
        same: (P,): whether a pair shows the same.

    Raises:
        UsageError: all pairs are of one kind, or a similarity is not a number.
    """
    similarity, same = np.asarray(similarity, np.float64), np.asarray(same, np.bool_)
    positives, negatives = _sorted(similarity, same)
    thresholds = np.unique(similarity)  # accept what is at least so similar
    balanced = _balanced_accuracy(positives, negatives, thresholds)
    (loose, _), (strict, threshold) = _tpr_at(positives, negatives, 0.01), _tpr_at(positives, negatives, 0.001)
    return Verification(float(balanced.max()), loose, strict, threshold, len(similarity), len(positives))


@dataclass(frozen=True)
class FoldAccuracy:
    """Balanced accuracy per fold, at the threshold that is best on all other folds, as in LFW's protocol.

    Attributes:
        mean: Over the folds.
        error: Standard error of the mean.
    """

    mean: float
    error: float


def fold_accuracy(
    similarity: npt.NDArray[np.floating], same: npt.NDArray[np.bool_], folds: npt.NDArray[np.int64]
) -> FoldAccuracy:
    """Accuracy by folds: the threshold lies half way below the least similarity that is accepted on the other folds.

    Args:
        similarity: (P,): the larger, the more alike.
        same: (P,): whether a pair shows the same.
        folds: (P,): number of the fold, of which there are two or more, each with pairs of both kinds.

    Raises:
        UsageError: a fold has pairs of one kind, or a similarity is not a number.
    """
    accuracies = []
    for fold in np.unique(folds):
        others, tested = folds != fold, folds == fold
        thresholds = np.unique(similarity[others]).astype(np.float64)
        best = int(_balanced_accuracy(*_sorted(similarity[others], same[others]), thresholds).argmax())
        threshold = thresholds[max(best - 1, 0) : best + 1].mean()
        accuracies.append(_balanced_accuracy(*_sorted(similarity[tested], same[tested]), np.array([threshold]))[0])
    return FoldAccuracy(float(np.mean(accuracies)), float(np.std(accuracies, ddof=1) / np.sqrt(len(accuracies))))


def _sorted(
    similarity: npt.NDArray[np.floating], same: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Sorted similarities of the same and of the different pairs."""
    positives, negatives = np.sort(similarity[same]), np.sort(similarity[~same])
    if not (len(positives) and len(negatives)):
        raise UsageError("verification: expected pairs of both kinds")
    if not np.isfinite(similarity).all():
        raise UsageError("verification: an embedding has values that are infinite or no numbers")
    return positives.astype(np.float64), negatives.astype(np.float64)


def _balanced_accuracy(
    positives: npt.NDArray[np.float64], negatives: npt.NDArray[np.float64], thresholds: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Balanced accuracy at each threshold; similarities at or above it are accepted."""
    count, others = len(positives), len(negatives)
    accepted = count - np.searchsorted(positives, thresholds, side="left")
    refused = np.searchsorted(negatives, thresholds, side="left")
    both: npt.NDArray[np.float64] = (accepted * others + refused * count) / (
        2 * count * others
    )  # equal ones stay equal
    return both


def _tpr_at(positives: npt.NDArray[np.float64], negatives: npt.NDArray[np.float64], rate: float) -> tuple[float, float]:
    """True-positive rate at the lowest threshold whose false-positive rate is at most this; and that threshold."""
    allowed = int(rate * len(negatives) + 1e-9)
    threshold = negatives[-1 - allowed]  # what is more similar than that is accepted: `allowed` others at most
    return float((positives > threshold).mean()), float(threshold)
