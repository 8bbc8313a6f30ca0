"""Fixtures of the tests of samples."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "samples"))


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Threads of PyTorch cost more than they give for networks as small as these."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs draw no learning curve, which takes longer than the steps of a test's run."""
    from training import run

    monkeypatch.setattr(run, "draw_curve", lambda *_: None)


@pytest.fixture(scope="module")
def rectangles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of images of rectangles, in the YOLO layout."""
    from tests.samples.rectangles import draw_set

    return draw_set(tmp_path_factory.mktemp("set") / "rectangles")
