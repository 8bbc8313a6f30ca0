"""Pages that were written from records, read back, and joined to new records."""

import copy
import json
import shutil

import pytest

from benchmarks.gpu import report
from benchmarks.gpu.page_rows import EARLIER, page_record
from benchmarks.gpu.rows import row_of
from benchmarks.gpu.runners import NAME, ONNXRUNTIME, TORCH_COMPILED, TORCH_TUNED

from . import test_report as race_rows
from . import test_zoo_report as zoo_rows
from .test_report import record as race_record  # noqa: F401 - a fixture
from .test_zoo_report import record as zoo_record  # noqa: F401 - a fixture

pytest.importorskip("matplotlib")


def saved(folder, record, name="record.json"):
    path = folder / name
    path.write_text(json.dumps(record))
    return path


def read_back(folder, name, zoo):
    found = page_record(folder, name, zoo)
    assert found is not None
    return found


def tables(folder, page):
    return [line for line in (folder / page).read_text().splitlines() if line.startswith("|")]


def test_a_race_that_was_read_from_its_page_makes_the_same_tables(race_record, tmp_path):  # noqa: F811
    build = {"kind": "build", "precision": "FP16", "search_s": 30.25, "cached_s": 2.5}
    race_record["benchmarks"].append(
        {"fullname": "benchmarks/gpu/test_build.py::test_build[fp16]", "extra_info": build, "stats": {"median": 2.5, "min": 2.5}}
    )  # fmt: skip
    report.write([saved(tmp_path, race_record)], "gpu", tmp_path)
    before = tables(tmp_path, "benchmarks.md")
    read = read_back(tmp_path, "gpu", False)
    assert (read["gpu"]["gpu"], read["runs"], read["left_out"]) == (
        race_record["gpu"]["gpu"],
        1,
        race_record["left_out"],
    )
    kinds = [bench["extra_info"]["kind"] for bench in read["benchmarks"]]
    assert {kind: kinds.count(kind) for kind in kinds} == {"race": 7, "image": 1, "files": 2, "step": 2, "build": 1}
    again = {**read, "gpu": race_record["gpu"], "machine_info": race_record["machine_info"]}
    report.write([saved(tmp_path, again)], "gpu", tmp_path)
    assert tables(tmp_path, "benchmarks.md") == before


def test_a_zoo_that_was_read_from_its_page_makes_the_same_tables(zoo_record, tmp_path):  # noqa: F811
    report.write([saved(tmp_path, zoo_record)], "gpu", tmp_path)
    before = (tmp_path / "benchmarks-zoo.md").read_text()
    read = read_back(tmp_path, "zoo", True)
    again = {**read, "gpu": zoo_record["gpu"], "machine_info": zoo_record["machine_info"]}
    report.write([saved(tmp_path, again)], "gpu", tmp_path)
    assert (tmp_path / "benchmarks-zoo.md").read_text() == before
    names = {row_of(bench["fullname"]): bench["extra_info"] for bench in read["benchmarks"]}
    assert names["zoo max-autotune, resnet18, batch-1"]["runner"] == TORCH_TUNED
    assert names["zoo compile, resnet18, batch-1"]["runner"] == TORCH_COMPILED
    assert names["zoo onnxruntime, vit_b_16, batch-1"] == {
        "kind": "zoo", "network": "vit_b_16", "batch": 1, "runner": ONNXRUNTIME, "precision": "FP16", "failure": "Fail: no graph",
    }  # fmt: skip
    assert names["zoo FP16, resnet18, batch-8"]["arrays"] == {"Where": 1, "Gather": 2}


def test_rounding_meets_no_goal_that_was_missed(zoo_record, tmp_path):  # noqa: F811
    zoo_record["benchmarks"] = [
        zoo_rows.ours("vit_b_16", 2.0, again_s=3.04, error=0.0104),
        zoo_rows.ours("resnet18", 2.0, 8, again_s=3.04),
        zoo_rows.bench("resnet18", 8, precision="INT8", what="INT8", us=50.0, error=0.5),
    ]
    report.write([saved(tmp_path, zoo_record)], "gpu", tmp_path)
    before = tables(tmp_path, "benchmarks-zoo.md")
    assert sum("missed: vit_b_16, resnet18 with batch 8" in line for line in before) == 1
    new = {**zoo_record, "benchmarks": [zoo_rows.ours("unet", 2.0)]}
    report.write([saved(tmp_path, new)], "gpu", tmp_path, keep=True)
    after = (tmp_path / "benchmarks-zoo.md").read_text()
    assert "in seconds, at most 3 | 3 | 1 | missed: vit_b_16, resnet18 with batch 8 |" in after
    assert "at most 0.01 | 3 | 2 | missed: vit_b_16 |" in after


@pytest.mark.parametrize("speed", [1.002, 0.998])
def test_rounding_does_not_make_int8_faster_or_slower(zoo_record, tmp_path, speed):  # noqa: F811
    int8 = zoo_rows.bench("resnet18", precision="INT8", what="INT8", us=50.0, error=0.5, peer_us=50 * speed)
    zoo_record["benchmarks"] = [zoo_rows.ours("resnet18", 2.0), int8]
    report.write([saved(tmp_path, zoo_record)], "gpu", tmp_path)
    report.write(
        [saved(tmp_path, {**zoo_record, "benchmarks": [zoo_rows.ours("unet", 2.0)]})], "gpu", tmp_path, keep=True
    )
    (goal,) = (line for line in tables(tmp_path, "benchmarks-zoo.md") if line.startswith("| INT8, batch 1"))
    assert goal.endswith("| met |" if speed > 1 else "| missed: resnet18 |")


def test_goals_show_digits_that_the_race_does_not(race_record, tmp_path):  # noqa: F811
    race_record["benchmarks"] = [race_rows.row(NAME, "FP16", 1, 150.4, 400.0, 1.0)]
    report.write([saved(tmp_path, race_record)], "gpu", tmp_path)
    new = {**race_record, "benchmarks": [race_rows.row(NAME, "INT8", 1, 99.0, 300.0, 1.0)]}
    report.write([saved(tmp_path, new)], "gpu", tmp_path, keep=True)
    assert "| FP16, batch 1, on the GPU | 150 µs | 150.4 | missed |" in (tmp_path / "benchmarks.md").read_text()


def test_new_rows_take_the_place_of_old_ones_and_the_others_stay_with_their_day(zoo_record, tmp_path):  # noqa: F811
    report.write([saved(tmp_path, zoo_record)], "gpu", tmp_path)
    new = {
        **zoo_record, "datetime": "2026-11-27T09:00:00", "left_out": ["zoo INT8, vgg16, batch-1: the limit of 9 s was reached"],
        "benchmarks": [zoo_rows.ours("vit_b_16", 1.5, us=80.0, peer_us=120.0), zoo_rows.ours("resnet18", 3.0, 32)],
    }  # fmt: skip
    path = saved(tmp_path, new, "new.json")
    for day in ("2026-11-27", "2026-11-28"):
        report.write([path], "gpu", tmp_path, keep=True)
        text = (tmp_path / "benchmarks-zoo.md").read_text()
        assert f"; {day}. Clocks" in text
        assert "| vit_b_16 | 80.0 | 120.0 | 1.50 |" in text
        assert "| resnet18 | 100.0 | 200.0 | 2.00 | 140.0 | 1.40 | 180.0 | 1.80 | 50.0 |" in text
        assert [line for line in text.splitlines() if line.startswith("### ")] == [
            "### Batch 1",
            "### Batch 8",
            "### Batch 32",
        ]
        first = text.partition(EARLIER)[2].splitlines()[2]
        assert first.startswith(
            "- 2026-11-22: zoo FP16, resnet18, batch-1; zoo INT8, resnet18, batch-1; zoo compile, resnet18"
        )
        assert "vit_b_16, batch-1;" in first.replace("zoo FP16, vit_b_16, batch-1", "")  # its peers' rows are old
        assert text.count("the limit of 9 s was reached") == 1
        new = {**new, "datetime": "2026-11-28T09:00:00", "benchmarks": new["benchmarks"][:1]}
        path = saved(tmp_path, new, "newer.json")
    assert "- 2026-11-27: zoo FP16, resnet18, batch-32\n" in text
    assert "Joined from 3 runs" in text


def test_only_the_page_that_has_new_rows_is_written(race_record, zoo_record, tmp_path):  # noqa: F811
    both = copy.deepcopy(race_record)
    both["benchmarks"] += zoo_record["benchmarks"]
    assert len(report.write([saved(tmp_path, both)], "gpu", tmp_path)) == 2
    race = (tmp_path / "benchmarks.md").read_text()
    assert report.write([saved(tmp_path, zoo_record)], "gpu", tmp_path, keep=True) == [tmp_path / "benchmarks-zoo.md"]
    assert (tmp_path / "benchmarks.md").read_text() == race


def test_a_page_without_the_section_has_no_record(tmp_path):
    assert page_record(tmp_path, "gpu", False) is None
    (tmp_path / "benchmarks.md").write_text("# Benchmarks\n")
    assert page_record(tmp_path, "gpu", False) is None


def test_the_projects_pages_can_be_read(tmp_path):
    from tests.pages import ROOT

    for page in ("benchmarks.md", "benchmarks-zoo.md"):
        shutil.copy(ROOT / "docs" / page, tmp_path / page)
    race, zoo = read_back(tmp_path, "gpu", False), read_back(tmp_path, "zoo", True)
    assert len(race["benchmarks"]) > 20
    assert len(zoo["benchmarks"]) > 40
    assert {bench["extra_info"]["batch"] for bench in zoo["benchmarks"]} >= {1}
