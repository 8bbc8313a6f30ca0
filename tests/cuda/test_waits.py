"""How threads wait for a GPU, with a stand-in for the driver: what it is told, not what that saves."""

from types import SimpleNamespace

import pytest

from pytrtplugins.cuda import waits
from pytrtplugins.cuda.driver import Driver
from pytrtplugins.errors import UsageError

bindings = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is missing")


class Api:
    """The driver's functions with NVIDIA's own flags; ``refused`` is what setting them gives."""

    CUctx_flags = bindings.CUctx_flags

    def __init__(self, refused=0):
        self.refused, self.calls = refused, []

    def cuInit(self, flags):
        self.calls.append("cuInit")
        return (0,)

    def cuDeviceGet(self, number):
        return 0, f"device {number}"

    def cuDevicePrimaryCtxSetFlags(self, device, flags):
        self.calls.append((device, int(flags)))
        return (self.refused,)

    def cuGetErrorString(self, code):
        return 0, b"context is active"


@pytest.fixture
def api(monkeypatch):
    made = Api()
    monkeypatch.setattr(waits, "driver", lambda: Driver(made))
    return made


@pytest.mark.parametrize(("word", "flags"), [("auto", 0), ("spin", 1), ("block", 4)])
def test_the_driver_is_told_before_anything_else_uses_the_gpu(word, flags, api, monkeypatch):
    monkeypatch.setenv(waits.CUDA_WAIT, word)
    waits.choose_wait(2)
    assert api.calls == ["cuInit", ("device 2", flags)]


def test_without_a_word_nothing_changes(api, monkeypatch):
    monkeypatch.delenv(waits.CUDA_WAIT, raising=False)
    waits.choose_wait(0)
    assert api.calls == []


def test_another_word_is_refused(api, monkeypatch):
    monkeypatch.setenv(waits.CUDA_WAIT, "sleep")
    with pytest.raises(UsageError, match=r"PYTRT_CUDA_WAIT.*auto, spin, block, found 'sleep'"):
        waits.choose_wait(0)


def test_a_driver_that_refuses_costs_time_and_no_service(api, monkeypatch, caplog):
    monkeypatch.setenv(waits.CUDA_WAIT, "block")
    api.refused = SimpleNamespace(name="CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE")
    waits.choose_wait(0)
    assert "PYTRT_CUDA_WAIT=block has no effect" in caplog.text
    assert "CONTEXT_ACTIVE" in caplog.text
