"""Which device a process of a run takes."""

from __future__ import annotations

import pytest

from pytrtplugins.errors import UsageError
from tests.samples.needs_torch import torch
from training.ranks import device_of, exchange, is_restarted, join
from training.settings import Settings


@pytest.mark.parametrize(("given", "number"), [("cuda", 0), ("cuda:0", 0), ("cuda:3", 3)])
def test_a_process_alone_takes_the_gpu_that_it_is_told_or_the_first(monkeypatch, given: str, number: int) -> None:
    """PyTorch's own set_device looks at the device, and only the driver's call behind it is replaced."""
    taken: list[int] = []
    monkeypatch.setattr(torch._C, "_cuda_setDevice", taken.append, raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    ranks = join(given, Settings())
    assert (ranks.rank, ranks.world, ranks.joined) == (0, 1, False)
    assert ranks.device == torch.device("cuda", number)
    assert taken == [number]


@pytest.mark.parametrize(
    ("given", "count", "least", "why", "cure"),
    [
        ("cuda", 0, 1, "it needs 1 GPU with CUDA; PyTorch sees 0 here", "give --device cpu; or"),
        ("cuda:0", 0, 1, "it needs 1 GPU", "give --device cpu; or"),
        (
            "cuda:2",
            2,
            1,
            "it needs 3 GPUs with CUDA; PyTorch sees 2 here",
            "give --gpus 2 or fewer, or a smaller number",
        ),
        ("cuda", 2, 4, "it needs 4 GPUs with CUDA; PyTorch sees 2 here", "give --gpus 2 or fewer, or a smaller number"),
        ("mps", 2, 1, "expected cpu, cuda, or", "give one of them"),
        ("", 2, 1, "expected cpu, cuda, or", "give one of them"),
        ("cuda:", 2, 1, "expected cpu, cuda, or", "give one of them"),
        ("cuda:-1", 2, 1, "expected cpu, cuda, or", "give one of them"),
        ("cuda:\N{ARABIC-INDIC DIGIT ONE}", 2, 1, "expected cpu, cuda, or", "give one of them"),
        ("cpu:0", 2, 1, "expected cpu, cuda, or", "give one of them"),
    ],
)
def test_a_device_that_is_not_there_is_refused(monkeypatch, given, count, least, why, cure) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    with pytest.raises(UsageError) as caught:
        device_of(given, least)
    cause, do = str(caught.value).split("\n")
    assert why in cause
    assert do.startswith(f"Do: {cure}")
    with pytest.raises(UsageError):
        join(given, Settings()) if least == 1 else device_of(given, least)


def test_a_device_that_is_there_is_taken(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for given in ("cpu", "cuda", "cuda:0", "cuda:1"):
        assert device_of(given, 1) == torch.device(given)


def test_a_pytorch_for_cpus_is_named(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(UsageError, match="this PyTorch is built for CPUs"):
        device_of("cuda")


def test_ranks_are_restarted_from_the_second_attempt_on(monkeypatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT", raising=False)
    assert not is_restarted()
    for count, restarted in (("0", False), ("1", True), ("12", True)):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", count)
        assert is_restarted() == restarted


def test_ranks_exchange_through_the_library_of_their_device() -> None:
    assert exchange(Settings(), "cpu") == ("gloo", {})
    found = {
        name: exchange(Settings(all_reduce_spec=name), "cuda")
        for name in ("auto", "nccl", "nccl/ring", "nccl/tree", "gloo")
    }
    assert found == {
        "auto": ("cpu:gloo,cuda:nccl", {}),
        "nccl": ("cpu:gloo,cuda:nccl", {}),
        "nccl/ring": ("cpu:gloo,cuda:nccl", {"NCCL_ALGO": "Ring"}),
        "nccl/tree": ("cpu:gloo,cuda:nccl", {"NCCL_ALGO": "Tree"}),
        "gloo": ("cpu:gloo,cuda:gloo", {}),
    }
