"""The rule about CUDA graphs, into which engines and TensorRT capture `enqueue`; it needs no GPU."""

from __future__ import annotations

from ..cuda.stand_in import StandInArray, StandInStream
from ..errors import PluginError, UnavailableError
from . import isolate
from .cases import Case
from .enqueue import allocate_arrays, run_enqueue

__all__ = ["graph_capture"]


def graph_capture(case: Case) -> str:
    """Enqueue can be captured: it only launches kernels on its stream, and neither waits, allocates nor copies to or from the host.

    One that launches none is for CPUs.

    Raises:
        UnavailableError: it does something that only arrays of a GPU can.
    """
    watch = run_enqueue(case).watch
    if isolate.inside() and not (watch.watched or watch.unwatched):
        return ""
    stream, descs = StandInStream(), case.descs()
    with case.runner(descs) as runner:
        input_arrays, outputs, workspace = allocate_arrays(descs, runner.workspace_bytes, None)
        for array, value in zip(input_arrays, case.inputs(), strict=True):
            array[...] = value
        inputs, results = ([StandInArray(array, stream) for array in arrays] for arrays in (input_arrays, outputs))
        scratch = None if workspace is None else StandInArray(workspace, stream)
        try:
            for capturing in (False, True):
                stream.capturing = capturing
                runner.enqueue(inputs, results, stream, workspace=scratch)
        except PluginError as error:
            if "defect" not in error.facts:
                raise
            return str(error)
        except AttributeError as error:
            raise UnavailableError(f"enqueue cannot be tried without a GPU: {error}") from error
    return ""
