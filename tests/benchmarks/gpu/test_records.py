"""Records of the GPU's rows: joined, and kept as results with their pages."""

import copy
import json

import pytest

from benchmarks.gpu.records import join, keep
from benchmarks.pages.race import gpu_text
from benchmarks.pages.results import read_result
from tests.benchmarks.pages.test_race import record as race_record  # noqa: F401 - a fixture
from tests.benchmarks.pages.test_race import row
from tests.benchmarks.pages.test_zoo import ours
from tests.benchmarks.pages.test_zoo import record as zoo_record  # noqa: F401 - a fixture

pytest.importorskip("matplotlib")


@pytest.fixture
def docs(tmp_path):
    return tmp_path / "docs"


def save(folder, record, name="record.json"):
    path = folder / name
    path.write_text(json.dumps(record))
    return path


def test_joined_records_have_all_rows_and_the_later_of_two(race_record):  # noqa: F811
    later = copy.deepcopy(race_record)
    later["rows"] = [
        row("pytrtplugins", "FP16", 1, 180.0, 380.0),
        row("onnxruntime, CUDA", "TF32", 1, None, 900.0),
    ]
    later["left_out"] = []
    joined = join([race_record, later])
    rows = {each["row"]: each for each in joined["rows"]}
    assert len(rows) == len(race_record["rows"]) + 1
    assert rows["pytrtplugins, FP16, batch-1"]["gpu_us"] == 180.0
    assert joined["left_out"] == []  # it ran the second time
    assert gpu_text(joined).endswith(" Joined from 2 runs; clocks are those of the last, ceilings the best of all.")
    assert "Joined" not in gpu_text(join([race_record]))


def test_a_ceiling_is_the_best_that_a_run_found(race_record):  # noqa: F811
    busy = copy.deepcopy(race_record)
    busy["gpu"]["ceilings"] |= {"FP16 TOP/s": 300.0, "INT8 TOP/s": 1500.0, "launch µs": 0.9}
    for records in ([race_record, busy], [busy, race_record]):
        assert join(records)["gpu"]["ceilings"] == race_record["gpu"]["ceilings"] | {"INT8 TOP/s": 1500.0}


def test_what_several_runs_left_out_is_named_once_with_the_last_reason_that_is_not_the_time(race_record):  # noqa: F811
    name = "onnxruntime, CUDA, TF32, batch-1"
    early, cut, fails = (
        {**race_record, "left_out": [f"{name}: {reason}"]}
        for reason in ("the limit of 9 s was reached", "the run ended before this row did", "no CUDA")
    )
    assert join([early, cut])["left_out"] == cut["left_out"]
    assert join([early, fails, cut])["left_out"] == fails["left_out"]
    assert join([race_record, fails])["left_out"] == fails["left_out"]


def test_records_of_two_gpus_are_not_joined(race_record):  # noqa: F811
    other = copy.deepcopy(race_record)
    other["gpu"]["gpu"] = "NVIDIA L4"
    with pytest.raises(ValueError, match="different GPUs"):
        join([race_record, other])


def test_new_rows_take_the_place_of_old_ones_and_the_others_stay_with_their_day(zoo_record, tmp_path, docs):  # noqa: F811
    keep([save(tmp_path, zoo_record)], "gpu", docs)
    new = {
        **zoo_record, "date": "2026-11-27", "left_out": ["zoo INT8, vgg16, batch-1: the limit of 9 s was reached"],
        "rows": [ours("vit_b_16", 1.5, us=80.0, peer_us=120.0), ours("resnet18", 3.0, 32)],
    }  # fmt: skip
    for day in ("2026-11-27", "2026-11-28"):
        keep([save(tmp_path, {**new, "date": day})], "gpu", docs, with_old=True)
        text = (docs / "benchmarks-zoo.md").read_text()
        assert f"; {day}. Clocks" in text
        assert "| vit_b_16 | 80.0 | 120.0 | 1.50 |" in text
        assert "| resnet18 | 100.0 | 200.0 | 2.00 | 140.0 | 1.40 | 180.0 | 1.80 | 50.0 |" in text
        assert [line for line in text.splitlines() if line.startswith("### ")] == [
            "### Batch 1",
            "### Batch 8",
            "### Batch 32",
        ]
        first = text.partition("Rows of earlier days:")[2].splitlines()[2]
        assert first.startswith("- 2026-11-22: zoo FP16, resnet18, batch-1; zoo FP16, vgg16")
        assert "vit_b_16, batch-1" in first.replace("zoo FP16, vit_b_16, batch-1", "")  # its peers' rows are old
        assert text.count("the limit of 9 s was reached") == 1
        new = {**new, "rows": new["rows"][:1]}
    assert "- 2026-11-27: zoo FP16, resnet18, batch-32\n" in text
    assert "Joined from 3 runs" in text


def test_race_and_zoo_have_results_and_pages_of_their_own(race_record, zoo_record, tmp_path, docs):  # noqa: F811
    both = {**race_record, "rows": race_record["rows"] + zoo_record["rows"]}
    assert keep([save(tmp_path, both)], "gpu", docs) == [docs / "benchmarks-zoo.md", docs / "benchmarks.md"]
    for page, section, rows in (("benchmarks", "gpu", race_record), ("benchmarks-zoo", "zoo", zoo_record)):
        assert [each["row"] for each in read_result(page, section, docs)["rows"]] == [
            each["row"] for each in rows["rows"]
        ]
    race = (docs / "benchmarks.md").read_text()
    assert keep([save(tmp_path, zoo_record)], "gpu", docs, with_old=True) == [docs / "benchmarks-zoo.md"]
    assert (docs / "benchmarks.md").read_text() == race


def test_figures_of_another_gpu_get_a_section_and_charts_of_their_own(zoo_record, tmp_path, docs):  # noqa: F811
    for gpu, name in (("NVIDIA H200", "gpu"), ("NVIDIA H100", "gpu-h100"), ("NVIDIA H100", "gpu-h100")):
        keep([save(tmp_path, {**zoo_record, "gpu": {**zoo_record["gpu"], "gpu": gpu}})], name, docs, with_old=True)
    text = (docs / "benchmarks-zoo.md").read_text()
    assert text.index("NVIDIA H200") < text.index("## zoo-h100") < text.index("NVIDIA H100")
    assert (text.count("NVIDIA H200"), text.count("NVIDIA H100")) == (1, 1)
    assert (docs / "images" / "benchmark-zoo-h100-8.png").exists()
