"""Random numbers that are the same in every run, whichever tests ran before and in however many processes."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np

_shared: list[tuple[np.random.Generator, Any]] = []


def generator(seed: int) -> np.random.Generator:
    """A generator that the functions of a module share; each test finds it as it was made."""
    made = np.random.default_rng(seed)
    _shared.append((made, made.bit_generator.state))
    return made


def restart() -> None:
    """What comes before each test: every generator that tests share starts anew."""
    random.seed(0)
    np.random.seed(0)
    if "torch" in sys.modules:
        _restart_torch(sys.modules["torch"])
    for made, state in _shared:
        made.bit_generator.state = state


def _restart_torch(torch: Any) -> None:
    """What ``torch.manual_seed`` does; without a GPU it keeps a stack trace of each call, for the day when one is used."""
    torch.default_generator.manual_seed(0)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(0)
