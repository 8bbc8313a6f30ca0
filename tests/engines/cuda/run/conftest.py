"""Contexts with NumPy in the GPU's place."""

import numpy as np
import pytest

from pytrtplugins.cuda import array_keys as forms
from pytrtplugins.engines.base.context import check_dtype
from pytrtplugins.engines.cuda.run import bound_run, execution
from pytrtplugins.engines.cuda.run import context as module
from pytrtplugins.engines.cuda.run.context import CudaContext
from pytrtplugins.errors import BindingError
from tests.engines.cuda.stand_in import Engine, OnGpu, Stream, capture_graph


@pytest.fixture
def make(monkeypatch):
    """Makes a context of a model, which takes `OnGpu` for arrays of the GPU."""
    monkeypatch.setattr(module, "pinned_empty", np.empty)
    for each in (bound_run, module):
        monkeypatch.setattr(each, "stream_at", lambda cupy, address: Stream())
    for each in (bound_run, execution, module):
        monkeypatch.setattr(each, "capture_graph", capture_graph)

    def given(self, call, inputs, outputs):
        return self._check(inputs), self._check_targets(outputs)

    def on_gpu(self, desc, value):
        check_dtype("output", desc, value)
        if not value.flags.c_contiguous:
            raise BindingError("binding is not contiguous")
        return value

    def read(array, stream):
        return array.ctypes.data, ("cupy", array.shape, array.dtype, array.strides, None)

    def context(model, disabled=()):
        made = CudaContext(Engine(model, disabled))
        made.accept_host_arrays = lambda: monkeypatch.setattr(CudaContext, "_check_on_gpu", given)
        return made

    monkeypatch.setattr(module, "is_device_array", lambda value: isinstance(value, OnGpu))
    monkeypatch.setattr(CudaContext, "_on_gpu", on_gpu)
    monkeypatch.setitem(forms.READERS, OnGpu, read)
    return context
