"""The recurrence of LSTM, GRU and RNN as one kernel, compiled for a layer's sizes and activations."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ....cuda import CudaKernel
from ....cuda.compiler import compile_unit, newest_architecture
from ....cuda.driver import Launch as DriverLaunch
from ....errors import BuildError
from ....model.operator_traits import RECURRENT
from ....tensor import DType
from ..elementwise import RECURRENT_ACTIVATIONS
from .device import CudaDevice, Device
from .generated import largest_cluster
from .nhwc import Launch
from .recurrent_choice import choose_form
from .recurrent_form import CLUSTER, WHOLE_GRID, LanesForm, RecurrentForm, RecurrentShape, Rooms
from .source import load_cubin, sources
from .text import C_TYPES, library_text

__all__ = ["RecurrentKernel", "RecurrentProblem", "activations_of", "recurrent_text"]

_QUICK = {"sigmoid(": "quick_sigmoid(", "tangent_h(": "quick_tanh("}
"""Function of pointwise.cu → one that takes less time, and is as exact as sums of float32."""
_QUICK_TANH = (
    "// Wrong by 1e-7 at most, as sums of float32 are.\n"
    "__device__ __forceinline__ float quick_tanh(float v) { return 1.0f - __fdividef(2.0f, 1.0f + __expf(2.0f * v)); }"
)
_MATRIX_UNITS = 80
_LARGEST_CLUSTER, _EARLY_FROM = 16, 90
_SHARED_ATTRIBUTE = 97  # cudaDevAttrMaxSharedMemoryPerBlockOptin
_HOST_THREADS = 64


@dataclass(frozen=True)
class RecurrentProblem:
    """The recurrence of an LSTM, GRU or RNN without its products with W: sizes, type and activations.

    Attributes:
        shape: Sizes.
        dtype: Element type of all tensors but the lengths.
        direction: ``"forward"``, ``"reverse"`` or ``"bidirectional"``.
        batch_first: Whether the batch is the first axis of inputs, outputs and states (ONNX's layout 1).
        input_forget: Whether an LSTM's forget gate is 1 less the input gate.
        activations: C++ of each activation of a value ``v``, by direction.
    """

    shape: RecurrentShape
    dtype: DType
    direction: str
    batch_first: bool
    input_forget: bool
    activations: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, attributes: Mapping[str, Any], dims: Sequence[int], dtype: DType) -> RecurrentProblem:
        """Make the problem of a step, from its attributes, the dims of its products with W, and its type."""
        batch_first = bool(attributes["layout"])
        steps, batch = (dims[1], dims[0]) if batch_first else (dims[0], dims[1])
        op, direction = attributes["operator"], attributes["direction"]
        directions = 2 if direction == "bidirectional" else 1
        early = op == "GRU" and not attributes["linear_before_reset"]
        shape = RecurrentShape(op, steps, batch, attributes["hidden_size"], directions, early)
        texts = activations_of(attributes)
        return cls(shape, dtype, direction, batch_first, bool(attributes["input_forget"]), texts)


def activations_of(attributes: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """C++ code of the activations of a recurrent node, by direction.

    Alphas and betas go to those that have them, in order. ``clip`` bounds what the gates read; an LSTM's last activation
    reads the state, which stays as it is.

    Raises:
        KeyError: an activation is unknown.
    """
    usual = RECURRENT[attributes["operator"]].activations
    directions = 2 if attributes["direction"] == "bidirectional" else 1
    names = attributes.get("activations") or usual * directions
    alphas, betas = (iter(attributes.get(name, ())) for name in ("activation_alpha", "activation_beta"))
    texts = []
    for place, name in enumerate(names):
        row = RECURRENT_ACTIVATIONS[str(name).lower()]
        defaults = row.numbers.values()
        numbers = [next(values, default) for values, default in zip((alphas, betas), defaults, strict=False)]
        text = re.sub(r"\b(sigmoid|tangent_h)\(", lambda match: _QUICK[match[0]], row.text).format(
            "v", *(f"static_cast<float>({float(number)!r})" for number in numbers)
        )
        limit = attributes.get("clip")
        if limit is not None and place % len(usual) != 2:
            text = f"v = v < -LIMIT ? -LIMIT : v > LIMIT ? LIMIT : v; return {text}".replace(
                "LIMIT", f"{float(limit)!r}f"
            )
        else:
            text = f"return {text}"
        texts.append(text)
    return tuple(tuple(texts[first : first + len(usual)]) for first in range(0, len(texts), len(usual)))


class RecurrentKernel:
    """The kernel of one recurrent layer, compiled, with its weights on the device.

    Args:
        device: Where it runs.
        problem: The layer.
        weights: R, (directions, gates · hidden, hidden), float32.
        form: How the layer is spread over the GPU; None: the form with the least estimated time.

    Raises:
        BuildError: the hidden state does not fit into the shared memory of a multiprocessor.
        KernelError: the kernel does not compile.
    """

    def __init__(
        self,
        device: Device,
        problem: RecurrentProblem,
        weights: npt.NDArray[np.float32],
        form: RecurrentForm | None = None,
    ) -> None:
        self._device, self._problem = device, problem
        rooms: dict[int, int] = {}
        while True:  # until the GPU runs as many clusters at the same time as the estimate has assumed
            self.form = form or _choose_form(device, problem, rooms)
            self._kernel = _kernel(recurrent_text(problem, self.form, isinstance(device, CudaDevice)))
            blocks, room = self.form.blocks, self._load()
            if form is not None or room >= min(self.form.grid // blocks, rooms.get(blocks, self.form.grid)):
                break
            rooms[blocks] = room
        self._weights = device.upload(self.form.packed(weights))
        self._exchange = device.upload(np.zeros(self.form.exchange_words, np.float32))

    def bound(self, arrays: Sequence[Any]) -> Launch:
        """A function that queues the kernel on a stream.

        Args:
            arrays: Products with W, addends, lengths, initial h and c, Y, last h and c, each contiguous; None where left out.
        """
        x, *others = arrays
        values, form = [x, self._weights, *others, self._exchange], self.form
        if not self._problem.shape.steps * self._problem.shape.batch:
            return functools.partial(_keep_states, [(others[5], others[2]), (others[6], others[3])])
        if self._function is None:
            block = form.blocks * form.threads
            threads = form.grid // form.blocks * block
            return lambda stream: self._kernel.launch(*values, threads=threads, block=block, stream=stream)
        queue = self._driver_launch([ctypes.c_void_p(None if value is None else value.data.ptr) for value in values])

        def launch(stream: Any, kept: Any = values) -> None:
            queue(int(stream.ptr))

        return launch

    def _driver_launch(self, arguments: Sequence[Any]) -> DriverLaunch:
        """The launch through the driver: with clusters, programmatic, or cooperative, as the form needs it."""
        form, cluster_size = self.form, self.form.blocks if self.form.exchange == CLUSTER else 1
        cooperative = form.exchange == WHOLE_GRID
        has_early_start = isinstance(self._device, CudaDevice) and self._device.capability >= _EARLY_FROM
        programmatic = has_early_start and not cooperative
        return DriverLaunch(self._function, form.grid, form.threads, arguments, cluster_size, programmatic, cooperative)

    def _load(self) -> int:
        """Compile and load the kernel, and return how many of its clusters, or groups of blocks, the GPU runs at the same time."""
        self._function: Any = None
        groups = self.form.grid // self.form.blocks
        if not isinstance(self._device, CudaDevice):
            return groups
        code = compile_unit(self._kernel.unit(), newest_architecture(self._device.capability))
        self._function = load_cubin(code, "recurrent", self.form.shared_floats * 4)
        return self._driver_launch([ctypes.c_void_p()] * 10).max_clusters() if self.form.exchange == CLUSTER else groups


# -- inside ----------------------------------------------------------------------------------------------------------------


def _choose_form(device: Device, problem: RecurrentProblem, rooms: Rooms) -> RecurrentForm:
    """The fastest form on a device, of whose clusters some numbers that run at the same time are known; a small one on the host."""
    half = problem.dtype is DType.FLOAT16
    if not isinstance(device, CudaDevice):  # few threads, since each is a fiber
        blocks = 2 if problem.shape.hidden > 1 else 1
        return LanesForm(problem.shape, CLUSTER, blocks, 1, _HOST_THREADS, DType.FLOAT32, 2)
    shared = int(device.xp.cuda.runtime.deviceGetAttribute(_SHARED_ATTRIBUTE, device.number)) - 1024
    max_cluster = _LARGEST_CLUSTER if largest_cluster(device) > 1 else 1
    has_units = device.capability >= _MATRIX_UNITS
    form = choose_form(problem.shape, half, device.multiprocessors, max_cluster, shared, has_units, rooms)
    if form is None:
        raise BuildError(
            f"engine 'cuda': a hidden state of {problem.shape.hidden} values does not fit into the shared memory of {device.model}.\n"
            'Do: build with engine="onnxruntime"',
            engine="cuda",
        )
    return form


def _keep_states(pairs: Sequence[tuple[Any, Any]], stream: Any) -> None:
    """Copy the initial states to the last ones of a layer without steps; None: the initial state is zero."""
    for last, first in pairs:
        if last is not None:
            last[...] = 0 if first is None else first


def recurrent_text(problem: RecurrentProblem, form: RecurrentForm, on_gpu: bool) -> str:
    """The source of a form's kernel, for a GPU or for the host."""
    numbers = {
        **form.constants(),
        "LINEAR_BEFORE_RESET": int(not problem.shape.resets_first),
        "INPUT_FORGET": int(problem.input_forget),
        "BATCH_FIRST": int(problem.batch_first),
        "BACKWARD": {"forward": 0, "reverse": 1, "bidirectional": 2}[problem.direction],
    }
    lines = [f"#define EXCHANGE_CODE {form.exchange}"]
    lines += [
        f"typedef {C_TYPES[problem.dtype]} T;",
        f"typedef {C_TYPES[form.weights]} W;",
        f"typedef {C_TYPES[form.state]} State;",
    ]
    lines += [f"constexpr int {name} = {number};" for name, number in numbers.items()]
    for place in range(3):  # an operator with fewer has no use for the others
        texts = [functions[place] if place < len(functions) else "return v" for functions in problem.activations]
        body = f"{texts[0]};" if len(set(texts)) == 1 else f"if (direction == 0) {{ {texts[0]}; }} {texts[1]};"
        lines.append(f"__device__ __forceinline__ float activation_{place}(float v, int direction) {{ {body} }}")
    kernel = sources("recurrent.cu", form.file)
    if not on_gpu:  # its memory is an array there
        kernel = kernel.replace("extern __shared__ float4 memory[];", "")
    return "\n".join((library_text(), sources("activations.cu"), _QUICK_TANH, *lines, kernel))


@functools.lru_cache(256)
def _kernel(text: str) -> CudaKernel:
    """The kernel of a source; equal sources share one."""
    return CudaKernel(text, "recurrent", label="recurrent.cu")
