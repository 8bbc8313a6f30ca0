"""TensorRT for these tests: the lean package, or the full bindings over stub libraries.

The lean package holds TensorRT's real plugin registry and creators, but no builder. ``TENSORRT_SUBSTRATE=stubs`` takes
the bindings of the full package instead, with libraries beneath that do nothing but lead to the lean one: every class of
the real bindings is there then, and a builder that cannot be made. `make test-tensorrt` runs both, for 10 and for 11.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from pytrtplugins.engines.tensorrt import _api
from pytrtplugins.engines.tensorrt.memory import HostMemory, use_memory
from pytrtplugins.errors import EngineError

from .driver import Driver
from .stubs import load_stubs

SUBSTRATE = os.environ.get("TENSORRT_SUBSTRATE", "lean")


def _load() -> tuple[_api.Api | None, str]:
    try:
        if SUBSTRATE == "stubs":
            load_stubs()
            _api.load.cache_clear()  # other tests may have asked already which engines are here
        return _api.load(), ""
    except EngineError as error:
        return None, f"{str(error).splitlines()[0]} Do: make test-tensorrt"


_API, _REASON = _load()


@pytest.fixture(scope="session")
def api() -> _api.Api:
    """TensorRT; skipped where there is none."""
    if _API is None:
        pytest.skip(_REASON)
    return _API


@pytest.fixture(params=["v3", "v2"] if _API and _API.has_v2 else ["v3"])
def driver(api: _api.Api, request: pytest.FixtureRequest) -> Iterator[Driver]:
    """TensorRT's part, for each interface that this version offers."""
    with use_memory(HostMemory()):
        yield Driver(api, request.param)


@pytest.fixture
def v3(api: _api.Api) -> Iterator[Driver]:
    """TensorRT's part, for IPluginV3."""
    with use_memory(HostMemory()):
        yield Driver(api, "v3")
