"""Which device a process of a run takes."""

# ruff: noqa: E402  (the samples are importable only after their folder is on the path)
from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason='training needs torch (pip install "pytrtplugins[train]")')
sys.path.insert(0, str(Path(__file__).parents[3] / "samples"))

from training.ranks import join
from training.settings import Settings


@pytest.mark.parametrize(("given", "number"), [("cuda", 0), ("cuda:0", 0), ("cuda:3", 3)])
def test_a_process_alone_takes_the_gpu_that_it_is_told_or_the_first(monkeypatch, given: str, number: int) -> None:
    """PyTorch's own set_device looks at the device, and only the driver's call behind it is replaced."""
    taken: list[int] = []
    monkeypatch.setattr(torch._C, "_cuda_setDevice", taken.append, raising=False)
    ranks = join(given, Settings())
    assert (ranks.rank, ranks.world, ranks.joined) == (0, 1, False)
    assert ranks.device == torch.device("cuda", number)
    assert taken == [number]
