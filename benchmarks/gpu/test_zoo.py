"""Networks that others made, in FP16 beside PyTorch's CUDA graph; INT8 and other peers beside our FP16.

BENCHMARK_ZOO names some of the networks, BENCHMARK_ZOO_PEERS more peers (compile, max-autotune, onnxruntime); a list of rows may name any.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("torch")

from pytrtplugins.engines.cuda import CudaEngine

from ..pages.runners import NAME, ONNXRUNTIME, TORCH_COMPILED, TORCH_TUNED
from .clock import Clock
from .ours import network
from .running import ZOO, Running
from .subject import BATCHES
from .zoo import NETWORKS, chosen
from .zoo_exports import Exports
from .zoo_subject import ZooSubject

pytestmark = pytest.mark.filterwarnings("default")  # of other people's libraries

LIMIT = {"FP32": 1e-4, "FP16": 1e-2, "INT8": 1.0}
"""Of the output, relative L2; INT8 of random weights, so no more than a check that the right network ran."""
PEERS: dict[str, tuple[str, Callable[[ZooSubject, int, Clock], Running]]] = {
    "onnxruntime": (ONNXRUNTIME, lambda subject, batch, clock: subject.onnxruntime(batch, clock)),
    "compile": (TORCH_COMPILED, lambda subject, batch, clock: subject.pytorch("compile", batch, clock)),
    "max-autotune": (TORCH_TUNED, lambda subject, batch, clock: subject.pytorch("max-autotune", batch, clock)),
}
HOST_ROUNDS = 10
PLAIN = CudaEngine.fast_build["disable"]
"""What a build leaves out whose result alone counts."""
Zoo = Callable[[str], ZooSubject]


def cases(names: tuple[str, ...], what: str, after: int) -> list[Any]:
    """Each network with each batch; all with batch 1 come before all others. No two rows of the zoo share a name."""
    stages = {batch: ZOO + (2 + len(PEERS)) * number + after for number, batch in enumerate(BATCHES)}
    return [
        pytest.param(name, batch, marks=pytest.mark.stage(stages[batch]), id=f"zoo {what}, {name}, batch-{batch}")
        for batch in BATCHES
        for name in names
    ]


def peer_cases(names: tuple[str, ...]) -> list[Any]:
    """The same for each peer that was asked for."""
    named = ",".join(PEERS) if os.environ.get("BENCHMARK_ROWS") else os.environ.get("BENCHMARK_ZOO_PEERS", "")
    asked = [name.strip() for name in named.split(",") if name.strip()]
    unknown = [name for name in asked if name not in PEERS]
    if unknown:
        raise ValueError(f"BENCHMARK_ZOO_PEERS: {', '.join(unknown)} unknown; there are {', '.join(PEERS)}")
    return [
        pytest.param(peer, *case.values, marks=case.marks, id=case.id)
        for number, peer in enumerate(PEERS)
        if peer in asked
        for case in cases(names, peer, 2 + number)
    ]


@pytest.fixture(scope="session")
def zoo(request: pytest.FixtureRequest) -> Iterator[Zoo]:
    """The networks by name, each made once: those of the session's rows in worker processes, in the order of the rows.

    Where several processes share the rows, each makes its own networks.
    """
    made: dict[str, ZooSubject] = {}
    shared = "BENCHMARK_CLAIMS" in os.environ
    items = [item for item in request.session.items if isinstance(item, pytest.Function) and "zoo" in item.fixturenames]
    names = [] if shared else list(dict.fromkeys(str(item.callspec.params["name"]) for item in items))
    with contextlib.nullcontext() if shared else Exports(names) as exports:

        def find(name: str) -> ZooSubject:
            if name not in made:
                loaded = exports.load(name) if exports else None
                made[name] = ZooSubject(NETWORKS[name], loaded, exports.waiting if exports else 0)
            return made[name]

        yield find


@contextlib.contextmanager
def recorded(benchmark: Any, session: pytest.Session, **facts: Any) -> Iterator[dict[str, Any]]:
    """Make a row of what becomes known of a network, also where an error ends it."""
    row: dict[str, Any] = {"kind": "zoo", **facts}
    try:
        yield row
    except Exception as error:
        if benchmark.stats is None:
            benchmark.pedantic(lambda: None, rounds=1)  # the record keeps what was timed
        benchmark.extra_info.update(row, failure=f"{type(error).__name__}: {error}".strip().splitlines()[0])
        lost = lost_context()
        if lost:
            session.shouldstop = f"the GPU's context is lost: {lost}"
        raise
    benchmark.extra_info.update(row)


def lost_context() -> str:
    """Why nothing runs on the GPU any more in this process; empty while it does."""
    import cupy

    try:
        cupy.cuda.runtime.deviceSynchronize()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return str(error)
    return ""


def checked(subject: ZooSubject, running: Running, batch: int, precision: str, beside: float = 0.0) -> float:
    """The error of what runs, which has to be small; or twice another's in the same precision, where a network amplifies rounding."""
    error, limit = subject.error(running.run(subject.network.inputs(batch))), max(LIMIT[precision], 2 * beside)
    assert error < limit, f"{precision}: another output than PyTorch's in float32: relative error {error:.2e}"
    return error


@pytest.mark.parametrize(("name", "batch"), cases(chosen(), "FP16", 0))
def test_network(name: str, batch: int, zoo: Zoo, clock: Clock, benchmark, request: pytest.FixtureRequest) -> None:
    facts = {"network": name, "batch": batch, "runner": NAME, "precision": "FP16"}
    with recorded(benchmark, request.session, **facts) as row, contextlib.ExitStack() as stack:
        subject = zoo(name)
        if batch == 1:  # it shows that the network is the right one; FP16 shows each batch
            exact, _ = subject.build("fp32", batch, PLAIN)
            with contextlib.closing(network(exact, batch, clock)) as running:
                row["error_fp32"] = checked(subject, running, batch, "FP32")
        if subject.exporting:
            row["exporting"] = subject.exporting
        engine, row["build_s"] = subject.build("fp16", batch)
        _, row["again_s"] = subject.build("fp16", batch)
        ours = stack.enter_context(contextlib.closing(network(engine, batch, clock)))
        row.update(kernels=ours.kernels, bytes=ours.bytes, **(ours.facts or {}))
        peer = stack.enter_context(contextlib.closing(subject.pytorch("graph", batch, clock)))
        row["peer_error"] = subject.error(peer.run(subject.network.inputs(batch)))
        row["error"] = checked(subject, ours, batch, "FP16", row["peer_error"])
        assert ours.queue is not None
        assert peer.queue is not None
        times = clock.gpu(peer.queue, ours.queue)
        row.update(
            us=times.beside,
            peer_us=times.median,
            speed=times.ratio,
            peer_kernels=peer.kernels,
            **(peer.facts or {}),
        )
        benchmark.pedantic(ours.run, (subject.network.inputs(batch),), rounds=HOST_ROUNDS, warmup_rounds=1)


@pytest.mark.parametrize(
    ("name", "batch"), cases(tuple(name for name in chosen() if NETWORKS[name].convolutional), "INT8", 1)
)
def test_int8(name: str, batch: int, zoo: Zoo, clock: Clock, benchmark, request: pytest.FixtureRequest) -> None:
    facts = {"network": name, "batch": batch, "runner": NAME, "precision": "INT8"}
    with recorded(benchmark, request.session, **facts) as row, contextlib.ExitStack() as stack:
        subject = zoo(name)
        engine, row["build_s"] = subject.build("int8", batch)
        row["choice"] = engine.choices.get("int8", "")
        int8 = stack.enter_context(contextlib.closing(network(engine, batch, clock)))
        row.update(kernels=int8.kernels, bytes=int8.bytes, **(int8.facts or {}))
        row["error"] = checked(subject, int8, batch, "INT8")
        ours = stack.enter_context(contextlib.closing(network(subject.build("fp16", batch)[0], batch, clock)))
        assert int8.queue is not None
        times = clock.gpu(int8.queue, ours.queue)
        row.update(us=times.median, peer=NAME, peer_us=times.beside, speed=1 / times.ratio if times.ratio else None)
        benchmark.pedantic(int8.run, (subject.network.inputs(batch),), rounds=HOST_ROUNDS, warmup_rounds=1)


@pytest.mark.parametrize(("peer", "name", "batch"), peer_cases(chosen()))
def test_peer(
    peer: str, name: str, batch: int, zoo: Zoo, clock: Clock, benchmark, request: pytest.FixtureRequest
) -> None:
    runner, make = PEERS[peer]
    facts = {"network": name, "batch": batch, "runner": runner, "precision": "FP16"}
    with recorded(benchmark, request.session, **facts) as row, contextlib.ExitStack() as stack:
        subject = zoo(name)
        ours = stack.enter_context(contextlib.closing(network(subject.build("fp16", batch)[0], batch, clock)))
        running = stack.enter_context(contextlib.closing(make(subject, batch, clock)))
        beside = subject.error(ours.run(subject.network.inputs(batch)))
        row.update(kernels=running.kernels, error=checked(subject, running, batch, "FP16", beside))
        assert running.queue is not None
        times = clock.gpu(running.queue, ours.queue)
        row.update(us=times.median, peer=NAME, peer_us=times.beside, speed=times.ratio)
        benchmark.pedantic(running.run, (subject.network.inputs(batch),), rounds=HOST_ROUNDS, warmup_rounds=1)
