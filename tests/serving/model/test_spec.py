"""Limits of a server are those that its page tells."""

from dataclasses import fields
from pathlib import Path

import pytest

from pytrtplugins.serving import Limits
from pytrtplugins.validation.limits import size_text

PAGE = (Path(__file__).parents[3] / "docs/how-to/serving_processes.md").read_text(encoding="utf-8")
ROWS = {
    name: row
    for row in PAGE.splitlines()
    if "`Limits." in row
    for name in row.rpartition("`Limits.")[2].replace("`", "").replace("|", "").replace(" ", "").split(",")
}


@pytest.mark.parametrize("name", [field.name for field in fields(Limits) if field.name in ROWS])
def test_a_default_stands_in_the_row_of_its_name(name):
    value = getattr(Limits(), name)
    text = size_text(value) if name.endswith("bytes") else f"{value:g} s" if name.endswith("seconds") else f"{value:,}"
    assert text in ROWS[name], ROWS[name]
