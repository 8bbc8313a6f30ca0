"""Ratios on the benchmarks' pages are what a reader divides from the columns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
SPEED = "times darknet's speed"


def tables(page):
    """Of a page: lists of rows, each a dict of column → cells; a head that stands twice has a list of two."""
    for text in re.findall(r"(?:^\|.*\n)+", (DOCS / page).read_text("utf-8"), re.MULTILINE):
        head, _, *lines = ([cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines())
        rows = []
        for cells in lines:
            row: dict[str, list[str]] = {}
            for name, cell in zip(head, cells, strict=True):
                row.setdefault(name, []).append(cell)
            rows.append(row)
        yield rows


def having(page, column):
    found = [rows for rows in tables(page) if column in rows[0]]
    assert found
    return found


def number(cell):
    """The first one of a cell, and half of what its rounding left away; None for a dash."""
    text = re.match(r"[*]*([\d,]+(\.\d+)?)", cell)
    if text is None:
        return None
    return float(text[1].replace(",", "")), 0.5 * 10.0 ** -len((text[2] or ".")[1:])


def check(ratio, above, below):
    """A cell against the quotient of two others, as far as their rounding permits."""
    (value, unsure), (top, top_unsure), (bottom, bottom_unsure) = number(ratio), number(above), number(below)
    slack = unsure + (top / bottom) * (top_unsure / top + bottom_unsure / bottom)
    assert value == pytest.approx(top / bottom, abs=slack * 1.001), (ratio, above, below)


def test_speeds_of_the_cpu_tables():
    found = having("benchmarks.md", "median ms")
    assert len(found) == 2
    for rows in found:
        (darknet,) = (row for row in rows if row["runner"][0].startswith("darknet"))
        for row in rows:
            check(row[SPEED][0], darknet["median ms"][0], row["median ms"][0])
            if "time / baseline" in row:
                check(row["time / baseline"][0], row["median ms"][0], row["baseline beside it, median ms"][0])


def check_race(ordinary, pinned):
    host, gpu = "host to host µs, median (min)", "GPU µs, median (min)"
    ours = {
        row["batch"][0]: row for row in ordinary if [row["runner"], row["precision"]] == [["pytrtplugins"], ["FP16"]]
    }
    for row in ordinary:
        if number(row[gpu][0]):
            check(row["/ ours FP16"][0], row[gpu][0], ours[row["batch"][0]][gpu][0])
        check(row["/ ours FP16"][1], row[host][0], ours[row["batch"][0]][host][0])
    for row in pinned:
        check(row["/ ours FP16, ordinary arrays"][0], row[host][0], ours[row["batch"][0]][host][0])
    for rows, runner in ((ordinary, "runner"), (pinned, "arrays in pinned memory")):
        darknet = {row["batch"][0]: row[host][0] for row in rows if row[runner][0] == "darknet"}
        assert darknet.keys() <= {"1", "8"}
        for row in rows:
            if number(row[SPEED][0]):
                check(row[SPEED][0], darknet[row["batch"][0]], row[host][0])


def test_ratios_of_the_races():
    ordinary, earlier, other_gpu = having("benchmarks.md", "floors µs: arithmetic, memory, launches")
    (pinned,) = having("benchmarks.md", "arrays in pinned memory")
    check_race(ordinary, pinned)
    check_race(earlier, [])
    check_race(other_gpu, [])


def test_ratios_of_images_and_steps():
    (images,) = having("benchmarks.md", "times its speed")
    for row in images:
        theirs = next(cells for name, cells in row.items() if name.startswith("darknet, the same bytes to boxes"))
        ours = next(cells for name, cells in row.items() if name.startswith("bytes to boxes, host to host"))
        if number(theirs[0]):
            check(row["times its speed"][0], theirs[0], ours[0])
    (steps,) = having("benchmarks.md", "without / with")
    for row in steps:
        check(row["without / with"][0], row["without"][0], row["GPU µs with"][0])


def test_speeds_of_int8_in_the_zoo():
    for rows in having("benchmarks-zoo.md", "FP16 / INT8"):
        for row in rows[:-1]:  # the last are the means
            if number(row["INT8 µs"][0]):
                beside = row.get("FP16 beside it µs", row["FP16 µs"])
                check(row["FP16 / INT8"][0], beside[0], row["INT8 µs"][0])
