"""One convolution as this engine runs it: the problem, its operands, and the kernel that runs on every GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from ....tensor import DType
from ....utils.matrices import fill_parts
from ..device.activation import ACTIVATIONS
from ..device.device import Device, Tensor
from ..device.elements import to_stored
from ..device.layout import Format, channels_last
from ..device.nhwc import KINDS
from ..device.source import nhwc_kernel

__all__ = [
    "Compiles",
    "ConvLaunch",
    "ConvProblem",
    "ConvProvider",
    "DirectProvider",
    "Operands",
    "Scratch",
    "epilogue_numbers",
    "epilogue_operands",
    "finishing",
]

_DIRECT = nhwc_kernel("direct")
_FINISH = nhwc_kernel("finish")
Pair = tuple[int, int]
Bounds = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class ConvProblem:
    """A convolution with its fusions: all that the choice of a kernel depends on; `conv_problem` makes it.

    Attributes:
        x: How the input lies.
        y: How the output lies.
        kernel: Height and width of the filters.
        strides: Down and across.
        pads: Above, left, below, right.
        dilations: Down and across.
        groups: Groups of channels.
        activation: A name of `ACTIVATIONS`.
        bounds: Parameters of `activation`: (slope, 0) for leaky, (low, high) for clip, (slope, offset) for hard_sigmoid.
        residual: How the tensor lies that is added; None without one.
        residual_activation: Behind the residual.
        residual_bounds: Likewise.
        tensor_cores: Whether tensor cores may be used: always for FP16, INT8 and FP8; for float32 only if TF32 is allowed.
        pool: Whether the largest of each 2x2 pixels is written; ``y`` has half the rows and columns then.
        element: What is multiplied, where x is an image as the user gives it, in another type or layout.
        reorg: Stride of darknet's reorg behind it; ``y`` has that many times fewer rows and columns then. 0: none.
        blocks: Side of the blocks of pixels that are made of its channels, those of a pixel side by side; ``y`` has that many
            times more rows and columns then. 0: none.
        cut: Pixels of the blocks that are not written: above, left, below, right.
    """

    x: Format
    y: Format
    kernel: Pair
    strides: Pair = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: Pair = (1, 1)
    groups: int = 1
    activation: str = "linear"
    bounds: Bounds = (0.0, 0.0)
    residual: Format | None = None
    residual_activation: str = "linear"
    residual_bounds: Bounds = (0.0, 0.0)
    tensor_cores: bool = True
    pool: bool = False
    element: DType | None = None
    reorg: int = 0
    blocks: int = 0
    cut: tuple[int, int, int, int] = (0, 0, 0, 0)

    @property
    def reshaped(self) -> bool:
        """Whether a fused operation changes the dims or layout of y: a pool, reorg, DepthToSpace or linear output."""
        return self.pool or self.reorg > 0 or self.blocks > 0 or not self.y.nhwc

    @property
    def fused(self) -> bool:
        """Whether a pool, reorg, DepthToSpace, image input or linear output is fused: not a plain NHWC convolution."""
        return self.reshaped or self.element is not None

    @property
    def unfused(self) -> ConvProblem:
        """The NHWC convolution alone, without fused pool, reorg, DepthToSpace or image input."""
        (n, k, h, w), s = self.y.dims, 2 if self.pool else self.reorg or 1
        x = self.x if self.element is None else channels_last(self.x.dims, self.element)
        dims = (n, k // s**2 if self.reorg else k, h * s, w * s)
        if self.blocks:
            top, left, bottom, right = self.cut
            rows, columns = ((h + top + bottom) // self.blocks, (w + left + right) // self.blocks)
            dims = (n, k * self.blocks**2, rows, columns)
        y = channels_last(dims, self.y.dtype, dense=self.reorg > 0) if self.reshaped else self.y
        return replace(self, x=x, y=y, pool=False, element=None, reorg=0, blocks=0, cut=(0, 0, 0, 0))

    @property
    def key(self) -> str:
        """The problem as a text, for the cache of tactics."""
        form = f"x {self.x} y {self.y} {self.kernel} {self.strides} {self.pads} {self.dilations} groups {self.groups}"
        behind = f"{self.residual_activation} {self.residual_bounds[0]:g}"
        residual = f" + {self.residual} {behind}" if self.residual else ""
        strict = "" if self.tensor_cores else " strict"
        return f"{form} {self.activation} {self._bounds}{residual}{strict}{self._fusion}"

    @property
    def title(self) -> str:
        """The problem in words, for people."""
        (n, c, h, w), k, (r, s) = self.x.dims, self.unfused.y.dims[1], self.kernel
        words = [f"{r}x{s}, {c} → {k} channels, {n} x {h}x{w}, {self.element or self.x.dtype} → {self.y.dtype}"]
        words += [f"stride {self.strides[0]}"] if self.strides != (1, 1) else []
        words += ["dilation {}x{}".format(*self.dilations)] if self.dilations != (1, 1) else []
        words += [f"{self.groups} groups"] if self.groups > 1 else []
        words += ["image"] if self.element is not None else []
        words += ["residual"] if self.residual is not None else []
        words += ["pool"] if self.pool else []
        words += ["reorg"] if self.reorg else []
        words += [f"blocks {self.blocks}x{self.blocks}"] if self.blocks else []
        words += ["linear"] if not self.y.nhwc else []
        return ", ".join(words)

    @property
    def _bounds(self) -> str:
        return " ".join(f"{bound:g}" for bound in self.bounds[: 1 if self.activation in ("linear", "leaky") else 2])

    @property
    def _fusion(self) -> str:
        behind = " pool" if self.pool else f" reorg {self.reorg}" if self.reorg else ""
        behind += f" blocks {self.blocks} but {self.cut}" if self.blocks else ""
        return f"{behind}{f' of {self.element}' if self.element else ''}"

    @property
    def filters(self) -> int:
        """Channels of the output, padding included, as far as nothing else lies there."""
        k = self.y.dims[1]
        if not self.y.nhwc or self.reorg or self.blocks:
            return self.unfused.y.dims[1]
        return min(self.y.pitch, -(-k // self.y.vector) * self.y.vector) if k % self.y.vector else k

    @property
    def flops(self) -> int:
        """Floating-point or integer operations."""
        n, k, h, w = self.unfused.y.dims
        return 2 * n * k * h * w * self.x.dims[1] // self.groups * self.kernel[0] * self.kernel[1]


@dataclass(frozen=True, kw_only=True)
class Operands:
    """A convolution's constants.

    Attributes:
        load: Gives the weights: (K, C / groups, R, S), float32, or codes of int8 or FP8.
        bias: (K) float32.
        scale: (K) float32, what sums of codes are multiplied by; None for float.
        y_scale: The output's scale; 1 for float.
        slopes: (K) float32, of activation ``"prelu"``, before or behind the residual; None without it.
        residual_scale: The residual's scale; 1 for float.
        x_scale: The scale of codes that are made of a float image.
        packed: Copies on the device in the forms that kernels want, by form; shared by all contexts.
        kept: The weights with channels last, by element type, for the forms to come; None: they are made anew for each form.
    """

    load: Callable[[], npt.NDArray[Any]]
    bias: npt.NDArray[np.float32]
    scale: npt.NDArray[np.float32] | None = None
    slopes: npt.NDArray[np.float32] | None = None
    y_scale: float = 1.0
    residual_scale: float = 1.0
    x_scale: float = 1.0
    packed: dict[str, Any] = field(default_factory=dict)
    kept: dict[DType, npt.NDArray[Any]] | None = None

    @property
    def weights(self) -> npt.NDArray[Any]:
        """The weights; an engine that was loaded reads them from its file."""
        return self.load()

    def channels_last(self, dtype: DType) -> npt.NDArray[Any]:
        """The weights as (K, R * S, C / groups), of an element type."""
        kept = {} if self.kept is None else self.kept
        if dtype not in kept:
            weights = self.weights
            taps_first = weights.reshape(*weights.shape[:2], -1).transpose(0, 2, 1)
            if taps_first.dtype == dtype.numpy and taps_first.flags.c_contiguous:
                kept[dtype] = taps_first
            else:
                copy = np.empty(taps_first.shape, dtype.numpy)
                kept[dtype] = fill_parts(copy, lambda part: np.copyto(copy[part], taps_first[part], casting="unsafe"))
        return kept[dtype]

    def slopes_of(self, problem: ConvProblem) -> list[npt.NDArray[np.float32]]:
        """The slopes of PRelu, which are packed after the biases; empty where the problem has none.

        Raises:
            ValueError: it has them, and they are not (K), in a file that was forged.
        """
        if "prelu" not in (problem.activation, problem.residual_activation):
            return []
        if self.slopes is None or self.slopes.shape != self.bias.shape:
            raise ValueError("an activation 'prelu' without a slope for each filter")
        return [self.slopes]

    def on_device(self, device: Device, form: Sequence[object], size: int, make: Callable[[], npt.NDArray[Any]]) -> Any:
        """The device copy of the operands in a packed form; made once.

        Args:
            device: Where it lives.
            form: All that the copy depends on beside the operands.
            size: Its bytes.
            make: Makes it.

        Raises:
            ValueError: it has another size, in a file that was forged.
        """
        name = " ".join(map(str, form))
        if name not in self.packed:
            self.packed[name] = device.upload(np.ascontiguousarray(make()))
        copy = self.packed[name]
        if copy.nbytes != size:
            raise ValueError(f"the packed form {name!r} has {copy.nbytes} bytes, expected {size}")
        return copy


class Scratch:
    """Shared workspace of the kernels of one stream: regions by name, each as large as its largest request.

    Attributes:
        bytes: How much is reserved.
    """

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self._memory: Any = None

    @property
    def bytes(self) -> int:
        """Reserved bytes."""
        return sum(-(-size // 256) * 256 for size in self._sizes.values())

    def region(self, name: str, size: int) -> Callable[[], Any]:
        """Reserve bytes; returns a function that returns the region after `fill`."""
        self._sizes[name] = max(self._sizes.get(name, 0), size)
        return lambda: self._region(name)

    def fill(self, device: Device) -> None:
        """Allocate the reserved bytes."""
        self._memory = device.allocate(self.bytes + 256)

    def _region(self, name: str) -> Any:
        begin = 0
        for other, size in self._sizes.items():
            if other == name:
                break
            begin += -(-size // 256) * 256
        return self._memory[begin : begin + max(self._sizes[name], 1)]


ConvLaunch = Callable[[Tensor, Tensor, "Tensor | None", Any], None]
"""Queues the convolution: x, y, residual, stream."""


class ConvProvider(Protocol):
    """A family of kernels for convolutions."""

    name: str

    def tactics(self, problem: ConvProblem) -> Iterable[str]:
        """Names of the kernels that can run a problem, the most promising first; none: none can."""

    def prepare(self, problem: ConvProblem, tactic: str, operands: Operands, scratch: Scratch) -> ConvLaunch:
        """Load a kernel and pack the operands."""


@runtime_checkable
class Compiles(ConvProvider, Protocol):
    """A family whose kernels are compiled one for each tactic."""

    def compile(self, problem: ConvProblem, tactic: str) -> None:
        """Compile a tactic's kernel, so that `prepare` finds it on the disk; any thread may do that."""


class DirectProvider:
    """A thread for each value: right everywhere, fast only for depthwise convolutions."""

    name = "direct"

    def __init__(self, device: Device) -> None:
        self.device = device

    def tactics(self, problem: ConvProblem) -> Sequence[str]:
        """One, for every convolution from NHWC to NHWC."""
        return [] if problem.fused else ["direct"]

    def prepare(self, problem: ConvProblem, tactic: str, operands: Operands, scratch: Scratch) -> ConvLaunch:
        """Weights as [r][s][c][k], the filters padded with zeros."""
        (n, c, h, w), (_, k, oh, ow), filters = problem.x.dims, problem.y.dims, problem.filters
        kind = problem.x.dtype.numpy

        def packed() -> npt.NDArray[Any]:
            room = [(0, 0)] * 3 + [(0, filters - k)]
            return to_stored(np.pad(operands.weights.transpose(2, 3, 1, 0), room).astype(kind))

        size = problem.kernel[0] * problem.kernel[1] * c // problem.groups * filters * kind.itemsize
        weights = operands.on_device(self.device, ("rsck", filters, kind.name), size, packed)
        scale, bias = epilogue_operands(self.device, problem, operands)

        def launch(x: Tensor, y: Tensor, residual: Tensor | None, stream: Any) -> None:
            _DIRECT.launch(
                x.flat, weights, scale, bias, None if residual is None else residual.flat, y.flat,
                n, h, w, c, problem.x.pitch, oh, ow, k, filters, problem.y.pitch, problem.kernel, problem.strides,
                problem.pads[:2], problem.dilations, problem.groups, *epilogue_numbers(problem, operands),
                threads=n * oh * ow * filters, stream=stream,
            )  # fmt: skip

        return launch


def epilogue_operands(device: Device, problem: ConvProblem, operands: Operands) -> tuple[Any, Any]:
    """Upload scale and bias, with slopes after the bias."""
    given, size = operands.scale, operands.bias.nbytes
    scale = None if given is None else operands.on_device(device, ["scale"], size, lambda: given)
    rows = [operands.bias, *operands.slopes_of(problem)]
    return scale, operands.on_device(device, ["bias"], size * len(rows), lambda: np.concatenate(rows))


def epilogue_numbers(problem: ConvProblem, operands: Operands) -> tuple[Any, ...]:
    """The kernel arguments of the epilogue, from the activation on."""
    residual = problem.residual
    return (
        int(ACTIVATIONS[problem.activation]),
        problem.bounds,
        0 if residual is None else residual.pitch,
        0 if residual is None else KINDS[residual.dtype],
        operands.residual_scale,
        int(ACTIVATIONS[problem.residual_activation]),
        problem.residual_bounds,
        KINDS[problem.y.dtype],
        operands.y_scale,
    )


def finishing(
    device: Device, problem: ConvProblem, operands: Operands, pitch: int
) -> Callable[[Any, Tensor, Tensor | None, Any], None]:
    """Make a function (sums, y, residual, stream) that queues the epilogue alone.

    Args:
        device: Where arrays live.
        problem: The convolution from NHWC to NHWC.
        operands: Its constants.
        pitch: Sums from one pixel to the next.
    """
    (n, k, oh, ow), filters = problem.y.dims, problem.filters
    scale, bias = epilogue_operands(device, problem, operands)
    numbers = epilogue_numbers(problem, operands)

    def launch(sums: Any, y: Tensor, residual: Tensor | None, stream: Any) -> None:
        _FINISH.launch(
            sums, pitch, scale, bias, None if residual is None else residual.flat, y.flat, n * oh * ow, k, filters,
            problem.y.pitch, *numbers, threads=n * oh * ow * filters, stream=stream,
        )  # fmt: skip

    return launch
