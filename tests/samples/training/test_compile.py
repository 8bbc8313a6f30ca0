"""The parts of YOLOv2's step under torch.compile, on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.samples.needs_torch import torch
from tests.samples.rectangles import ALONE, SMALL, draw_set, make_loop
from training.augment import draw_random_numbers
from yolov2_training.loss import region_loss
from yolov2_training.recipe import Recipe

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # PyTorch's compiler still uses torch.jit
]


def test_augmentation_network_and_loss_compile_as_a_whole(tmp_path: Path) -> None:
    loop = make_loop(draw_set(tmp_path / "set"), Recipe(batch=4, sizes=(64,), negative=0.2, **SMALL))
    task = loop.task
    torch.manual_seed(5)
    shape, (amounts,) = task.inputs([""] * 4, 1)
    lots = draw_random_numbers(4, ALONE.device)
    images, truth, valid = task._augmenter.draw(lots, amounts, 64)
    with torch.no_grad():
        out = task.network(images)
    parts = {
        "augmentation": (task._augmenter.draw, (lots, amounts, 64)),
        "network": (task.network.forward_with_features, (images,)),
        "loss": (region_loss, (out, truth, valid, task.module.anchors, 0.05)),
    }
    assert shape == (4, 64)
    for name, (part, arguments) in parts.items():
        found = torch._dynamo.explain(part)(*arguments)
        assert (found.graph_count, found.graph_break_count) == (1, 0), (name, found.break_reasons)
    torch._dynamo.reset()
    compiled = torch.compile(task._augmenter.draw, dynamic=False)(lots, amounts, 64)
    for ours, theirs in zip(compiled, (images, truth, valid), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
        assert ours.stride() == theirs.stride()
