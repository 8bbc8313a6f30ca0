"""onnxruntime's CUDA provider as a careful user drives it: one CUDA graph between tensors that stay on the GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest

from pytrtplugins.model.decompose import inline_plugins

from .clock import Clock, wall
from .running import Running, pinned_copy
from .subject import Subject

LAYOUTS = ("NCHW", "NHWC")


def onnxruntime(precision: str) -> Callable[[Subject, Clock, int], Running]:
    """The network with its plugins written out with standard operators, in whichever layout is faster."""

    def make(subject: Subject, clock: Clock, batch: int) -> Running:
        return session(inline_plugins(subject.model), precision, subject.images[:batch], subject.head[:batch], clock)

    return make


def session(model: onnx.ModelProto, precision: str, images: np.ndarray, head: np.ndarray, clock: Clock) -> Running:
    """A network with one input, one output and a free batch, in whichever layout is faster."""
    ort = pytest.importorskip("onnxruntime")
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        pytest.skip("onnxruntime has no CUDA provider (pip install onnxruntime-gpu)")
    if precision == "FP16":
        from onnxruntime.transformers.float16 import convert_float_to_float16

        model = convert_float_to_float16(model, keep_io_types=True)
    found = {layout: _running(ort, model, precision, layout, (images, head), clock) for layout in LAYOUTS}
    times = {layout: [wall(partial(each.run, images)) for _ in range(10)] for layout, each in found.items()}
    return found[min(times, key=lambda layout: sorted(times[layout])[5])]


def _running(
    ort: Any, model: onnx.ModelProto, precision: str, layout: str, ends: tuple[np.ndarray, np.ndarray], clock: Clock
) -> Running:
    images, head = map(pinned_copy, ends)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    free = model.graph.input[0].type.tensor_type.shape.dim[0].dim_param
    options.add_free_dimension_override_by_name(free, len(images))
    provider = {
        "enable_cuda_graph": "1",
        "user_compute_stream": str(clock.stream.ptr),
        "use_tf32": str(int(precision != "FP32")),
        "prefer_nhwc": str(int(layout == "NHWC")),
    }
    inference = ort.InferenceSession(
        model.SerializeToString(), options, providers=[("CUDAExecutionProvider", provider)]
    )
    (given,), (found,) = inference.get_inputs(), inference.get_outputs()
    x = ort.OrtValue.ortvalue_from_numpy(images, "cuda", 0)
    y = ort.OrtValue.ortvalue_from_shape_and_type(head.shape, np.float32, "cuda", 0)
    binding, one_run = inference.io_binding(), ort.RunOptions()
    binding.bind_ortvalue_input(given.name, x)
    binding.bind_ortvalue_output(found.name, y)
    one_run.add_run_config_entry("disable_synchronize_execution_providers", "1")

    def queue() -> None:
        inference.run_with_iobinding(binding, one_run)

    def run(given: np.ndarray) -> np.ndarray:
        np.copyto(images, given)
        clock.copy(x.data_ptr(), images.ctypes.data, images.nbytes)
        queue()
        clock.copy(head.ctypes.data, y.data_ptr(), head.nbytes)
        clock.stream.synchronize()
        return head.copy()

    run(images)  # captures the graph
    return Running(run, queue, facts={"layout": layout})
