"""The benchmark of steps, on a CPU and with small photos."""

import copy
import json

import pytest

torch = pytest.importorskip("torch", reason='the training sample needs torch (pip install "pytrtplugins[train]")')

from benchmarks.training import parts, step_rows, steps, subject  # noqa: E402
from training.ranks import Ranks  # noqa: E402

TINY = ["--device", "cpu", "--networks", "compact", "--batch", "2", "--input", "64", "--seconds", "0.05"]
FIRST = "FP32, NCHW"


def test_the_batch_norm_of_separate_operations_is_batch_norm():
    torch.manual_seed(0)
    fused = torch.nn.Sequential(torch.nn.BatchNorm2d(5, momentum=0.03))
    torch.nn.init.uniform_(fused[0].weight)
    torch.nn.init.uniform_(fused[0].bias)
    separate = copy.deepcopy(fused)
    step_rows.separate_batch_norm(separate)
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
    monkeypatch.setattr(parts, "launches_of", lambda *_: {"augment": 2.0})
    assert steps.main([*TINY, "--docs", str(tmp_path / "docs"), "--json", str(tmp_path / "record.json")]) == 0
    first, other = json.loads((tmp_path / "record.json").read_text())["rows"]
    assert (first["rate"], first["step_ms"], first["reason"]) == (10.0, 200.0, "")
    assert other["rate"] == 0
    assert "differ from those of FP32 by 1" in other["reason"]
    page = (tmp_path / "docs" / "training_benchmarks.md").read_text()
    assert f"| compact | {FIRST} | 2 | 10 | 200.00 | augment 1.25, forward 2.50 |" in page
    assert "| `all` | 3.500 | 7 |" in page
    assert "- compact, other: ValueError: its first losses differ" in page


class Loop:
    def advance(self):
        pass

    def check(self):
        pass


def test_rows_have_names_of_their_own_and_batches():
    rows = step_rows.subjects()
    assert len({row.name for row in rows}) == len(rows)
    assert rows[0].name == step_rows.BEST
    assert {row.batch for row in rows} == {0, *step_rows.BATCHES}


def test_rows_are_compiled_ahead_some_at_a_time(tmp_path, monkeypatch):
    """Each in a process that does a step of this row; those that the compiler has no part in are not."""
    lines, ended = [], []

    class Process:
        def __init__(self, line, **_):
            lines.append(line[line.index("--compile-row") + 1 :][:3])

        def wait(self, _):
            return 0

    compiled = {"compile": True}
    rows = [steps.Subject(name, settings) for name, settings in (("a", compiled), ("b", {}), ("c", compiled))]
    monkeypatch.setattr(steps, "subjects", lambda: rows)
    monkeypatch.setattr(steps.subprocess, "Popen", Process)
    monkeypatch.setattr(steps, "end", lambda running: ended.append(len(running)))
    monkeypatch.setattr(steps, "forget_choices", lambda: None)
    monkeypatch.setattr(steps, "_measure", lambda *_: None)
    monkeypatch.setattr(subject, "first_losses", lambda *_: [1.0] * 9)
    monkeypatch.setattr(subject, "make_loop", lambda *_, **__: Loop())
    given = steps._parse([*TINY, "--ahead", "2", "--docs", str(tmp_path / "docs")])
    assert [row.name for row in steps._rows(given, torch.device("cpu"))] == ["a", "b", "c"]
    assert lines == [["a", "--networks", "compact"], ["c", "--networks", "compact"]]
    assert ended == [1, 1]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_row_is_compiled_by_one_step_of_each_size(monkeypatch):
    sizes, make = [], subject.make_loop
    rows = [steps.Subject("a", {"precision": "bf16", "cuda_graphs": True}, sizes=(-32, 0))]

    def noted(network, batch, found, *rest, **given):
        sizes.append((network, batch, *found))
        return make(network, batch, found, *rest, **given)

    monkeypatch.setattr(steps, "subjects", lambda: rows)
    monkeypatch.setattr(subject, "make_loop", noted)
    assert steps.main([*TINY, "--compile-row", "a"]) == 0
    assert sizes == [("compact", 2, 32), ("compact", 2, 64)]
