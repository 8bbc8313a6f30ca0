"""Compare two sets of photos."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...errors import NoDataError, UsageError
from ...utils.numbers import check_int
from ...utils.progress import progress_bar
from .features import FEATURES, Embed, Feature, Features, Photos, measure_photos
from .limits import Limit
from .measures import bin_edges, chance_of, jensen_shannon, mmd, population_stability, shares

__all__ = [
    "MOST_PHOTOS",
    "ClassShare",
    "Comparison",
    "Drift",
    "EmbeddingDrift",
    "Exceeded",
    "SetFacts",
    "Spread",
    "compare_photos",
]

MOST_PHOTOS = 100_000
"""Photos of a set that can be measured."""
_MOST_VECTORS = 1000  # of a set, for the distance of vectors, which takes all pairs
_DRAWN = 24  # bars of a histogram
_SMOOTHING = 0.5  # as for other shares


@dataclass(frozen=True)
class SetFacts:
    """Facts on one of the two sets.

    Attributes:
        name: Where it lies.
        photos: How many it has.
        measured: How many of them were measured.
        labelled: How many of those have a box.
        unreadable: Photos that could not be decoded.
    """

    name: str
    photos: int
    measured: int
    labelled: int
    unreadable: int


@dataclass(frozen=True)
class Spread:
    """Median, 5th and 95th percentile of values.

    Attributes:
        mean: Of all.
        p5: What 5 % of them are below.
        median: What half of them are below.
        p95: What 95 % of them are below.
    """

    mean: float
    p5: float
    median: float
    p95: float


@dataclass(frozen=True)
class Drift:
    """Drift of one feature between the sets.

    Attributes:
        name: As limits have it.
        title: As tables have it.
        a: Where the values of the first set lie; None for classes.
        b: Likewise.
        psi: Population stability index.
        chance: What samples of this size exceed in one of 1,000 cases where nothing differs.
        jensen_shannon: Divergence, 0..1.
        edges: Of a histogram's bars; empty for classes.
        a_bars: Share of the first set's values in each bar.
        b_bars: Likewise.
    """

    name: str
    title: str
    a: Spread | None
    b: Spread | None
    psi: float
    chance: float
    jensen_shannon: float
    edges: tuple[float, ...] = ()
    a_bars: tuple[float, ...] = ()
    b_bars: tuple[float, ...] = ()

    @property
    def drift(self) -> float:
        """The index, or 0 where it may be chance."""
        return self.psi if self.psi > self.chance else 0.0


@dataclass(frozen=True)
class ClassShare:
    """Share of a class in both sets.

    Attributes:
        name: Of the class.
        a: Its share of the first set's boxes.
        b: Its share of the second set's boxes.
    """

    name: str
    a: float
    b: float


@dataclass(frozen=True)
class EmbeddingDrift:
    """Distance between the sets' embeddings.

    Attributes:
        output: Of the network.
        values: Of a vector.
        mmd: Squared maximum mean discrepancy.
        chance: The largest of 200 permutations of both sets.
    """

    output: str
    values: int
    mmd: float
    chance: float

    @property
    def drift(self) -> float:
        """The distance, or 0 where it may be chance."""
        return self.mmd if self.mmd > self.chance else 0.0


@dataclass(frozen=True)
class Exceeded:
    """A limit that a figure exceeds.

    Attributes:
        figure: Its name.
        found: What it is.
        most: The limit.
    """

    figure: str
    found: float
    most: float


@dataclass(frozen=True)
class Comparison:
    """All differences between two sets of photos.

    Attributes:
        a: The first set, which is the reference.
        b: The second.
        rows: One for each feature; those of boxes are missing where a set has none.
        classes: Of both sets, with their shares of the boxes.
        embedding: None without a network.
        drift: The largest population stability index that is more than chance; 0 where there is none.
        exceeded: Limits that are exceeded.
    """

    a: SetFacts
    b: SetFacts
    rows: tuple[Drift, ...]
    classes: tuple[ClassShare, ...]
    embedding: EmbeddingDrift | None
    drift: float
    exceeded: tuple[Exceeded, ...]


def compare_photos(
    a: Photos,
    b: Photos,
    *,
    names: tuple[str, str] = ("A", "B"),
    embed: Embed | None = None,
    embedding: str = "",
    limits: Sequence[Limit] = (),
    photos: int = 1000,
    seed: int = 0,
    progress: bool = True,
) -> Comparison:
    """Compare two sets of photos, such as those of the training with those of today.

    Args:
        a: The reference.
        b: The set that is compared with the reference.
        names: What the sets are called.
        embed: Makes vectors of images; see `Embedder`.
        embedding: Name of the output that it takes.
        limits: What figures may be at most.
        photos: Number of photos of each set to measure, drawn by the seed.
        seed: Of what is drawn.
        progress: Show a progress bar where standard error is a terminal.

    Raises:
        NoDataError: a set has no photo that can be decoded, or, for vectors, only one.
        UsageError: a limit names no figure, or one that these sets do not have.
    """
    check_int("photos", photos, 2, MOST_PHOTOS)
    known_figures = {feature.name for feature in FEATURES} | {"classes", "drift", "embedding"}
    for limit in limits:
        if limit.figure not in known_figures:
            raise UsageError(f"limit {limit.figure!r}: expected one of {', '.join(sorted(known_figures))}.")
    with progress_bar("photos", min(photos, len(a)) + min(photos, len(b)), progress) as bar:
        features = [measure_photos(photo_set, photos, seed, embed, bar) for photo_set in (a, b)]
    for name, photo_set in zip(names, features, strict=True):
        if photo_set.photos < 2:
            raise NoDataError(f"{name}: {photo_set.photos} photos that can be decoded; a comparison needs 2 or more.")
    rows = [row for feature in FEATURES if (row := _drift(feature, *features))]
    classes, class_row = _classes(*features)
    vectors = _embedding(embedding, features[0], features[1], seed)
    rows += [class_row] if class_row else []
    drift = max(row.drift for row in rows)
    figures = {row.name: row.drift for row in rows} | {"drift": drift}
    if vectors is not None:
        figures["embedding"] = vectors.drift
    facts = [
        SetFacts(name, len(photo_set), measured.photos, measured.labelled, measured.unreadable)
        for name, photo_set, measured in zip(names, (a, b), features, strict=True)
    ]
    return Comparison(facts[0], facts[1], tuple(rows), classes, vectors, drift, _exceeded(figures, limits))


def _exceeded(figures: dict[str, float], limits: Sequence[Limit]) -> tuple[Exceeded, ...]:
    for limit in limits:
        if limit.figure not in figures:
            needs = "a network: --model" if limit.figure == "embedding" else "boxes in both sets"
            raise UsageError(f"limit {limit.figure!r}: this figure needs {needs}.", figure=limit.figure)
    over = [limit for limit in limits if figures[limit.figure] > limit.most]
    return tuple(Exceeded(limit.figure, figures[limit.figure], limit.most) for limit in over)


def _drift(feature: Feature, a: Features, b: Features) -> Drift | None:
    """A feature in both sets; None where one has no values."""
    left, right = a.values[feature.name], b.values[feature.name]
    if not len(left) or not len(right) or (feature.needs_labels and not (a.labelled and b.labelled)):
        return None
    edges = bin_edges(left, right)
    p, q = shares(left, edges), shares(right, edges)
    # boxes of one photo are alike: they count as one value
    counts = (a.labelled, b.labelled) if feature.of_boxes else (a.photos, b.photos)
    bars, heights = _histogram(left, right)
    return Drift(
        feature.name,
        feature.title,
        _spread(left),
        _spread(right),
        population_stability(p, q),
        chance_of(len(p), *counts),
        jensen_shannon(p, q),
        bars,
        *heights,
    )


def _classes(a: Features, b: Features) -> tuple[tuple[ClassShare, ...], Drift | None]:
    if not a.labelled or not b.labelled:
        return (), None
    names = sorted({*a.classes, *b.classes})
    counts = [np.array([features.classes[name] for name in names], np.float64) for features in (a, b)]
    parts = [count / count.sum() for count in counts]
    p, q = ((count + _SMOOTHING) / (count + _SMOOTHING).sum() for count in counts)
    listed = tuple(ClassShare(name, float(x), float(y)) for name, x, y in zip(names, *parts, strict=True))
    chance = chance_of(len(names), a.labelled, b.labelled)
    return listed, Drift(
        "classes", "classes of boxes", None, None, population_stability(p, q), chance, jensen_shannon(p, q)
    )


def _embedding(output: str, a: Features, b: Features, seed: int) -> EmbeddingDrift | None:
    if a.vectors is None or b.vectors is None:
        return None
    random = np.random.default_rng(seed)
    left, right = (
        vectors[np.sort(random.permutation(len(vectors))[:_MOST_VECTORS])] for vectors in (a.vectors, b.vectors)
    )
    discrepancy, chance = mmd(left, right, seed=seed)
    return EmbeddingDrift(output, left.shape[1], discrepancy, chance)


def _spread(values: npt.NDArray[np.float64]) -> Spread:
    return Spread(float(values.mean()), *(float(value) for value in np.quantile(values, (0.05, 0.5, 0.95))))


def _histogram(
    a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]
) -> tuple[tuple[float, ...], tuple[tuple[float, ...], tuple[float, ...]]]:
    """Bars of equal width, between the 1st and the 99th percentile of both; what is beyond is in the outer ones."""
    joined = np.concatenate([a, b])
    low, high = np.quantile(joined, (0.01, 0.99))
    low, high = (low, high) if high > low else (low - 0.5, low + 0.5)
    edges = np.linspace(low, high, _DRAWN + 1)
    heights = [np.histogram(np.clip(values, low, high), edges)[0] / len(values) for values in (a, b)]
    return tuple(edges.tolist()), (tuple(heights[0].tolist()), tuple(heights[1].tolist()))
