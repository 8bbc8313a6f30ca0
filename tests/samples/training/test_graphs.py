"""CUDA graphs of a step: draw, forward and backward are replayed, and give what they give one by one."""

# ruff: noqa: E402  (the samples are importable only after their folder is on the path)
from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason='training needs torch (pip install "pytrtplugins[train]")')

from tests.samples.rectangles import SMALL, draw_set, make_loop
from yolov2_training.recipe import Recipe

pytestmark = pytest.mark.gpu


@pytest.fixture
def device():
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    return torch.device("cuda", 0)


@pytest.mark.parametrize("loader", ["resident", "dataloader"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_replayed_steps_learn_what_launched_ones_learn(tmp_path: Path, device, loader, accumulate) -> None:
    """Of two sizes, before and after mosaics stop: each size is captured once."""
    folder = draw_set(tmp_path / "set")
    recipe = Recipe(steps=8, batch=4, sizes=(64, 96), close=0.5, dropout=0.3, **SMALL)
    found = []
    for graphs in (False, True):
        loop = make_loop(folder, recipe, device=device, loader=loader, accumulate=accumulate, cuda_graphs=graphs)
        losses = []
        for _ in range(recipe.steps):
            loop.advance()
            losses.append(loop.last[:-1])
        found.append(torch.stack(losses))
    assert len(loop._compute._captured) == 2
    torch.testing.assert_close(found[1], found[0], rtol=1e-2, atol=1e-3)
    assert found[0].isfinite().all()
