"""One body, all engines."""

from __future__ import annotations

import pytest

from pytrtplugins.engines import availability, names

MUST_RUN = {"cpu", "onnxruntime", "reference"}
REASONS = {found.name: found.reason for found in availability()}


@pytest.fixture(params=[name for name in names() if name != "null"])
def engine_name(request: pytest.FixtureRequest) -> str:
    """Name of each engine that computes; one that this machine lacks is skipped with its reason."""
    reason = REASONS[request.param]
    if reason and request.param in MUST_RUN:
        pytest.fail(f"engine {request.param} must run in these tests: {reason}")
    if reason:
        pytest.skip(reason)
    return str(request.param)
