"""The report of a made-up record."""

import copy
import json

import pytest

from benchmarks.gpu import report

pytest.importorskip("matplotlib")


def row(runner, precision, batch, gpu, host, ratio, kernels=27, pinned=False):
    info = {
        "kind": "race", "runner": runner, "precision": precision, "batch": batch, "pinned": pinned, "error": 1.25e-3, "same_boxes": True,
        "host_ratio": ratio, "gpu_us": gpu, "gpu_least_us": gpu and gpu - 2, "gpu_ratio": gpu and gpu / 200,
        "sustained_us": (gpu and batch > 1 and gpu * 1.1) or None,
        "kernels": kernels, "bytes": 5_000_000, "operations": 29_360_334_848 * batch, "moved": 140_000_000,
    }  # fmt: skip
    name = f"benchmarks/gpu/test_race.py::test_latency[{runner}, {precision}{', pinned' * pinned}, batch-{batch}]"
    return {"fullname": name, "extra_info": info, "stats": {"median": host / 1e6, "min": (host - 5) / 1e6}}


def step(name, ratio, without_kernels=28):
    info = {
        "kind": "step", "step": name, "network": "YOLOv2", "precision": "FP16", "error": 0.0, "ratio": ratio, "gpu_us": 200.0,
        "without_us": 200 * ratio, "kernels": 27, "without_kernels": without_kernels, "bytes": 4_000_000, "without_bytes": 16_000_000,
    }  # fmt: skip
    return {
        "fullname": f"benchmarks/gpu/test_steps.py::test_step[{name}]",
        "extra_info": info,
        "stats": {"median": 1e-4, "min": 1e-4},
    }


def image(precision, network, host):
    info = {"kind": "image", "precision": precision, "size": [768, 576], "pinned": False, "boxes": 12}
    info |= {
        "network_us": network,
        "launch_us": host - 60,
        "darknet_us": 4000.0,
        "over_darknet": 12.04,
        "over_predict": 6.04,
    }
    name = f"benchmarks/gpu/test_image.py::test_image_to_boxes[{precision.lower()}]"
    return {"fullname": name, "extra_info": info, "stats": {"median": host / 1e6, "min": (host - 5) / 1e6}}


def files(decode, batch, seconds, decoding):
    info = {"kind": "files", "precision": "FP16", "decode": decode, "batch": batch, "size": [768, 576], "images": 2000}
    info |= {"threads": 16, "bytes": 151_600, "decoding_us": 1e6 * decoding}
    name = f"benchmarks/gpu/test_files.py::test_files_to_boxes[{batch}-{decode}]"
    return {"fullname": name, "extra_info": info, "stats": {"median": seconds, "min": seconds}}


@pytest.fixture
def record():
    gpu = {
        "gpu": "NVIDIA H200", "driver_version": "580.1", "cuda": "13.0", "cudnn": "91900", "cudnn-frontend": "1.15.0",
        "versions": {"torch": "2.11.0"}, "processor": "a Xeon", "clocks.sm": "1980 MHz", "clocks.max.sm": "1980 MHz",
        "clocks.mem": "3201 MHz", "power.limit": "700 W",
        "ceilings": {"FP16 TOP/s": 700.0, "INT8 TOP/s": 1400.0, "TF32 TOP/s": 350.0, "copy GB/s": 4000.0, "launch µs": 0.7},
    }  # fmt: skip
    return {
        "gpu": gpu,
        "left_out": ["onnxruntime, CUDA, TF32, batch-1: no CUDA provider"],
        "machine_info": {"python_version": "3.12.3"},
        "datetime": "2026-11-21T15:00:00",
        "benchmarks": [
            row("pytrtplugins", "FP16", 1, 200.0, 400.0, 1.0),
            row("pytrtplugins", "INT8", 1, 130.0, 320.0, 0.8),
            row("darknet", "TF32", 1, None, 2000.0, 5.0, kernels=None),
            row("pytrtplugins", "FP16", 8, 600.0, 900.0, 1.0),
            row("PyTorch, CUDA graph", "FP16", 8, 1400.0, 1900.0, 2.1),
            row("pytrtplugins", "FP16", 1, None, 240.0, 0.6, pinned=True),
            row("darknet", "TF32", 1, None, 1800.0, 4.5, kernels=None, pinned=True),
            image("FP16", 190.0, 330.0),
            files("gpu", 32, 0.2, 0.18),
            files("cpu", 32, 1.0, 0.8),
            step("reuse", 1.01),
            step("graph", 2.2, without_kernels=None),
        ],
    }


def test_rows_go_by_batch_the_slowest_first(record):
    found = [(each["runner"], each["precision"], each["batch"]) for each in report.race(record)]
    assert found == [
        ("darknet", "TF32", 1),
        ("pytrtplugins", "FP16", 1),
        ("pytrtplugins", "INT8", 1),
        ("PyTorch, CUDA graph", "FP16", 8),
        ("pytrtplugins", "FP16", 8),
    ]


def test_ratios_are_quotients_of_the_tables_medians(record):
    speeds = {(each["precision"], each["batch"]): each["over_darknet"] for each in report.race(record)}
    pinned = {each["precision"]: each["over_darknet"] for each in report.race(record, pinned=True)}
    ours = {(each["runner"], each["precision"], each["batch"]): each for each in report.race(record)}
    assert speeds["INT8", 1] == pytest.approx(2000 / 320)
    assert speeds["FP16", 8] is None  # darknet did not run there
    assert pinned["FP16"] == pytest.approx(1800 / 240)  # darknet from such arrays too
    assert ours["pytrtplugins", "INT8", 1]["gpu_ratio"] == pytest.approx(130 / 200)
    assert ours["pytrtplugins", "INT8", 1]["host_ratio"] == pytest.approx(320 / 400)
    assert ours["PyTorch, CUDA graph", "FP16", 8]["gpu_ratio"] == pytest.approx(1400 / 600)  # of the same batch
    assert ours["darknet", "TF32", 1]["gpu_ratio"] is None  # it was not timed on the GPU
    assert report.race(record, pinned=True)[1]["host_ratio"] == pytest.approx(240 / 400)  # ours from ordinary arrays


def test_without_our_fp16_there_is_no_ratio(record):
    record["benchmarks"] = [record["benchmarks"][1]]
    (found,) = report.race(record)
    assert found["gpu_ratio"] is found["host_ratio"] is found["over_darknet"] is None
    assert "| – |" in report.race_table(record)


def test_floors_come_from_the_measured_ceilings(record):
    line = next(line for line in report.race_table(record).splitlines() if "| 1 | pytrtplugins | FP16 |" in line)
    assert "| 42, 35, 19 |" in line  # 29.36 GFLOP at 700 TFLOP/s, 140 MB at 4 TB/s, 27 launches of 0.7 µs


def test_what_was_not_measured_is_a_dash(record):
    line = next(line for line in report.race_table(record).splitlines() if "darknet | TF32" in line)
    assert line.startswith("| 1 | darknet | TF32 | – | – | – | 2,000 (1,995) | 5.00 | 1.0 | 84, 35, – | – |")


def test_an_images_row_says_what_the_network_is_not(record):
    found = report.image_table(record)
    assert "| FP16, 768 x 576, 12 boxes | 190 | 330 (325) | 270 | 140 | 4,000 | 12.1 | 6.0 |" in found


def test_files_are_read_so_many_a_second(record):
    assert report.files_table(record).splitlines()[2:] == [
        "| FP16, 768 x 576, 152 kB | 16 threads | 32 | 2,000 | 2,500 | 80% |",
        "| FP16, 768 x 576, 152 kB | the GPU | 32 | 10,000 | 11,111 | 90% |",
    ]


def test_steps_with_the_largest_effect_come_first(record):
    lines = report.steps_table(record).splitlines()[2:]
    assert [line.split("`")[1] for line in lines] == ["graph", "reuse"]
    assert "| 2.20 | 27 | – | 4.0 | 16.0 |" in lines[0]


def test_the_machine_is_named_with_versions_clocks_and_ceilings(record):
    text = report.machine(record)
    for part in (
        "NVIDIA H200",
        "driver 580.1",
        "cuDNN 9.19.0",
        "torch 2.11.0",
        "SM 1980 MHz",
        "FP16 700 TOP/s",
        "launch 0.70 µs",
        "2026-11-21",
    ):
        assert part in text


def test_joined_records_have_all_rows_and_the_later_of_two(record):
    later = copy.deepcopy(record)
    later["benchmarks"] = [
        row("pytrtplugins", "FP16", 1, 180.0, 380.0, 1.0),
        row("onnxruntime, CUDA", "TF32", 1, None, 900.0, 2.0),
    ]
    later["left_out"] = []
    joined = report.join([record, later])
    rows = {(each["runner"], each["precision"], each["batch"]): each for each in report.race(joined)}
    assert len(rows) == 6
    assert len(report.race(joined, pinned=True)) == 2
    assert rows["pytrtplugins", "FP16", 1]["gpu_us"] == 180.0
    assert joined["left_out"] == []  # it ran the second time
    assert report.machine(joined).endswith(
        " Joined from 2 runs; clocks are those of the last, ceilings the best of all."
    )
    assert "Joined" not in report.machine(record)


def test_a_ceiling_is_the_best_that_a_run_found(record):
    busy = copy.deepcopy(record)
    busy["gpu"]["ceilings"] |= {"FP16 TOP/s": 300.0, "INT8 TOP/s": 1500.0, "launch µs": 0.9}
    for records in ([record, busy], [busy, record]):
        found = report.join(records)["gpu"]["ceilings"]
        assert found == record["gpu"]["ceilings"] | {"INT8 TOP/s": 1500.0}


def test_what_several_runs_left_out_is_named_once_with_the_last_reason_that_is_not_the_time(record):
    row = "onnxruntime, CUDA, TF32, batch-1"
    early, cut, fails = (
        {**record, "left_out": [f"{row}: {reason}"]}
        for reason in ("the limit of 9 s was reached", "the run ended before this row did", "no CUDA")
    )
    assert report.join([early, cut])["left_out"] == cut["left_out"]
    assert report.join([early, fails, cut])["left_out"] == fails["left_out"]
    assert report.join([record, fails])["left_out"] == fails["left_out"]


def test_records_of_two_gpus_are_not_joined(record):
    other = copy.deepcopy(record)
    other["gpu"]["gpu"] = "NVIDIA L4"
    with pytest.raises(ValueError, match="different GPUs"):
        report.join([record, other])


def test_the_page_is_written_from_saved_records(record, tmp_path):
    page = tmp_path / "benchmarks.md"
    page.write_text("# Benchmarks\n\nProse.\n")
    saved = tmp_path / "record.json"
    saved.write_text(json.dumps(record))
    for _ in range(2):
        report.write([saved], "gpu", tmp_path)
    text = page.read_text()
    assert text.count("NVIDIA H200") == 1
    assert "Prose." in text
    assert "| 1 | pytrtplugins | FP16 | 240 (235) | 0.60 | 7.5 |" in text
    assert "| FP16, batch 1, on the GPU | 150 µs | 200.0 | missed |" in text
    assert "Left out:\n\n- onnxruntime" in text
    assert (tmp_path / "images" / "benchmark-gpu.png").stat().st_size > 10_000
    assert "[![latency](images/benchmark-gpu.svg)](images/benchmark-gpu.png)" in text
    assert "prefers-color-scheme: dark" in (tmp_path / "images" / "benchmark-gpu.svg").read_text("utf-8")
