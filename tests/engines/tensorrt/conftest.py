"""TensorRT for these tests: the lean package, or the full bindings over stub libraries.

The lean package holds TensorRT's real plugin registry and creators, but no builder. ``TENSORRT_SUBSTRATE=stubs`` takes
the bindings of the full package instead, with libraries beneath that do nothing but lead to the lean one: every class of
the real bindings is there then, and a builder that cannot be made. ``TENSORRT_SUBSTRATE=rtx`` is for test_rtx.py: TensorRT for RTX,
whose parser and builder work without a GPU. `make test-tensorrt` runs all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytrtplugins.engines.tensorrt import _api, engine
from pytrtplugins.engines.tensorrt.memory import use_memory
from pytrtplugins.errors import EngineError
from tests.host_memory import HostMemory

from .checked import CheckedModule
from .checked import HostMemory as Serialized
from .driver import Driver
from .fake_gpu import fake_device
from .player import Player
from .stubs import load_stubs

SUBSTRATE = os.environ.get("TENSORRT_SUBSTRATE", "lean")


def _load() -> tuple[_api.Api | None, str]:
    try:
        if SUBSTRATE == "stubs":
            load_stubs()
            _api.load.cache_clear()  # other tests may have asked already which engines are here
        return _api.load("tensorrt"), ""
    except EngineError as error:
        return None, f"{str(error).splitlines()[0]} Do: make test-tensorrt"


_API, _REASON = _load()


@pytest.fixture(scope="session")
def api() -> _api.Api:
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
    with use_memory(HostMemory()):
        yield Driver(api, "v3")


@pytest.fixture
def runtime(api: _api.Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A package whose calls are checked; ``.answers`` is what TensorRT would say. It may be one that builds nothing."""
    answers = {
        "OnnxParser.num_errors": 0,
        "Builder.build_serialized_network": Serialized(b"plan"),
        "ICudaEngine.get_tensor_dtype": lambda name: api.trt.DataType.FLOAT,
        "ICudaEngine.get_tensor_mode": lambda name: api.trt.TensorIOMode.INPUT,
        "ICudaEngine.is_shape_inference_io": False,
        "IExecutionContext.get_tensor_shape": lambda name: api.trt.Dims([1, 4, 8, 8]),
    }
    checked: Any = _api.Api(CheckedModule(api.trt, answers))
    checked.answers, checked.calls, checked.made = answers, checked.trt.calls, checked.trt.made
    monkeypatch.setattr(_api, "load", lambda package: checked)
    monkeypatch.setattr(engine, "find_device", lambda name=None: fake_device())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return checked


@pytest.fixture
def tensorrt(runtime: Any) -> Any:
    """The same, of the package that builds."""
    if not runtime.builds:
        pytest.skip("the lean package has no builder: TENSORRT_SUBSTRATE=stubs")
    return runtime


@pytest.fixture
def player(tensorrt: Any, api: _api.Api) -> Iterator[Player]:
    played = Player(api)
    played.owner = tensorrt.trt
    tensorrt.answers |= played.answers()
    with use_memory(HostMemory()):
        yield played
