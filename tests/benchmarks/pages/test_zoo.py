"""The zoo's page of a made-up record."""

import pytest

from benchmarks.pages import zoo
from benchmarks.pages.runners import NAME, ONNXRUNTIME, TORCH_COMPILED, TORCH_GRAPH, TORCH_TUNED

pytest.importorskip("matplotlib")


def bench(network, batch=1, runner=NAME, precision="FP16", what="FP16", **facts):
    known = {"kind": "zoo", "network": network, "batch": batch, "runner": runner, "precision": precision, **facts}
    return {"row": f"zoo {what}, {network}, batch-{batch}", **known}


def ours(network, speed, batch=1, **facts):
    known = {
        "us": 100.0, "peer": TORCH_GRAPH, "peer_us": 100.0 * speed, "speed": speed, "kernels": 30, "steps": 32, "bytes": 2_500_000,
        "arrays": {"Where": 1, "Gather": 2}, "outside": {}, "build_s": 12.34, "again_s": 1.26, "error_fp32": 2e-6, "error": 1e-3,
    }  # fmt: skip
    return bench(network, batch, **{**known, **facts})


@pytest.fixture
def record():
    gpu = {
        "gpu": "NVIDIA H200", "driver_version": "580.1", "cuda": "13.0", "cudnn": "91900", "cudnn-frontend": "1.15.0",
        "versions": {"torch": "2.11.0"}, "processor": "a Xeon", "clocks.sm": "1980 MHz", "clocks.max.sm": "1980 MHz",
        "clocks.mem": "3201 MHz", "power.limit": "700 W", "ceilings": {"FP16 TOP/s": 700.0},
    }  # fmt: skip
    return {
        "gpu": gpu,
        "left_out": [
            "zoo FP16, bert_base, batch-1: could not import 'transformers'",
            "zoo FP16, vgg16, batch-1: ValueError: no kernel",
        ],
        "subject": "zoo",
        "python": "3.12.3",
        "date": "2026-11-22",
        "note": "",
        "rows": [
            ours("resnet18", 2.0),
            ours("vit_b_16", 0.8),
            bench("vgg16", failure="ValueError: no kernel", error_fp32=3e-6),
            bench("resnet18", precision="INT8", what="INT8", us=50.0, speed=2.0, error=0.05),
            bench("resnet18", runner=TORCH_TUNED, what="max-autotune", us=180.0, speed=1.8),
            bench("vit_b_16", runner=TORCH_TUNED, what="max-autotune", us=125.0, speed=1.25),
            bench("resnet18", runner=TORCH_COMPILED, what="compile", us=140.0, speed=1.4),
            bench("vit_b_16", runner=ONNXRUNTIME, what="onnxruntime", failure="Fail: no graph"),
            ours("resnet18", 1.1, 8),
        ],
    }


def section(record):
    record["rows"] = [{"date": record["date"], **row} for row in record["rows"]]
    return list(zoo.zoo("zoo", record))


def line(text, begin):
    (found,) = (each for each in text.splitlines() if each.startswith(begin))
    return found


def test_a_row_has_the_speed_against_each_peer_and_what_is_outside_of_the_fast_paths(record):
    found = zoo.entries(record["rows"])
    text = zoo.table([entry for entry in found if entry.batch == 1])
    assert line(text, "| resnet18 |") == (
        "| resnet18 | 100.0 | 200.0 | 2.00 | 140.0 | 1.40 | 180.0 | 1.80 | 50.0 | 100.0 | 2.00 | 30 | 32 | 3: 2 Gather, 1 Where | 0 | 2.5 "
        "| 12.3, 1.3 | 2e-06, 1e-03, 5e-02 |"
    )
    slower = line(text, "| vit_b_16 |")
    assert "| 80.0 | **0.80** | – | – | 125.0 | 1.25 | – | – | – |" in slower
    assert line(text, "| vgg16 |").endswith(
        "| – | – | – | – | – | – | – | – | – | – | – | – | – | – | – | –, – | 3e-06, –, – |"
    )


def test_means_are_geometric(record):
    text = zoo.table([entry for entry in zoo.entries(record["rows"]) if entry.batch == 1])
    assert line(text, "| geometric mean |").startswith(
        "| geometric mean |  |  | 1.26 |  | 1.40 |  | 1.50 |  |  | 2.00 |"
    )
    assert zoo.mean([]) is None


def test_goals_name_the_networks_that_miss_them(record):
    text = zoo.goals_table(zoo.entries(record["rows"]))
    assert line(text, "| FP16, batch 1, networks").endswith("| 3 | 1 | missed: vit_b_16, vgg16 |")
    assert line(text, "| FP16, batch 8, networks").endswith("| 1 | 1 | met |")
    tuned = line(text, f"| FP16, batch 1, times the speed of {TORCH_TUNED}")
    assert tuned.endswith("| 1.5 x | 1.50 | met on the 2 of 3 networks that were measured with it |")
    compiled = line(text, f"| FP16, batch 1, times the speed of {TORCH_COMPILED}")
    assert compiled.endswith("| 1.5 x | 1.40 | missed on the 1 of 3 networks that were measured with it |")
    assert line(text, "| INT8, batch 1, networks").endswith("| 1 | 1 | met |")
    assert line(text, "| INT8, batch 8, networks").endswith("| all | – | not measured |")
    alone = zoo.goals_table(zoo.entries([ours("resnet18", 2.0)]))
    for peer in (TORCH_COMPILED, TORCH_TUNED):
        assert line(alone, f"| FP16, batch 1, times the speed of {peer}").endswith("| – | not measured |")


def test_goals_name_the_networks_that_take_long_or_are_wrong():
    rows = [ours("bert", 2.0, again_s=3.4), ours("unet", 2.0, build_s=91.0), ours("vgg16", 2.0, 8, error=0.02)]
    text = zoo.goals_table(zoo.entries(rows))
    assert line(text, "| FP16, all batches, networks whose build from").endswith(", at most 3 | 3 | 2 | missed: bert |")
    assert line(text, "| FP16, all batches, networks whose first").endswith(", at most 90 | 3 | 2 | missed: unet |")
    assert line(text, "| FP16, all batches, networks whose error").endswith("| 3 | 2 | missed: vgg16 with batch 8 |")


def test_int8_that_is_slower_than_fp16_is_named():
    rows = [ours("vgg16", 2.0), bench("vgg16", precision="INT8", us=101.0)]
    text = zoo.goals_table(zoo.entries(rows))
    assert line(text, "| INT8, batch 1, networks").endswith("| 1 | 0 | missed: vgg16 |")


def test_int8_is_compared_with_the_fp16_of_its_own_run():
    """The row of FP16 may be of another day."""
    rows = [ours("vgg16", 2.0), bench("vgg16", precision="INT8", us=95.0, peer_us=94.0)]
    found = zoo.entries(rows)
    assert line(zoo.goals_table(found), "| INT8, batch 1, networks").endswith("| 1 | 0 | missed: vgg16 |")
    assert "| 95.0 | 94.0 | 0.99 |" in line(zoo.table(found), "| vgg16 |")


def test_a_section_has_a_table_and_a_chart_for_each_batch_and_what_failed(record, tmp_path):
    blocks = section(record)
    text = "\n\n".join(block if isinstance(block, str) else block.link for block in blocks)
    assert text.count("NVIDIA H200") == 1
    assert text.index("### Batch 1") < text.index("### Batch 8")
    failed = [
        f"- vit_b_16, batch 1, {ONNXRUNTIME}, FP16: Fail: no graph",
        f"- vgg16, batch 1, {NAME}, FP16: ValueError: no kernel",
    ]
    assert "\n".join(["Failed:", "", *failed]) in text
    assert "Left out:\n\n- zoo FP16, bert_base" in text
    for batch, name in ((1, "benchmark-zoo"), (8, "benchmark-zoo-8")):
        link = f"[![times the speed of each peer, batch {batch}](images/{name}.svg)](images/{name}.png)"
        assert text.index(f"### Batch {batch}\n") < text.index(link)
    for chart in (block for block in blocks if not isinstance(block, str)):
        chart.save(tmp_path)
        assert chart.missing_labels(tmp_path) == []


def test_records_that_do_not_have_fp16_beside_int8_have_no_such_column(record):
    assert "FP16 beside it" not in "".join(block for block in section(record) if isinstance(block, str))
    record["rows"].append(bench("vgg16", precision="INT8", us=95.0, peer_us=94.0))
    assert "| 95.0 | 94.0 | 0.99 |" in "".join(block for block in section(record) if isinstance(block, str))
