"""What is raced: a network that is ready to run, and how it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pytrtplugins.cuda import pinned_empty

from .clock import Clock
from .subject import Subject

GOALS, STEPS, COMPILED, MORE, BUILDS, ZOO = range(6)
"""Stages of a race, so that a time limit leaves out little; a compiled peer and a build take minutes. The zoo has more from its own on."""


@dataclass(frozen=True)
class Running:
    """A network ready to run.

    Attributes:
        run: Images → head, NumPy to NumPy.
        queue: Queues the network alone on the clock's stream: from float32 images on the GPU to the float32 head there. None
            where a library's interface goes from the host to the host only.
        kernels: That one run launches; None where it is unknown.
        bytes: Of the activations' memory; None likewise.
        place: Images → the same where the caller keeps them.
        facts: What else the record keeps.
        close: Frees it.
    """

    run: Callable[[np.ndarray], np.ndarray]
    queue: Callable[[], object] | None = None
    kernels: int | None = None
    bytes: int | None = None
    place: Callable[[np.ndarray], np.ndarray] = lambda images: images
    facts: dict[str, Any] | None = None
    close: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Runner:
    """A way to run the network.

    Attributes:
        name: What stands in the table.
        precision: Of the products.
        make: Subject, clock, batch → what runs.
        max_batch: Largest batch.
        pinned: Whether the caller keeps images, and heads where it can, in pinned memory.
        stage: When its rows come.
    """

    name: str
    precision: str
    make: Callable[[Subject, Clock, int], Running]
    max_batch: int = 32
    pinned: bool = False
    stage: int = GOALS

    def __str__(self) -> str:
        """The name of its row."""
        return f"{self.name}, {self.precision}{', pinned' * self.pinned}"


def pinned_copy(array: np.ndarray) -> np.ndarray:
    """A copy in pinned memory."""
    copy = pinned_empty(array.shape, array.dtype)
    np.copyto(copy, array)
    return copy
