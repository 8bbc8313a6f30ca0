"""The operators' page of a made-up record."""

import pytest

from benchmarks.gpu.records import keep
from benchmarks.pages import operators
from benchmarks.pages.chart import Chart
from benchmarks.pages.results import read_result
from tests.benchmarks.gpu.test_records import save
from tests.benchmarks.pages.test_zoo import record as zoo_record  # noqa: F401 - a fixture

pytest.importorskip("matplotlib")


def timed(operator, us, peer_us, **facts):
    known = {
        "kind": "operator",
        "operator": operator,
        "form": "last axis",
        "size": "8x9",
        "precision": "FP16",
        "us": us,
        "peer_us": peer_us,
    }
    more = {
        "arrays": {},
        "outside": {},
        "steps": 1,
        "peer_kernels": 2,
        "build_s": 1.25,
        "error": 1e-4,
        "peer_error": 2e-4,
    }
    return {"row": f"operator FP16, {operator}, last axis, 8x9", "date": "2026-11-22", **known, **more, **facts}


@pytest.fixture
def record(zoo_record):  # noqa: F811
    rows = [
        timed("Softmax", 5.0, 10.0),
        timed("Resize", 24.0, 20.0),
        timed("Conv", 24.5, 20.0),
        timed("Gather", 33.0, 19.0, arrays={"Gather": 1}),
        timed("TopK", 32.7, 19.0, outside={"TopK": 1}),
        {**timed("LSTM", 1.0, 1.0), "failure": "ValueError: no kernel"},
    ]
    rows[-1] = {name: value for name, value in rows[-1].items() if name not in ("us", "peer_us")}
    left = ["operator FP32, LSTM, forward, 8x9: the limit of 9 s was reached", "zoo FP16, vgg16, batch-1: no kernel"]
    return {**zoo_record, "subject": "operators", "rows": rows, "left_out": left[:1]}


def section(record):
    return list(operators.operators("operators", record))


def test_the_goals_count_the_rows_that_meet_them(record):
    goals = section(record)[1].splitlines()[2:]
    assert [line.rsplit("|", 3)[1:3] for line in goals] == [[" 5 ", f" {met} "] for met in (4, 3, 3, 1)]


def test_the_slowest_beside_its_peer_comes_first_and_what_misses_the_goal_is_bold(record):
    lines = [line.split(" | ") for line in section(record)[2].splitlines()[2:]]
    assert [line[0].strip("| ") for line in lines] == ["Gather", "TopK", "Conv", "Resize", "Softmax"]
    assert [line[6] for line in lines] == ["**1.74**", "1.72", "**1.23**", "1.20", "0.50"]  # 1.2 x 19 + 10 is 32.8
    assert [line[7] for line in lines] == ["array by array", "outside", *["in the graph"] * 3]


def test_torch_compile_has_a_column_and_a_goal_where_it_was_measured(record):
    assert "torch.compile" not in "".join(section(record)[1:3])
    fused = {"peer": "PyTorch, torch.compile"}
    record["rows"] += [timed("Conv", 25.0, 24.0, **fused), timed("Softmax", 5.0, 5.0, **fused)]
    _, goals, rows, *_ = section(record)
    head, _, *lines = [line.strip("| ").split(" | ") for line in rows.splitlines()]
    assert [line[head.index("torch.compile µs")] for line in lines] == ["–", "–", "24.0", "–", "5.0"]
    assert goals.splitlines()[-1].endswith("| 2 | 1 |")


def test_a_row_of_int8_names_the_precision_of_its_peer_and_its_distance_from_its_codes(record):
    head = section(record)[2].splitlines()[0]
    assert "same codes" not in head
    record["rows"].append(timed("Conv", 1.0, 20.0, precision="INT8", peer_precision="FP16", codes_error=2e-4))
    head, _, *lines = [line.strip("| ").split(" | ") for line in section(record)[2].splitlines()]
    assert dict(zip(head, lines[-1], strict=True))["precision"] == "INT8, PyTorch FP16"
    assert [line[head.index("error beside the same codes")] for line in (lines[0], lines[-1])] == ["–", "2e-04"]


def test_the_chart_has_the_slowest_at_the_top_and_failures_are_listed(record, tmp_path):
    blocks = section(record)
    chart = next(block for block in blocks if isinstance(block, Chart))
    chart.save(tmp_path)
    assert chart.missing_labels(tmp_path) == []
    assert chart.labels[-2:] == ["Gather, last axis, 8x9, FP16", "33.0 and 19.0 µs"]
    assert "- LSTM, last axis, 8x9, FP16: ValueError: no kernel" in blocks[4]
    assert "the limit of 9 s was reached" in blocks[5]


def test_a_record_of_operators_has_a_page_of_its_own(record, tmp_path):
    docs = tmp_path / "docs"
    pages = keep([save(tmp_path, record)], "gpu-h100", docs)
    assert [page.name for page in pages] == ["benchmarks-operators.md"]
    kept = read_result("benchmarks-operators", "operators-h100", docs)
    assert (len(kept["rows"]), kept["left_out"]) == (6, record["left_out"])
