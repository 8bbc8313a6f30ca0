"""Times that builds measured are kept in a file and given to the next build; TensorRT's part is played here."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from pytrtplugins.engines.tensorrt import builder, memory
from pytrtplugins.engines.tensorrt.memory import DeviceMemory, current_memory, use_memory
from pytrtplugins.engines.tensorrt.settings import Settings
from pytrtplugins.tensor import DType, TensorDesc

API, DEVICE = SimpleNamespace(version="10.9"), SimpleNamespace(name="Test GPU")


class Config:
    """Takes caches that begin with ``T``; ``None`` for those that begin with ``x``."""

    def __init__(self):
        self.given, self.kept = [], None

    def create_timing_cache(self, data):
        self.given.append(bytes(data))
        return None if data[:1] == b"x" else bytes(data)

    def set_timing_cache(self, cache, ignore_mismatch):
        assert not ignore_mismatch
        self.kept = cache if cache[:1] in (b"T", b"") else self.kept
        return self.kept == cache

    def get_timing_cache(self):
        return SimpleNamespace(serialize=lambda: memoryview(b"T" + self.kept)) if self.kept is not None else None


def load(path):
    config = Config()
    return config, builder._load_timing_cache(API, config, Settings.read({"timing_cache": path}), DEVICE)


@pytest.mark.parametrize(
    ("data", "given", "kept"),
    [(None, [b""], b""), (b"Tabc", [b"Tabc"], b"Tabc"), (b"xabc", [b"xabc", b""], b""), (b"abc", [b"abc", b""], b"")],
)
def test_the_file_is_read_and_one_that_does_not_fit_is_replaced(tmp_path, data, given, kept):
    path = tmp_path / "new" / "own.timing"
    if data is not None:
        path.parent.mkdir()
        path.write_bytes(data)
    config, found = load(str(path))
    assert (found, config.given, config.kept) == (path, given, kept)
    builder._keep_timing_cache(config, found)
    builder._keep_timing_cache(config, found)
    assert path.read_bytes() == b"T" + kept
    config.kept = None
    builder._keep_timing_cache(config, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_without_a_file_the_users_cache_has_it_by_version_and_gpu_and_nothing_where_none_is_wanted(
    monkeypatch, tmp_path
):
    monkeypatch.setattr(builder, "user_cache", lambda: tmp_path)
    assert load(None)[1] == tmp_path / "tensorrt-10.9-Test-GPU.timing"
    config, found = load("")
    assert (config.given, found) == ([], None)
    builder._keep_timing_cache(config, found)


@pytest.mark.parametrize(("size", "used"), [(2 << 20, True), ((1 << 30) + 1, False)])
def test_a_file_of_more_than_a_gibibyte_is_not_read(tmp_path, caplog, size, used):
    path = tmp_path / "own.timing"
    with path.open("wb") as file:
        file.truncate(size)
    config, _ = load(str(path))
    assert ([len(data) for data in config.given], "is not used" in caplog.text) == ([size, 0] if used else [], not used)


def test_addresses_are_a_gpus_unless_a_test_has_other_memory(monkeypatch):
    calls = []
    cupy = SimpleNamespace(zeros=np.zeros)
    monkeypatch.setattr(memory, "_memory", [])
    monkeypatch.setattr(memory, "require", lambda name, **_: cupy)
    monkeypatch.setattr(memory, "array_at", lambda *given: calls.append(given))
    monkeypatch.setattr(memory, "stream_at", lambda *given: calls.append(given))
    gpu = current_memory()
    assert isinstance(gpu, DeviceMemory)
    assert current_memory() is gpu
    gpu.view(64, (2, 3), DType.FLOAT16)
    gpu.stream(7)
    assert calls == [(cupy, 64, (2, 3), np.dtype(np.float16), gpu), (cupy, 7)]
    with use_memory("another") as other:  # type: ignore[type-var]
        assert current_memory() == other == "another"
    assert current_memory() is gpu
    computed = []
    plugin = SimpleNamespace(compute=lambda *arrays: computed.extend(arrays) or 1 / 0)
    gpu.rehearse(plugin, [TensorDesc("x", (2,), DType.INT8), TensorDesc("y", (1, 3))])
    assert [(array.shape, array.dtype.name) for array in computed] == [((2,), "int8"), ((1, 3), "float32")]
