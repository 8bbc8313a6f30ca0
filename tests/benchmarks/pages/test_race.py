"""The race's tables of a made-up record."""

import pytest

from benchmarks.pages import race as report
from benchmarks.pages.table import table

pytest.importorskip("matplotlib")


DAY = "2026-11-21"


def row(runner, precision, batch, gpu, host, kernels=27, pinned=False):
    return {
        "row": f"{runner}, {precision}{', pinned' * pinned}, batch-{batch}", "kind": "race", "runner": runner, "precision": precision,
        "batch": batch, "pinned": pinned, "error": 1.25e-3, "gpu_us": gpu, "gpu_least_us": gpu and gpu - 2,
        "sustained_us": (gpu and batch > 1 and gpu * 1.1) or None, "kernels": kernels, "bytes": 5_000_000,
        "operations": 29_360_334_848 * batch, "moved": 140_000_000, "host_us": host, "host_least_us": host - 5, "date": DAY,
    }  # fmt: skip


def step(name, ratio, without_kernels=28):
    return {
        "row": f"{name}-YOLOv2-fp16", "kind": "step", "step": name, "network": "YOLOv2", "precision": "FP16", "gpu_us": 200.0,
        "without_us": 200 * ratio, "kernels": 27, "without_kernels": without_kernels, "bytes": 4_000_000, "without_bytes": 16_000_000,
        "date": DAY,
    }  # fmt: skip


def image(precision, network, host):
    return {
        "row": f"{precision.lower()}-768x576-ordinary", "kind": "image", "precision": precision, "size": [768, 576], "pinned": False,
        "boxes": 12, "network_us": network, "launch_us": host - 60, "darknet_us": 4000.0, "over_predict": 6.04, "host_us": host,
        "host_least_us": host - 5, "date": DAY,
    }  # fmt: skip


def files(decode, batch, seconds, decoding):
    return {
        "row": f"{batch}-{decode}", "kind": "files", "precision": "FP16", "decode": decode, "batch": batch, "size": [768, 576],
        "images": 2000, "threads": 16, "bytes": 151_600, "decoding_us": 1e6 * decoding, "host_us": 1e6 * seconds, "date": DAY,
    }  # fmt: skip


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
        "subject": "race",
        "left_out": ["onnxruntime, CUDA, TF32, batch-1: no CUDA provider"],
        "python": "3.12.3",
        "date": DAY,
        "note": "",
        "rows": [
            row("pytrtplugins", "FP16", 1, 200.0, 400.0),
            row("pytrtplugins", "INT8", 1, 130.0, 320.0),
            row("darknet", "TF32", 1, None, 2000.0, kernels=None),
            row("pytrtplugins", "FP16", 8, 600.0, 900.0),
            row("PyTorch, CUDA graph", "FP16", 8, 1400.0, 1900.0),
            row("pytrtplugins", "FP16", 1, None, 240.0, pinned=True),
            row("darknet", "TF32", 1, None, 1800.0, kernels=None, pinned=True),
            image("FP16", 190.0, 330.0),
            files("gpu", 32, 0.2, 0.18),
            files("cpu", 32, 1.0, 0.8),
            step("reuse", 1.01),
            step("graph", 2.2, without_kernels=None),
        ],
    }


def table_of(record, head):
    (found,) = (
        block for block in report.race("gpu", record) if isinstance(block, str) and block.startswith(f"| {head} |")
    )
    return found


def race_table(record):
    return table(report._race_columns(record["gpu"]["ceilings"]), report.race_rows(report.rows(record)))


def test_rows_go_by_batch_the_slowest_first(record):
    found = [(each["runner"], each["precision"], each["batch"]) for each in report.race_rows(report.rows(record))]
    assert found == [
        ("darknet", "TF32", 1),
        ("pytrtplugins", "FP16", 1),
        ("pytrtplugins", "INT8", 1),
        ("PyTorch, CUDA graph", "FP16", 8),
        ("pytrtplugins", "FP16", 8),
    ]


def test_ratios_are_quotients_of_the_tables_medians(record):
    speeds = {
        (each["precision"], each["batch"]): each["over_darknet"] for each in report.race_rows(report.rows(record))
    }
    pinned = {each["precision"]: each["over_darknet"] for each in report.race_rows(report.rows(record), pinned=True)}
    ours = {(each["runner"], each["precision"], each["batch"]): each for each in report.race_rows(report.rows(record))}
    assert speeds["INT8", 1] == pytest.approx(2000 / 320)
    assert speeds["FP16", 8] is None  # darknet did not run there
    assert pinned["FP16"] == pytest.approx(1800 / 240)  # darknet from such arrays too
    assert ours["pytrtplugins", "INT8", 1]["gpu_ratio"] == pytest.approx(130 / 200)
    assert ours["pytrtplugins", "INT8", 1]["host_ratio"] == pytest.approx(320 / 400)
    assert ours["PyTorch, CUDA graph", "FP16", 8]["gpu_ratio"] == pytest.approx(1400 / 600)  # of the same batch
    assert ours["darknet", "TF32", 1]["gpu_ratio"] is None  # it was not timed on the GPU
    assert report.race_rows(report.rows(record), pinned=True)[1]["host_ratio"] == pytest.approx(
        240 / 400
    )  # ours from ordinary arrays


def test_without_our_fp16_there_is_no_ratio(record):
    record["rows"] = [record["rows"][1]]
    (found,) = report.race_rows(report.rows(record))
    assert found["gpu_ratio"] is found["host_ratio"] is found["over_darknet"] is None
    assert "| – |" in race_table(record)


def test_floors_come_from_the_measured_ceilings(record):
    line = next(line for line in race_table(record).splitlines() if "| 1 | pytrtplugins | FP16 |" in line)
    assert "| 42, 35, 19 |" in line  # 29.36 GFLOP at 700 TFLOP/s, 140 MB at 4 TB/s, 27 launches of 0.7 µs


def test_what_was_not_measured_is_a_dash(record):
    line = next(line for line in race_table(record).splitlines() if "darknet | TF32" in line)
    assert line.startswith("| 1 | darknet | TF32 | – | – | – | 2,000 (1,995) | 5.00 | 1.0 | 84, 35, – | – |")


def test_an_images_row_says_what_the_network_is_not(record):
    found = table_of(record, "one image to boxes")
    assert "| FP16, 768 x 576, 12 boxes | 190 | 330 (325) | 270 | 140 | 4,000 | 12.1 | 6.0 |" in found


def test_files_are_read_so_many_a_second(record):
    assert table_of(record, "JPEG files to boxes").splitlines()[2:] == [
        "| FP16, 768 x 576, 152 kB | 16 threads | 32 | 2,000 | 2,500 | 80% |",
        "| FP16, 768 x 576, 152 kB | the GPU | 32 | 10,000 | 11,111 | 90% |",
    ]


def test_steps_with_the_largest_effect_come_first(record):
    lines = table_of(record, "step").splitlines()[2:]
    assert [line.split("`")[1] for line in lines] == ["graph", "reuse"]
    assert "| 2.20 | 27 | – | 4.0 | 16.0 |" in lines[0]


def test_the_machine_is_named_with_versions_clocks_and_ceilings(record):
    text = report.gpu_text(record)
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


def test_floors_are_work_over_ceilings():
    ceilings = {"FP16 TOP/s": 500.0, "copy GB/s": 2000.0, "launch µs": 0.5}
    assert report.floors(10**12, 4 * 10**9, "FP16", ceilings, 30) == pytest.approx((2000.0, 2000.0, 15.0))
    assert report.floors(10**12, 4 * 10**9, "FP16", ceilings, None)[2] is None


def test_all_tables_stand_in_the_section_with_goals_what_was_left_out_and_what_is_older(record):
    record["rows"][1]["date"] = "2026-11-20"
    blocks = list(report.race("gpu", record))
    text = "\n\n".join(block if isinstance(block, str) else block.link for block in blocks)
    assert "| 1 | pytrtplugins | FP16 | 240 (235) | 0.60 | 7.5 |" in text
    assert "| FP16, batch 1, on the GPU | 150 µs | 200.0 | missed |" in text
    assert "Left out:\n\n- onnxruntime" in text
    assert text.endswith("Rows of earlier days:\n\n- 2026-11-20: pytrtplugins, INT8, batch-1")
    assert "[![latency](images/benchmark-gpu.svg)](images/benchmark-gpu.png)" in text


def test_the_chart_has_what_its_rows_say(record, tmp_path):
    (chart,) = (block for block in report.race("gpu", record) if not isinstance(block, str))
    chart.save(tmp_path)
    assert (tmp_path / "images" / "benchmark-gpu.png").stat().st_size > 10_000
    assert "prefers-color-scheme: dark" in (tmp_path / "images" / "benchmark-gpu.svg").read_text("utf-8")
    assert chart.missing_labels(tmp_path) == []
    record["rows"][0]["host_us"] = 401.0
    (other,) = (block for block in report.race("gpu", record) if not isinstance(block, str))
    assert other.missing_labels(tmp_path) == [" 200 on the GPU, 401 host to host"]
