"""The benchmarks of steps and modes, on a CPU and with small photos."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason='the training sample needs torch (pip install "pytrtplugins[train]")')

from benchmarks.training import modes, parts, steps, subject  # noqa: E402
from training.ranks import Ranks  # noqa: E402

TINY = ["--device", "cpu", "--networks", "compact", "--batch", "2", "--input", "64", "--seconds", "0.05"]
FIRST = "FP32, NCHW"


def test_the_batch_norm_of_separate_operations_is_batch_norm():
    torch.manual_seed(0)
    fused = torch.nn.Sequential(torch.nn.BatchNorm2d(5, momentum=0.03))
    torch.nn.init.uniform_(fused[0].weight)
    torch.nn.init.uniform_(fused[0].bias)
    separate = copy.deepcopy(fused)
    steps.separate_batch_norm(separate)
    assert type(separate[0]) is not type(fused[0])
    x = torch.randn(4, 5, 3, 3) * 2 + 1
    found = []
    for module in (fused, separate):
        leaf = x.clone().requires_grad_()
        out = module(leaf)
        (out * torch.linspace(0, 1, out.numel()).view_as(out)).sum().backward()
        found.append([out, leaf.grad, module[0].weight.grad, module[0].running_mean, module[0].running_var])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_losses_of_first_steps_are_the_same_each_time_and_follow_the_settings():
    def losses(**settings):
        loop = subject.make_loop("compact", 2, [64], Ranks(0, 1, torch.device("cpu"), False), **settings)
        return subject.first_losses(loop, loop.advance)

    first = losses(data_format="NCHW")
    assert len(first) == 9
    assert subject.largest_difference(losses(data_format="NCHW"), first) == 0
    assert subject.largest_difference(losses(data_format="NHWC"), first) < 1e-2
    assert subject.largest_difference([0.0, *first[1:]], first) == 1


def test_rows_whose_losses_differ_are_not_timed(tmp_path, monkeypatch):
    wrong = iter([[1.0] * 9, [1.0] * 9, [2.0] * 9])  # of FP32, and of the rows
    monkeypatch.setattr(steps, "subjects", lambda: [steps.Subject(FIRST, {}), steps.Subject("other", {})])
    monkeypatch.setattr(subject, "first_losses", lambda *_: next(wrong))
    monkeypatch.setattr(subject, "timed", lambda *_: (10, 2.0))
    monkeypatch.setattr(subject, "make_loop", lambda *_, **__: Loop())
    monkeypatch.setattr(parts, "parts_of", lambda *_: {"augment": 1.25, "forward": 2.5})
    monkeypatch.setattr(parts, "kernels_of", lambda *_: [("all", 3.5, 7.0)])
    assert steps.main([*TINY, "--docs", str(tmp_path), "--json", str(tmp_path / "record.json")]) == 0
    first, other = json.loads((tmp_path / "record.json").read_text())["rows"]
    assert (first["rate"], first["step_ms"], first["reason"]) == (10.0, 200.0, "")
    assert other["rate"] == 0
    assert "differ from those of FP32 by 1" in other["reason"]
    page = (tmp_path / "training.md").read_text()
    assert f"| compact | {FIRST} | 10 | 200.00 | augment 1.25, forward 2.50 |" in page
    assert "| `all` | 3.500 | 7 |" in page
    assert "- compact, other: ValueError: its first losses differ" in page


class Loop:
    def advance(self):
        pass

    def check(self):
        pass


def test_modes_are_compared_with_replicated_and_with_one_rank(tmp_path, monkeypatch):
    rates = {("replicated", 1): 100.0, ("replicated", 2): 190.0, ("independent", 2): 200.0}

    def launch(_, network, mode, ranks):
        if mode == "parameter_server":
            raise RuntimeError("no such mode here")
        losses = [1.0] * 3 + [3.0 if mode in modes.OTHERWISE else 1.0] * 6
        if mode == "distributed_replicated":
            losses[5] = 2.0
        return {"rate": rates.get((mode, ranks), 150.0), "step_ms": 1.0, "memory_gb": 0.0, "losses": losses}

    monkeypatch.setattr(modes, "_launch", launch)
    assert modes.main([*TINY, "--docs", str(tmp_path), "--json", str(tmp_path / "record.json")]) == 0
    rows = {(row["name"], row["ranks"]): row for row in json.loads((tmp_path / "record.json").read_text())["rows"]}
    assert rows["replicated", 2]["scaling"] == 1.9
    assert rows["independent", 2]["scaling"] == 2.0
    assert rows["replicated, staged", 2]["reason"] == ""
    assert "differ from those of replicated by 1" in rows["distributed_replicated", 2]["reason"]
    assert rows["parameter_server", 2]["reason"] == "RuntimeError: no such mode here"
    assert "| compact | replicated | 2 | 190 | 1.900 |" in (tmp_path / "training.md").read_text()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_mode_runs_under_torchrun(tmp_path: Path):
    assert modes.main([*TINY, "--docs", str(tmp_path), "--json", str(tmp_path / "record.json")]) == 0
    rows = json.loads((tmp_path / "record.json").read_text())["rows"]
    assert [row["name"] for row in rows] == ["one rank", *modes.MODES]
    assert [row["reason"] for row in rows] == [""] * 6
    assert all(row["rate"] > 0 for row in rows)
    synchronous = [row for row in rows if row["name"] in ("parameter_server", "distributed_replicated")]
    assert all(row["difference"] < 1e-3 for row in synchronous)
