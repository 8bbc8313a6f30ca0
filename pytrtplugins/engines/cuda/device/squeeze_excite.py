"""Squeeze and excitation as one kernel: the means of an image's channels, two small products, and the image times the result."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ....tensor import DType
from .activation import ACTIVATIONS
from .device import CudaDevice, Device, Tensor
from .expression import Number
from .generated import GeneratedKernel, largest_cluster
from .layout import Format
from .nhwc import Launch
from .source import sources
from .text import C_TYPES, operand_text

__all__ = ["SqueezeExciteForm", "SqueezeExciteKernel", "SqueezeExciteProblem", "choose_form", "squeeze_excite_text"]

_THREADS, _HOST_THREADS = 512, 64
"""Threads of a block; on the host, where each is a fiber."""
_MAX_CHANNELS = 1024
"""Channels of a block, for which it has shared memory."""
_LARGEST_CLUSTER, _HOST_CLUSTER = 16, 8
_PORTABLE_CLUSTER = 8
"""Blocks of the largest cluster that every GPU with clusters takes; larger ones are chosen where all of them run at once."""
_KEPT_OF_TWO = 6
"""With more values of the image in registers, a multiprocessor runs one block at a time instead of two."""
_RATE, _GPU_RATE = 45, 1500
"""Bytes that a multiprocessor, and the GPU, read from L2 or write in a cycle."""
_BEGIN, _EXCHANGE, _EXCHANGE_OF_BLOCK = 1600, 400, 20
"""Cycles of a cluster beside its reads and writes: always, where blocks exchange sums, and for each block.

These numbers were fitted to the times of all forms of 12 blocks of EfficientNet-B0, MobileNetV3 and RegNetY at batch 1, 8 and 32 on an
H200: the form with the least estimate takes 4 % longer than the fastest on average, 23 % at most.
"""


@dataclass(frozen=True)
class SqueezeExciteProblem:
    """What is computed.

    Attributes:
        x: Format of the images, NHWC, float16 or float32.
        y: Format of the scaled images, or of a number for each channel; NHWC, of x's type.
        hidden: Outputs of the first product.
        squeeze: Activation behind the first product, and its bounds; see ``FuseConvolutions``.
        excite: The same behind the second product.
        scales: Whether the result is the images times the numbers for their channels, not these numbers.
    """

    x: Format
    y: Format
    hidden: int
    squeeze: tuple[str, Sequence[float]]
    excite: tuple[str, Sequence[float]]
    scales: bool

    @classmethod
    def of(cls, attributes: Mapping[str, Any], x: Format, y: Format, weights: tuple[int, ...]) -> SqueezeExciteProblem:
        """Make the problem of a step, from its attributes, formats, and the dims of its first weights."""
        squeeze, excite = (
            (attributes[f"{name}_activation"], tuple(attributes[f"{name}_bounds"])) for name in ("squeeze", "excite")
        )
        return cls(x, y, weights[0], squeeze, excite, bool(attributes["scales"]))

    @property
    def pieces(self) -> int:
        """16-byte pieces of a pixel's channels."""
        return -(-self.x.dims[1] // self.x.vector)

    @property
    def hidden_pitch(self) -> int:
        """Values of a row of the second matrix: a multiple of 16 bytes."""
        return -(-self.hidden // self.x.vector) * self.x.vector


@dataclass(frozen=True)
class SqueezeExciteForm:
    """How an image is spread over the blocks of a cluster.

    Attributes:
        problem: What is computed.
        groups: Runs of channels, each of the same number of blocks.
        shares: Parts of the pixels, each of one block for each run of channels.
        threads: Threads of a block.
    """

    problem: SqueezeExciteProblem
    groups: int
    shares: int
    threads: int

    @property
    def blocks(self) -> int:
        """Blocks of a cluster."""
        return self.groups * self.shares

    @property
    def pieces(self) -> int:
        """16-byte pieces of a pixel that a block reads."""
        return -(-self.problem.pieces // self.groups)

    @property
    def channels(self) -> int:
        """Channels of a block, padding included."""
        return self.pieces * self.problem.x.vector

    @property
    def fits(self) -> bool:
        """Whether there are as many channels and pixels, and a block has enough threads and memory for its own."""
        _, _, h, w = self.problem.x.dims
        has_work = self.groups <= self.problem.pieces and self.shares <= h * w
        return has_work and self.pieces <= self.threads and self.channels <= _MAX_CHANNELS

    def cycles(self, multiprocessors: int) -> float:
        """Estimated cycles of all images on a GPU with this many multiprocessors."""
        (n, _, h, w), size = self.problem.x.dims, self.problem.x.dtype.itemsize
        pixels = -(-h * w // self.shares)
        turns = -(-pixels // (self.threads // self.pieces))
        room = multiprocessors * (2 if turns <= _KEPT_OF_TWO else 1) // self.blocks
        image = pixels * max(self.pieces, 4) * 16 * (1 + self.problem.scales)  # less than 64 bytes take as long
        weights = 2 * self.problem.hidden * self.channels * size
        exchange = _EXCHANGE + _EXCHANGE_OF_BLOCK * self.blocks if self.blocks > 1 else 0
        cluster = (image + weights) / _RATE + exchange + _BEGIN
        return max(cluster * -(-n // max(1, room)), n * self.blocks * (image + weights) / _GPU_RATE)

    def packed_weights(self, first: npt.NDArray[Any], second: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Both matrices as the kernel reads them, one behind the other.

        Args:
            first: (hidden, channels), float32.
            second: (channels, hidden), float32.
        """
        (hidden, c), width = first.shape, self.groups * self.channels
        kind = self.problem.x.dtype.numpy
        matrices = np.zeros((hidden, width), kind), np.zeros((width, self.problem.hidden_pitch), kind)
        with np.errstate(over="ignore"):
            matrices[0][:, :c], matrices[1][:c, :hidden] = first, second
        return np.concatenate([matrix.reshape(-1) for matrix in matrices])

    def packed_biases(self, first: npt.NDArray[Any], second: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Both biases, (hidden) and (channels), one behind the other, the second one with padding."""
        padding = np.zeros(self.groups * self.channels - len(second), np.float32)
        return np.concatenate([first, second, padding]).astype(np.float32)


def choose_form(
    problem: SqueezeExciteProblem, multiprocessors: int, max_cluster: int, threads: int = _THREADS
) -> SqueezeExciteForm:
    """The form with the least estimated time.

    Args:
        problem: What is computed.
        multiprocessors: Multiprocessors of the GPU.
        max_cluster: Blocks of a cluster at most.
        threads: Threads of a block.

    Raises:
        ValueError: there are too many channels for a cluster.
    """
    powers = [2**power for power in range(max_cluster.bit_length())]
    forms = (SqueezeExciteForm(problem, *spread, threads) for spread in itertools.product(powers, powers))
    images = problem.x.dims[0]
    fitting = [
        form
        for form in forms
        if form.fits
        and form.blocks <= max_cluster
        and (form.blocks <= _PORTABLE_CLUSTER or images * form.blocks <= multiprocessors)
    ]
    if not fitting:
        raise ValueError(f"expected at most {max_cluster * _MAX_CHANNELS} channels, found {problem.x.dims[1]}")
    return min(fitting, key=lambda form: form.cycles(multiprocessors))


class SqueezeExciteKernel:
    """The kernel of squeeze_excite.cu for one step, with its weights.

    Args:
        device: Where it runs.
        problem: What is computed.
        weights: The constants: matrix and bias of the first product, matrix and bias of the second one.
        form: How images are spread over blocks; None: the form with the least estimated time.

    Attributes:
        kernels: The kernels of possible forms; the first one that the GPU can run is launched.
    """

    def __init__(
        self,
        device: Device,
        problem: SqueezeExciteProblem,
        weights: Sequence[npt.NDArray[Any]],
        form: SqueezeExciteForm | None = None,
    ) -> None:
        self._device, self._weights = device, weights
        self._forms = _forms(device, problem) if form is None else [form]
        self.kernels = [_kernel(device, form) for form in self._forms]

    def prepare(self, tensors: Sequence[Tensor]) -> Launch:
        """Return a function that queues the kernel for the images and the result."""
        pairs = list(zip(self._forms, self.kernels, strict=True))
        form, kernel = next((pair for pair in pairs if pair[1].runs_clusters()), pairs[-1])
        first, first_bias, second, second_bias = (array.astype(np.float32) for array in self._weights)
        matrices = form.packed_weights(first.reshape(len(first), -1), second.reshape(len(second), -1))
        constants = [self._device.upload(each) for each in (matrices, form.packed_biases(first_bias, second_bias))]
        x, y = tensors
        queue = kernel.bound([x.flat, *constants, y.flat])

        def launch(stream: Any, kept: Any = constants) -> None:
            queue(stream)

        return launch


def squeeze_excite_text(form: SqueezeExciteForm) -> str:
    """The source of a form's kernel."""
    problem = form.problem
    _, c, h, w = problem.x.dims
    numbers = {
        "C": c, "AREA": h * w, "X_PITCH": problem.x.pitch, "Y_PITCH": problem.y.pitch, "MID": problem.hidden,
        "GROUPS": form.groups, "SHARES": form.shares, "THREADS": form.threads, "SCALES": int(problem.scales),
        "SQUEEZE_ACTIVATION": int(ACTIVATIONS[problem.squeeze[0]]),
        "EXCITE_ACTIVATION": int(ACTIVATIONS[problem.excite[0]]),
    }  # fmt: skip
    bounds = zip(
        ("SQUEEZE_A", "SQUEEZE_B", "EXCITE_A", "EXCITE_B"), (*problem.squeeze[1], *problem.excite[1]), strict=True
    )
    floats = {"FACTOR": 1 / (h * w), **dict(bounds)}
    lines = [f"typedef {C_TYPES[problem.x.dtype]} T;"]
    lines += [f"constexpr int {name} = {number};" for name, number in numbers.items()]
    lines += [f"#define {name} {operand_text(Number.of(value, DType.FLOAT32))}" for name, value in floats.items()]
    before = sources("early.cu", "codes.cu", "activations.cu", "nhwc.cu", "cluster.cu")
    return "\n".join((before, *lines, sources("squeeze_excite.cu")))


# -- inside ----------------------------------------------------------------------------------------------------------------


def _forms(device: Device, problem: SqueezeExciteProblem) -> list[SqueezeExciteForm]:
    """The fastest form, and if its clusters are larger than every GPU takes them, the fastest with smaller ones."""
    if not isinstance(device, CudaDevice):
        return [choose_form(problem, _HOST_CLUSTER, _HOST_CLUSTER, _HOST_THREADS)]
    portable = largest_cluster(device)
    sizes = [_LARGEST_CLUSTER, portable] if portable > 1 else [1]
    return list(dict.fromkeys(choose_form(problem, device.multiprocessors, size) for size in sizes))


def _kernel(device: Device, form: SqueezeExciteForm) -> GeneratedKernel:
    """The kernel of a form."""
    text, blocks = squeeze_excite_text(form), form.problem.x.dims[0] * form.blocks
    return GeneratedKernel(device, text, "squeeze_excite", blocks, form.threads, in_turns=False, cluster=form.blocks)
