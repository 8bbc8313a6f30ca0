"""Loaders of each kind for tests, and what they share."""

from __future__ import annotations

import pytest

from pytrtplugins.vision.jpeg import read_header
from tests.samples.needs_torch import torch
from training.batch import Batch
from training.loader import Loader, Options, make_loader
from training.photos import decode
from training.sampler import StepSampler

CPU = torch.device("cpu")
SIDE = 64
LIMIT = 60  # seconds until a test that waits for a thread fails


class HostDecoder:
    """In the place of a GPU's decoder: the photos in full size; None for one in three, which it cannot decode."""

    def __init__(self) -> None:
        self.seen = 0

    def decode(self, files):
        headers = [read_header(file) for file in files]
        assert all(header and header.orientation == 1 for header in headers), "only upright JPEG files go to the GPU"
        self.seen += len(files)
        return [torch.tensor(decode(file, "", 10_000)) if i % 3 else None for i, file in enumerate(files)]


KINDS = {
    "resident": Options(decoders=2),
    "spdl-cpu": Options(readers=2, decoders=3, ahead=2),
    "spdl-gpu": Options(readers=2, ahead=2, decoder=HostDecoder()),
    "dataloader": Options(),
}


def make(kind: str, data, *, batch: int = 4, options: Options | None = None, seed: int = 1, **more) -> Loader:
    if kind.startswith("spdl"):
        pytest.importorskip("spdl.pipeline", reason='this loader needs spdl-core (pip install "pytrtplugins[train]")')
    sampler = StepSampler(len(data), batch, seed=seed, **{k: more.pop(k) for k in ("rank", "world") if k in more})
    more = {"size": SIDE, "stop": 6} | more
    return make_loader(kind, data, sampler, CPU, options=options or KINDS[kind], **more)


def fail(kind: str, data, **more) -> tuple[Exception, list[int]]:
    """The error that a loader ends with, and the steps whose batches it gave before; then it is closed."""
    steps = list[int]()
    try:
        with make(kind, data, **more) as loader:
            for batch in loader:
                steps.append(batch.step)
    except Exception as error:
        if kind != "resident":
            assert loader.closed.is_set()
            with pytest.raises(StopIteration):
                loader.next()
        return error, steps
    raise AssertionError("no error")


def assert_equal(a: Batch, b: Batch, *, pixels: bool = True) -> None:
    assert (a.step, a.keys) == (b.step, b.keys)
    for name in ("size", "boxes", "valid") + pixels * ("pixels",):
        assert torch.equal(getattr(a, name), getattr(b, name)), name
