"""Single operators in FP16, INT8 and FP32 beside PyTorch's in a CUDA graph; a size of each form comes before all others.

FP16 has rows beside torch.compile too, but for operators for which it calls the same libraries.

PyTorch has no convolution or matrix product of INT8 with a scale per channel on CUDA, so the peer of INT8 is its FP16 module.
"""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

pytest.importorskip("torch")

from ..pages.runners import NAME, TORCH_COMPILED, TORCH_GRAPH
from .clock import Clock
from .operator_cases import CASES
from .operator_int8 import has_int8
from .operator_subject import OperatorSubject, relative_error
from .test_zoo import recorded

pytestmark = pytest.mark.filterwarnings("default")  # of other people's libraries

LIMIT = {"FP16": 1e-2, "INT8": 5e-2, "FP32": 1e-4}
"""Of the result, relative L2; or twice PyTorch's own error. The precisions come in this order."""
CODES_LIMIT = 2e-3
"""Of a result in INT8 beside what PyTorch computes from the same codes; their rounding alone is some five times that."""
IN_LIBRARIES = {"Conv", "ConvTranspose", "GRU", "LSTM", "MatMul", "RNN", "Attention"}
"""Operators for which torch.compile calls what PyTorch calls without it."""
DELAY_US = 6000.0
"""A replay takes the host up to 25 µs, and a round has at most 200 of them."""


def cases() -> list[Any]:
    """Each case in each precision that it has: of each form one size before the others."""
    seen: dict[tuple[str, str], int] = {}
    parameters = []
    for case in CASES:
        place = seen[case.operator, case.form] = seen.get((case.operator, case.form), -1) + 1
        for number, precision in enumerate(LIMIT):
            if precision == "INT8" and not has_int8(case):
                continue
            stage = pytest.mark.stage(len(LIMIT) * min(place, 1) + number)
            parameters.append(pytest.param(case, precision, marks=stage, id=f"operator {precision}, {case.name}"))
    return parameters


def compiled_cases() -> list[Any]:
    """Each case that torch.compile may make kernels for, behind all others."""
    mark = pytest.mark.stage(2 * len(LIMIT))
    chosen = (case for case in CASES if case.operator not in IN_LIBRARIES)
    return [pytest.param(case, "FP16", marks=mark, id=f"operator FP16 compiled, {case.name}") for case in chosen]


@pytest.mark.parametrize(("case", "precision"), cases())
def test_operator(case: Any, precision: str, clock: Clock, benchmark, request: pytest.FixtureRequest) -> None:
    _race(case, precision, False, clock, benchmark, request)


@pytest.mark.parametrize(("case", "precision"), compiled_cases())
def test_compiled(case: Any, precision: str, clock: Clock, benchmark, request: pytest.FixtureRequest) -> None:
    _race(case, precision, True, clock, benchmark, request)


def _race(case: Any, precision: str, fused: bool, clock: Clock, benchmark: Any, request: pytest.FixtureRequest) -> None:
    """Compare the results, then the times."""
    facts = {"kind": "operator", "operator": case.operator, "form": case.form, "size": case.size, "runner": NAME}
    facts["peer"] = TORCH_COMPILED if fused else TORCH_GRAPH
    with (
        recorded(benchmark, request.session, **facts, precision=precision) as row,
        contextlib.ExitStack() as stack,
    ):
        subject = OperatorSubject(case, precision)
        peer = stack.enter_context(contextlib.closing(subject.pytorch(clock, fused)))
        row["peer_error"] = subject.error(peer.run(subject.ignored))
        ours = stack.enter_context(contextlib.closing(subject.ours(clock)))
        row.update(ours.facts or {})
        result = ours.run(subject.ignored)
        row["error"] = subject.error(result)
        limit = max(LIMIT[precision], 2 * row["peer_error"])
        assert row["error"] < limit, f"another result than PyTorch's in float32: relative error {row['error']:.2e}"
        if subject.wanted_of_codes is not None:
            row["peer_precision"], row["codes_error"] = "FP16", relative_error(result, subject.wanted_of_codes)
            assert row["codes_error"] < CODES_LIMIT, f"another result than of its codes: {row['codes_error']:.2e}"
        assert ours.queue is not None
        assert peer.queue is not None
        times = clock.gpu(peer.queue, ours.queue, DELAY_US)
        row.update(us=times.beside, peer_us=times.median, speed=times.ratio, peer_kernels=peer.kernels)
        benchmark.pedantic(ours.queue, rounds=3)
