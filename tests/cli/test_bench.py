"""``pytrt bench``."""

import json
import re

import numpy as np
import onnx
import pytest

from pytrtplugins.cli.shared import loading
from tests.test_bench import times

FAST = ("--seconds", "0.01", "--rounds", "2")


@pytest.fixture
def net(tmp_path):
    onnx.save(times(2.0, ("n", 4)), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def test_engines_stand_beside_each_other_in_table_record_and_chart(pytrt, net, tmp_path):
    code, out, err = pytrt("bench", net, "--engine", "reference,onnxruntime", "--precision", "fp32,bf16", "--batch", 3,
                           "--plot", "b.png", *FAST)  # fmt: skip
    assert code == 0, err
    for name in ("reference fp32", "onnxruntime fp32"):
        assert re.search(rf"^\s*{name}(\s+\d+\.\d{{3}}){{3}}\s+\d+\.\d\d\s", out, re.MULTILINE), out
    assert re.search(r"onnxruntime bf16\s+engine 'onnxruntime' has no precision 'bf16'", out)
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")


def test_json_has_the_rows_and_where_they_were_measured(pytrt, net):
    code, out, err = pytrt(
        "bench", net, "--engine", "reference", "--precision", "fp32,bf16", "--batch", 3, "--json", *FAST
    )
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert [row["name"] for row in found["result"]["rows"] if row["runs"]] == ["reference fp32", "reference bf16"]
    assert found["result"]["inputs"] == {"x": [3, 4]}
    assert found["result"]["machine"]["processor"]
    assert (found["command"], found["ok"], found["options"]["batch"]) == ("pytrt bench", True, 3)


def test_arrays_are_taken_and_different_outputs_end_with_1(pytrt, net, tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", np.ones((2, 4), np.float32))
    onnx.save(times(3.0, ("n", 4)), other := tmp_path / "other.onnx")
    open_engine = loading.open_engine
    monkeypatch.setattr(
        loading,
        "open_engine",
        lambda path, weights, engine, *given, **options: open_engine(
            path if engine == "reference" else other, weights, engine, *given, **options
        ),
    )
    code, out, _ = pytrt("bench", net, "--engine", "reference,onnxruntime", "--input", "x=x.npy", *FAST)
    assert code == 1
    assert re.search(r"onnxruntime fp32\s+its outputs are not those of reference fp32: 5.0e-01 of their norm off", out)
    assert "x 2 x 4" in out


def test_an_engine_file_stands_alone(pytrt, printed, refused, net):
    assert pytrt("build", net, "--engine", "onnxruntime", "-o", "net.engine")[0] == 0
    assert re.search(r"^\s*net\.engine\s", printed("bench", "net.engine", *FAST), re.MULTILINE)
    err = refused("bench", "net.engine", "--engine", "cpu,onnxruntime")
    assert "is built already, for one engine in one precision" in err


@pytest.mark.parametrize("words", [("--engine", "cpu,,reference"), ("--precision", "fp32,"), ("--precision", "fp31")])
def test_lists_that_are_none_are_refused(refused, net, words):
    assert f"{words[0]} {words[1]}: expected" in refused("bench", net, *words)


def test_files_to_write_are_checked_first(pytrt, net):
    for path in ("a.gif", "missing/a.png"):
        code, out, _ = pytrt("bench", net, "--plot", path)
        assert (code, out) == (2, "")
