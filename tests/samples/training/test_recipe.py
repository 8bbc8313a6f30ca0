"""Options of a recipe as the command line has them."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import tests.samples.needs_torch  # noqa: F401
from pytrtplugins.utils.numbers import IntList, IntRange
from training import recipe
from training.recipe import add_recipe, option


@dataclass(frozen=True)
class Widths(recipe.Recipe):
    """A recipe with an option of several numbers."""

    part_widths: tuple[int, ...] = option((16, 32), IntList(IntRange(1, 64)), "filters")


def test_each_number_has_an_option_with_its_default() -> None:
    parser = argparse.ArgumentParser()
    add_recipe(parser, Widths)
    assert Widths.from_dict(vars(parser.parse_args([]))) == Widths()
    given = parser.parse_args(["--part-widths", "3,4,5", "--steps", "7"])
    assert Widths.from_dict(vars(given)) == Widths(part_widths=(3, 4, 5), steps=7)
    said = " ".join(parser.format_help().split())
    assert "--part-widths N,N,... filters (16,32)" in said
    assert "--steps N optimizer steps of the whole schedule (90000)" in said
    assert "--learning-rate N peak; warmed up over the first 3 %, then a cosine to 1 % (0.002)" in said


def test_a_checkpoint_gives_the_same_recipe() -> None:
    values = Widths(part_widths=(3, 4)).to_dict()
    assert values["part_widths"] == [3, 4]
    assert Widths.from_dict({**values, "of an older version": 1}) == Widths(part_widths=(3, 4))
