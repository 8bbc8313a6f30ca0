"""How many boxes of a photo and of a training image are learned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.samples.needs_torch import WITHOUT_RANKS, torch
from tests.samples.rectangles import TINY, draw_set
from training.augment import Augmenter, draw_random_numbers
from training.batch import Pool
from training.data import load_photos, open_data
from yolov2_training import boxes

pytestmark = [pytest.mark.usefixtures("one_thread", "no_figure"), WITHOUT_RANKS]
CPU = torch.device("cpu")
PLAIN = torch.tensor([0.0, 1.0, 1.0, 0.0])  # no mosaic, no zoom, no blending


class Counted:
    """A set of photos with so many boxes each."""

    def __init__(self, *counts: int) -> None:
        self._counts = counts

    def __len__(self) -> int:
        return len(self._counts)

    def boxes(self, number: int) -> np.ndarray:
        return np.zeros((self._counts[number], 5), np.float32)


def crowd(count: int) -> Pool:
    """A photo of 400 pixels with boxes of 10 to 18 pixels, from its centre outwards."""
    cells = sorted(((20 * x, 20 * y) for x in range(20) for y in range(20)), key=lambda c: max(abs(v - 190) for v in c))
    rows = [[0, x, y, x + 10 + i % 9, y + 10] for i, (x, y) in enumerate(cells[:count])]
    pixels = torch.zeros(1, 400, 400, 3, dtype=torch.uint8)
    return Pool(pixels, torch.full((1, 2), 400.0), torch.tensor(rows, dtype=torch.float32)[None])


@pytest.mark.parametrize(
    ("counts", "given", "expected"),
    [
        ((1, 2, 0, 5), 0, (5, 32, 0, 0)),  # 32 is what the augmentation takes without a word
        ((40, 40, 40), 0, (40, 160, 0, 0)),
        ((0, 0), 0, (1, 32, 0, 0)),
        ((50, 3), 20, (20, 80, 1, 30)),
        ((*[3] * 2999, 900), 0, (3, 32, 1, 897)),  # one photo in 3,000 does not decide
    ],
)
def test_limits_are_those_of_999_photos_in_a_thousand(counts, given, expected) -> None:
    limits = boxes.BoxLimits.of(Counted(*counts), given)
    assert (limits.photo, limits.image, limits.over, limits.left_out) == expected
    text = limits.text(64, 416)
    assert f"up to {expected[0]} of a photo and {expected[1]} of a training image" in text
    assert f"some {-(-64 * 845 * 2 * expected[1] * 40 // 10**6):,} MB" in text
    assert ("photos have more" in text) == bool(expected[2])


@pytest.mark.parametrize("own", [True, False], ids=["of the set", "of a batch"])
@pytest.mark.parametrize("count", [8, 33, 200])
def test_every_box_of_a_photo_is_placed(own: bool, count: int) -> None:
    torch.manual_seed(0)
    pool, lots = crowd(count), draw_random_numbers(1, CPU)
    augmenter = Augmenter(CPU, pool if own else None, most=count)
    _, truth, valid = augmenter.plan(lots, PLAIN, 416, None if own else pool)
    assert valid.sum() == count
    parts = [
        Augmenter(CPU, Pool(pool.pixels, pool.size, part)).plan(lots, PLAIN, 416) for part in pool.boxes.split(1, 1)
    ]
    one_by_one = torch.cat([rows[keep] for _, rows, keep in parts])
    assert sorted(truth[valid].tolist()) == sorted(one_by_one.tolist())


def test_of_too_many_boxes_the_largest_stay() -> None:
    torch.manual_seed(0)
    lots = draw_random_numbers(1, CPU)
    _, every, valid = Augmenter(CPU, crowd(100), most=100).plan(lots, PLAIN, 416)
    _, some, kept = Augmenter(CPU, crowd(100), most=40).plan(lots, PLAIN, 416)
    areas = [((rows[..., 2] - rows[..., 0]) * (rows[..., 3] - rows[..., 1])) for rows in (every[valid], some[kept])]
    assert kept.sum() == 40
    torch.testing.assert_close(areas[1].sort().values, areas[0].sort().values[-40:])


def test_the_augmentation_compiles_as_a_whole() -> None:
    augmenter, lots = Augmenter(CPU, crowd(12), most=16), draw_random_numbers(1, CPU)
    compiled = torch.compile(augmenter.draw, backend="eager", fullgraph=True, dynamic=False)
    for one, other in zip(compiled(lots, PLAIN, 64), augmenter.draw(lots, PLAIN, 64), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("loader", ["resident", "dataloader"])
def test_a_run_learns_every_box_and_says_how_many(tmp_path: Path, capsys, monkeypatch, loader: str) -> None:
    import train_yolov2

    from yolov2_training import task

    folder = draw_set(tmp_path / "set", 6)
    centres = [f"0 {0.025 + 0.05 * (i % 20)} {0.025 + 0.05 * (i // 20)} 0.04 0.04" for i in range(150)]
    (folder / "labels/3.txt").write_text("\n".join(centres))
    photos = open_data([folder], "train.txt")
    assert (load_photos(photos, CPU, side=64).boxes[..., 0] >= 0).sum(1).max() == 150  # objects of the mAP
    seen, draw = [], task.Detection.draw
    monkeypatch.setattr(task.Detection, "draw", lambda self, *given: seen.append(draw(self, *given)) or seen[-1])
    line = ["--data", str(folder), *TINY, "--sizes", "320", "--batch", "6", "--steps", "1", "--device", "cpu"]
    line += ["--loader", loader, "--workers", "0", "--mosaic", "0", "--mixup", "0", "--output"]
    assert train_yolov2.main([*line, str(tmp_path / "a")]) == 0
    limits = boxes.BoxLimits.of(photos)
    assert limits.photo == 150
    assert f"{limits.text(6, 320)}\n" in capsys.readouterr().out
    if loader == "dataloader":  # each photo of the batch is one image
        assert seen[0][2].sum(1).max() > 50
    assert train_yolov2.main([*line, str(tmp_path / "b"), "--boxes", "10"]) == 0
    assert "1 photos have more, and 140 boxes, the smallest, are learned as background" in capsys.readouterr().out
    assert seen[-1][2].sum(1).max() <= 32
