"""Photos of each step, as a pure function of seed and step, so that resuming needs no loader state."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from pytrtplugins.errors import NoDataError, UsageError
from pytrtplugins.utils.numbers import check_int

__all__ = ["StepSampler"]

_MOST = 1 << 40
Indices = npt.NDArray[np.int64]


class StepSampler:
    """Draws each photo once per epoch, in an order that differs between epochs.

    The photos of all steps form one endless row: epoch after epoch, each a permutation of its own. Step n gets the next ``batch`` of
    that row, so a batch may end one epoch and begin another. Ranks share a step's photos in equal parts: whichever number of ranks
    there is, together they get the same photos. A run of N ranks therefore continues on M.

    The permutation sorts raw numbers of PCG64, which NumPy keeps the same in all its versions. It is made once an epoch; a step costs
    as much as its photos.

    Args:
        length: Photos of the set.
        batch: Photos of a step, of all ranks together.
        seed: Of the permutations.
        rank: Which part of each step is this one's.
        world: How many ranks share a step.

    Raises:
        NoDataError: There are no photos.
        UsageError: A number is outside its limits, or the ranks cannot share a step equally.
    """

    def __init__(self, length: int, batch: int, *, seed: int, rank: int = 0, world: int = 1) -> None:
        if not length:
            raise NoDataError("training data: there are no photos.\nDo: give a set of one photo or more")
        self.length = check_int("photos", length, 1, _MOST)
        self.batch = check_int("batch", batch, 1, 1 << 24)
        self.seed = check_int("seed", seed, 0, (1 << 64) - 1)
        self.world = check_int("ranks", world, 1, 1 << 20)
        self.rank = check_int("rank", rank, 0, self.world - 1)
        if batch % world:
            raise UsageError(
                f"a batch of {batch} photos cannot be shared equally by {world} ranks.\n"
                f"Do: choose a batch of {batch // world * world or world} or {(batch // world + 1) * world}",
                batch=batch,
                world=world,
            )
        self.share = self.batch // self.world
        self._order = lru_cache(maxsize=2)(self._permute)  # the end of an epoch and the beginning of the next

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the sampler for worker processes."""
        return partial(StepSampler, seed=self.seed, rank=self.rank, world=self.world), (self.length, self.batch)

    def indices(self, step: int) -> Indices:
        """The photos of a step that are this rank's: ``share`` indices, int64."""
        return self._photos(self._first(step) + np.arange(self.share))

    def after(self, step: int, row: int, tries: int) -> int:
        """The photo ``tries`` positions after that of a row of :meth:`indices`, wrapping around at the end of the epoch."""
        epoch, place = divmod(self._first(step) + row, self.length)
        return int(self._photos(np.array([epoch * self.length + (place + tries) % self.length]))[0])

    def _first(self, step: int) -> int:
        return check_int("step", step, 0, _MOST) * self.batch + self.rank * self.share

    def _photos(self, places: Indices) -> Indices:
        epochs, within = np.divmod(places, self.length)
        photos = np.empty_like(places)
        for epoch in range(int(epochs[0]), int(epochs[-1]) + 1):
            chosen = epochs == epoch
            photos[chosen] = self._order(epoch)[within[chosen]]
        return photos

    def _permute(self, epoch: int) -> Indices:
        raw = np.random.PCG64(np.random.SeedSequence((self.seed, epoch))).random_raw(self.length)
        return np.argsort(raw, kind="stable")
