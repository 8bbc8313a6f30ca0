"""Numbers of a recipe at their limits: each trains a step, or is refused with the one that would do."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from pytrtplugins.errors import UsageError
from pytrtplugins.utils.numbers import IntList
from tests.samples.needs_torch import WITHOUT_RANKS
from tests.samples.rectangles import SMALL, make_loop
from yolov2_training.recipe import NETWORKS, Recipe

pytestmark = [pytest.mark.usefixtures("one_thread"), WITHOUT_RANKS]
BASE = Recipe(steps=1, batch=2, sizes=(32,), **SMALL)


def smallest() -> list[dict]:
    """Each option at its smallest value; widths in parts; sizes and batch together."""
    cases: list[dict] = []
    for field in fields(Recipe):
        limits = field.metadata["limits"]
        value = (limits.each.minimum,) * limits.minimum if isinstance(limits, IntList) else limits.minimum
        cases.append({field.name: value})
    cases += [{"stages": tuple(1 if i == at else 4 for i in range(6))} for at in range(6)]
    cases += [{"passthrough": width} for width in range(1, 9)]
    return [*cases, {"sizes": (32,), "batch": 1}, {"sizes": (64, 32), "batch": 1}, {"sizes": (64,), "batch": 1}]


def test_each_number_trains_or_is_refused(rectangles: Path) -> None:
    refused = {}
    for case in smallest():
        recipe = replace(BASE, **case)
        try:
            recipe.check(1, 1)
        except UsageError as error:
            refused[str(case)] = str(error).partition("Do: give ")[2]
            continue
        loop = make_loop(rectangles, recipe)
        loop.advance()
    half = "at least 2 for each of these"
    assert refused == {
        "{'batch': 1}": "--sizes 64, or --batch 2",
        "{'stages': (1, 1, 1, 1, 1, 1)}": half,
        **{str({"stages": tuple(1 if i == at else 4 for i in range(6))}): half for at in range(2, 6)},
        **{str({"passthrough": width}): f"--passthrough {4 if width < 4 else 8}" for width in (1, 2, 3, 5, 6, 7)},
        "{'sizes': (32,), 'batch': 1}": "--sizes 64, or --batch 2",
        "{'sizes': (64, 32), 'batch': 1}": "--sizes 64, or --batch 2",
    }


def test_the_defaults_are_the_numbers_of_the_shipped_network() -> None:
    assert Recipe().to_dict() == {
        "steps": 90_000, "batch": 64, "sizes": [416], "learning_rate": 0.002, "weight_decay": 0.25, "ema": 0.9995, "smoothing": 0.05,
        "seed": 0, "mosaic": 0.75, "mixup": 0.4, "close": 0.85, "dropout": 0.1, "balance": 0.0, "balance_boxes": 0.0, "negative": 0.0,
        "imitation": 2.0, "stages": [16, 32, 64, 128, 192, 256], "head": 208, "passthrough": 32, "boxes": 0,
    }  # fmt: skip


def test_the_networks_have_the_widths_of_the_recipe_and_of_darknets_cfg() -> None:
    voc = {"stages": (32, 64, 128, 256, 512, 1024), "head": 1024, "passthrough": 64}
    assert list(NETWORKS.items()) == [("compact", {}), ("voc", voc)]


def test_what_each_rank_gets_is_looked_at(rectangles: Path) -> None:
    with pytest.raises(UsageError, match=r"--sizes 32 with one photo a rank at a time: .*\nDo: .* or --batch 8"):
        replace(BASE, batch=4).check(2, 2)
    replace(BASE, batch=8).check(2, 2)
