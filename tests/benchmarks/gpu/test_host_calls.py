"""The table of what calls cost the host, with arrays of the host in the GPU's place."""

import numpy as np

import pytrtplugins as ptp
from benchmarks.gpu import host_calls
from benchmarks.gpu.host_calls import Library, call_rows
from tests.engines.networks import conv_net, image


class Bound:
    def __init__(self, launch):
        self.launch = launch

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.launch = None


class Context:
    """A context with what the table asks engine cuda for; `calls` has what it was asked."""

    def __init__(self):
        self.engine, self.calls = ptp.build(conv_net(), engine="onnxruntime"), []

    def bind(self, inputs, outputs):
        return Bound(lambda stream: self.calls.append(("launch", stream)))

    def enqueue(self, inputs, outputs, stream):
        self.calls.append(("enqueue", stream))


def test_each_library_has_a_row_for_each_way_and_the_work_is_waited_for_in_between(monkeypatch):
    monkeypatch.setattr(host_calls, "CALLS", 3)
    monkeypatch.setattr(host_calls, "WARM_UP", 1)
    context, waits = Context(), []
    found = iter([Library("CuPy", np.copy, 1), Library("PyCUDA", np.copy, 2)])
    rows = list(call_rows(context, {"data": image()}, {}, found, lambda: waits.append(len(context.calls))))
    assert [name for name, _ in rows] == [
        "bind, launch: CuPy",
        "enqueue: CuPy",
        "bind, launch: PyCUDA",
        "enqueue: PyCUDA",
    ]
    assert all(len(times) == 3 and min(times) >= 0 for _, times in rows)
    assert waits == list(range(1, 17))
    assert context.calls == [(call, stream) for stream in (1, 2) for call in ("launch", "enqueue") for _ in range(4)]
