"""Compiled kernels in contexts."""

import pytest

from pytrtplugins.engines.cuda.device import source


@pytest.mark.parametrize(
    "load", [lambda: source.load_cubin(b"code", "f"), lambda: source.load_kernel("stem.cu", {}, 90)]
)
def test_a_kernel_is_loaded_once_into_each_context(monkeypatch, load):
    contexts = iter([1, 1, 2])
    monkeypatch.setattr(source, "current_context", lambda: next(contexts))
    monkeypatch.setattr(source, "compile_kernel", lambda *_: b"code")
    monkeypatch.setattr(source, "Module", lambda code: code)
    monkeypatch.setattr(source, "Function", lambda *_: type("Function", (), {})())
    first, same, other = load(), load(), load()
    assert first is same
    assert first is not other
