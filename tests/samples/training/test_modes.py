"""Ranks together compute what one process computes, in float64 over gloo; and a run of N ranks continues on M."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytrtplugins.errors import UsageError
from tests.samples.needs_torch import WITHOUT_RANKS, torch
from tests.samples.training.toy import ADAM, SGD, STEPS, advance, difference, make, rows_of, state
from training.ranks import Ranks
from training.settings import Settings

distributed = torch.distributed
ROOT = Path(__file__).parents[3]
SAME = {"replicated", "parameter_server", "distributed_replicated", "accumulated", "sharded accumulated"}
STAGED = {"staged", "staged and sharded", "staged accumulated"}
pytestmark = WITHOUT_RANKS


@pytest.fixture
def one_rank() -> Iterator[Ranks]:
    """A process group of this process alone: the wrappers are those of several."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield Ranks(0, 1, torch.device("cpu"), True)
    distributed.destroy_process_group()


@pytest.mark.parametrize("optimizer", [SGD, ADAM], ids=["sgd", "adam"])
def test_every_mode_of_one_rank_is_the_plain_loop(one_rank, optimizer):
    plain = state(advance(make(optimizer=optimizer), STEPS))
    for mode in ("independent", "replicated", "parameter_server", "distributed_replicated"):
        assert difference(state(advance(make(one_rank, optimizer, variable_update=mode), STEPS)), plain) == 0, mode


def test_a_batch_in_parts_is_the_whole_batch():
    parts = state(advance(make(accumulate=4), STEPS))
    assert difference(parts, state(advance(make(), STEPS))) < 1e-14


@pytest.mark.parametrize(
    ("option", "late", "received"),
    [
        ("staged_vars", 1, lambda gradient: gradient),
        ("compact_gradient_transfer", 0, lambda gradient: gradient.bfloat16().double()),
    ],
)
def test_a_step_goes_along_the_gradients_that_the_option_says(one_rank, option, late, received):
    """Without momentum. Staged gradients are those of the step before: the first step changes nothing. Compact ones are rounded."""
    loop = make(one_rank, (torch.optim.SGD, {}), **{option: True})
    before = [p.detach().clone() for p in loop.task.module.parameters()]
    for group in loop.optimizer.param_groups:
        group["weight_decay"] = 0.0
    advance(loop, late)
    assert all(torch.equal(a, b) for a, b in zip(before, loop.task.module.parameters(), strict=True))
    first = rows_of(0)
    loss = loop.task.module(first[:, :5], first[:, 5:])[0]
    wanted = torch.autograd.grad(loss, list(loop.task.module.parameters()))
    assert late or any((received(gradient) != gradient).any() for gradient in wanted)
    rate = loop.schedule.rate(late)
    loop.advance()
    for old, gradient, new in zip(before, wanted, loop.task.module.parameters(), strict=True):
        torch.testing.assert_close(new.detach(), old - rate * received(gradient), rtol=0, atol=1e-12)


def run_ranks(world: int, folder: Path, *more: str) -> dict[str, float]:
    """Run ``worker.py`` in several processes; the largest difference of each check."""
    surroundings = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    line = [sys.executable, "-m", "tests.samples.training.worker"]
    ranks = [
        subprocess.Popen([*line, str(rank), str(world), str(folder), *more], env=surroundings, cwd=ROOT)
        for rank in range(world)
    ]
    try:
        assert [process.wait(240) for process in ranks] == [0] * world
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    return json.loads((folder / f"found-{world}.json").read_text())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ranks_compute_what_one_process_computes_and_continue_each_others_runs(tmp_path):
    two = run_ranks(2, tmp_path)
    four = run_ranks(4, tmp_path, "2")
    for found, world in ((two, 2), (four, 4)):
        assert found["per rank"] == found["per rank, few"] == 0, world
        for name in ("sgd", "adam"):
            for mode in SAME:
                assert found[f"{name} {mode}"] < 5e-15, (world, name, mode)
            for mode in STAGED:
                assert found[f"{name} {mode}"] < 1e-8, (world, name, mode)
            assert found[f"{name} independent"] > 1e-2, (world, name)
            for mode in SAME:
                assert found[f"{name} {mode} figures"] < 1e-5, (world, name, mode)  # of the whole batch, in float32
            assert found[f"{name} independent figures of ranks"] > 1e-4, (world, name)
            assert found[f"{name} replicated figures of ranks"] == 0, (world, name)
            assert 1e-6 < found[f"{name} compact"] < 1e-2, (world, name)  # gradients of three digits
            assert found[f"{name} replicated and distributed_replicated"] == 0
            for mode in (*SAME, *STAGED, "compact", "independent"):
                assert found[f"{name} {mode} resumed"] == 0, (world, name, mode)
    for name in ("sgd", "adam"):
        for mode in SAME:
            assert four[f"{name} {mode} of 2 ranks"] < 5e-15, (name, mode)
        for mode in STAGED:
            assert four[f"{name} {mode} of 2 ranks"] < 1e-8, (name, mode)


CONTRADICTIONS = [
    ("cpu", 1, False, {"precision": "tf32"}, "tensor cores"),
    ("cpu", 1, False, {"cuda_graphs": True}, "without a GPU"),
    ("cuda", 2, True, {"cuda_graphs": True, "variable_update": "parameter_server"}, "a process group of 2"),
    ("cuda", 1, True, {"cuda_graphs": True, "accumulate": 2}, "a process group of 1"),
    ("cuda", 2, True, {"cuda_graphs": True, "deterministic": True}, "--deterministic in a process group"),
    ("cuda", 2, True, {"cuda_graphs": True, "staged_vars": True}, "--staged_vars in a process group"),
    ("cuda", 2, True, {"cuda_graphs": True, "sync_bn": True}, "--sync_bn in a process group"),
    ("cuda", 2, True, {"cuda_graphs": True, "all_reduce_spec": "gloo"}, "--all_reduce_spec gloo in a"),
    ("cuda", 2, True, {"staged_vars": True, "variable_update": "parameter_server"}, "parameter_server"),
    ("cuda", 2, True, {"staged_vars": True, "variable_update": "independent"}, "independent"),
    ("cuda", 1, False, {"staged_vars": True}, "without torchrun"),
    ("cuda", 1, False, {"compact_gradient_transfer": True}, "without torchrun"),
    ("cuda", 2, True, {"compact_gradient_transfer": True, "variable_update": "parameter_server"}, "parameter_server"),
    ("cuda", 2, True, {"compact_gradient_transfer": True, "staged_vars": True}, "one hook"),
    ("cuda", 2, True, {"staged_vars": True, "precision": "fp16"}, "loss scale"),
    ("cpu", 2, True, {"sync_bn": True}, "GPUs only"),
    ("cuda", 2, True, {"sync_bn": True, "variable_update": "independent"}, "exchange nothing"),
    ("cpu", 2, True, {"all_reduce_spec": "nccl/ring"}, "NCCL needs GPUs"),
    ("cuda", 1, False, {"compile": True, "deterministic": True}, "timing"),
]


@pytest.mark.parametrize(("device", "world", "joined", "given", "why"), CONTRADICTIONS)
def test_what_cannot_work_is_refused_with_the_reason(device, world, joined, given, why):
    with pytest.raises(UsageError, match=why) as caught:
        Settings(**given).check(device, world, joined=joined)
    assert "\nDo: " in str(caught.value)


def test_each_setting_alone_is_taken():
    for settings in (
        Settings(precision="bf16"),
        Settings(compile=True),
        Settings(deterministic=True),
        Settings(accumulate=2),
    ):
        settings.check("cpu", 1, joined=False)
    Settings(precision="fp16", cuda_graphs=True, compile=True).check("cuda", 1, joined=False)
    for mode in ("independent", "replicated"):
        Settings(variable_update=mode, cuda_graphs=True, precision="fp16", compile=True).check("cuda", 2, joined=True)
    Settings(compact_gradient_transfer=True, cuda_graphs=True).check("cuda", 2, joined=True)
    for mode in ("replicated", "distributed_replicated"):
        Settings(variable_update=mode, staged_vars=True, sync_bn=True).check("cuda", 2, joined=True)
