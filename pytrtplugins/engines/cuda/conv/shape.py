"""The parameters of a convolution for handwritten kernels."""

from __future__ import annotations

from dataclasses import dataclass

from ....tensor import DType
from ..device.activation import ACTIVATIONS, Activation
from ..device.layout import KIND
from .problem import ConvProblem

__all__ = ["ConvShape"]

_SLOPED = ("linear", "leaky")
"""Activations that are max(v, slope * v)."""
_COMPUTED = ACTIVATIONS.keys() - {"tanh", "mish"}
"""Activations that these kernels have a formula for."""


@dataclass(frozen=True, kw_only=True)
class ConvShape:
    """One convolution: y = activation(scale * sum + bias), with a residual, a 2x2 pool, darknet's reorg or blocks behind it.

    Tensors are NHWC; a pitch is the stride between pixels in values, so that a tensor may be a run of channels of a
    larger one. Sums are exact in int32 for int8, and float32 for others.

    Attributes:
        n: Images.
        h: Rows of x.
        w: Columns of x.
        c: Channels of x.
        x_pitch: Values between pixels of x; with its type a multiple of 16 bytes, but 1 where there are planes.
        k: Filters that are written.
        oh: Rows of y, before pool, reorg and blocks.
        ow: Columns of y, before pool, reorg and blocks.
        y_pitch: Values between pixels of what is written.
        kernel: Height and width of the filters.
        strides: Down and across.
        pads: Above and left; what is missing below and at the right follows from ``oh`` and ``ow``.
        dilations: Down and across.
        x_type: float32, float16, int8 or FP8.
        y_type: Likewise.
        slope: max(v, slope * v) is the activation: 1 linear, 0.1 darknet's leaky, and 0 relu of what is finite.
        gate: Number of another `Activation` in its place; 0: none. One of them has a slope for each filter.
        bounds: Of clip the lowest and the highest; of hard_sigmoid slope and offset.
        residual_type: Type of what is added after the activation; None: nothing is.
        residual_pitch: Its values between pixels.
        residual_slope: The activation after the residual.
        residual_gate: Number of another one in its place, relu or the one with a slope for each filter; 0: none.
        pool: Whether the largest of each 2x2 pixels is written; scales must be positive.
        reorg: Stride of darknet's reorg on the way to memory; 0: none.
        blocks: Side of the blocks of pixels that are made of the filters, those of a pixel side by side; 0: none.
        cut: Pixels of the blocks that are not written: above, left, below, right.
        linear: y is [n][k][row][column] without gaps, not NHWC.
        planes: Channels of x, at most 4, where it is [n][channel][row][column]; ``c`` is 4 then. 0: NHWC. float32 only.
        group_channels: Channels of a group; 0: there are no groups. Not for float32.
        group_filters: Filters of a group; 0: likewise.
    """

    n: int
    h: int
    w: int
    c: int
    x_pitch: int
    k: int
    oh: int
    ow: int
    y_pitch: int
    kernel: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    x_type: DType = DType.FLOAT16
    y_type: DType = DType.FLOAT16
    slope: float = 1.0
    gate: int = 0
    bounds: tuple[float, float] = (0.0, 0.0)
    residual_type: DType | None = None
    residual_pitch: int = 0
    residual_slope: float = 1.0
    residual_gate: int = 0
    pool: bool = False
    reorg: int = 0
    blocks: int = 0
    cut: tuple[int, int, int, int] = (0, 0, 0, 0)
    linear: bool = False
    planes: int = 0
    group_channels: int = 0
    group_filters: int = 0

    @classmethod
    def of(cls, problem: ConvProblem) -> ConvShape | None:
        """The problem in the kernels' own terms; None where they have none for it."""
        x, y, residual = problem.x, problem.y, problem.residual
        single, image, groups = x.dtype is DType.FLOAT32, problem.element is not None, problem.groups
        if x.dtype not in KIND or (single and problem.tensor_cores) or x.nhwc == image:
            return None
        if 1 < groups == x.dims[1] == problem.unfused.y.dims[1]:  # depthwise: a family of its own
            return None
        if image and not (single and problem.element is x.dtype and x.dims[1] <= x.vector):
            return None
        if problem.activation not in _COMPUTED or problem.residual_activation not in (*_SLOPED, "prelu"):
            return None
        (n, c, h, w), (_, k, oh, ow) = x.dims, problem.unfused.y.dims
        return cls(
            n=n,
            h=h,
            w=w,
            c=-(-c // x.vector) * x.vector,
            x_pitch=x.pitch or 1,
            k=problem.filters,
            oh=oh,
            ow=ow,
            y_pitch=y.pitch,
            kernel=problem.kernel,
            strides=problem.strides,
            pads=problem.pads[:2],
            dilations=problem.dilations,
            x_type=x.dtype,
            y_type=y.dtype,
            slope=_slope(problem.activation, problem.bounds),
            gate=_gate(x.dtype, problem.activation, problem.bounds),
            bounds=problem.bounds if problem.activation in ("clip", "hard_sigmoid") else (0.0, 0.0),
            residual_type=None if residual is None else residual.dtype,
            residual_pitch=0 if residual is None else residual.pitch,
            residual_slope=_slope(problem.residual_activation, problem.residual_bounds),
            residual_gate=_gate(DType.FLOAT32, problem.residual_activation, problem.residual_bounds),
            pool=problem.pool,
            reorg=problem.reorg,
            blocks=problem.blocks,
            cut=problem.cut,
            linear=not y.nhwc,
            planes=c if image else 0,
            group_channels=c // groups if groups > 1 else 0,
            group_filters=k // groups if groups > 1 else 0,
        )

    @property
    def pixels(self) -> int:
        """Pixels of y before pool and reorg, over all images."""
        return self.n * self.oh * self.ow

    @property
    def block_sides(self) -> tuple[int, int]:
        """Rows and columns of the output of the fused DepthToSpace."""
        top, left, bottom, right = self.cut
        return self.oh * self.blocks - top - bottom, self.ow * self.blocks - left - right

    @property
    def has_slopes(self) -> bool:
        """Whether each filter has a slope."""
        return Activation.PRELU in (self.gate, self.residual_gate)

    @property
    def filter_bytes(self) -> int:
        """Bytes of the numbers that a filter needs behind its sums: a scale, a bias and perhaps a slope."""
        return 12 if self.has_slopes else 8

    @property
    def channel_bytes(self) -> int:
        """Bytes of x's channels in a pixel."""
        return self.c * self.x_type.itemsize

    def first_channel(self, filter_index: int) -> int:
        """The first channel that a tile reads whose first filter is given: its first group's, at a multiple of 16 bytes."""
        if not self.group_filters:
            return 0
        first, lanes = filter_index // self.group_filters * self.group_channels, 16 // self.x_type.itemsize
        return first // lanes * lanes

    def window_bytes(self, tile_n: int) -> int:
        """Bytes of channels that a tile of filters reads: all, or from its first group's to its last one's.

        Args:
            tile_n: Filters of a tile.
        """
        if not self.group_filters:
            return self.channel_bytes
        ends = (
            min(((begin + tile_n - 1) // self.group_filters + 1) * self.group_channels, self.c)
            - self.first_channel(begin)
            for begin in range(0, self.k, tile_n)
        )
        return max(ends) * self.x_type.itemsize

    @property
    def taps(self) -> int:
        """The number of taps of a filter."""
        return self.kernel[0] * self.kernel[1]

    def unsupported(self) -> str:
        """Why the kernels cannot compute it; empty when they can."""
        if self.x_type not in KIND or self.y_type not in KIND:
            return f"{self.x_type} to {self.y_type}"
        if self.planes and (self.x_type is not DType.FLOAT32 or (self.c, self.x_pitch) != (4, 1) or self.planes > 4):
            return f"{self.planes} planes of {self.x_type}"
        if (self.x_pitch * self.x_type.itemsize % 16 and not self.planes) or self.channel_bytes % 16:
            return "channels that do not fill 16 bytes"
        if self.group_filters and self.x_type is DType.FLOAT32:
            return "groups of float32"
        if not (0 <= self.slope <= 1 and 0 <= self.residual_slope <= 1):
            return "slopes outside of 0 to 1"
        if self.residual_type is not None and (self.pool or self.reorg or self.residual_type not in KIND):
            return "a residual of another form than y"
        if self.pool and (self.oh % 2 or self.ow % 2 or self.reorg):
            return "a pool of an odd size"
        if self.linear and self.reorg:
            return "a linear reorg"
        if self.blocks and (
            self.pool or self.reorg or self.linear or self.residual_type or self.k % (16 * self.blocks**2)
        ):
            return "blocks that do not fit"
        if self.reorg and (self.oh % self.reorg or self.ow % self.reorg or self.k % self.reorg**2):
            return "a reorg that does not fit"
        return ""


def _gate(summed: DType, activation: str, bounds: tuple[float, float]) -> int:
    """Relu has a number of its own where a sum can be infinite, since minus infinity times a slope of 0 is NaN."""
    if activation not in _SLOPED:
        return int(ACTIVATIONS[activation])
    infinite = activation == "leaky" and not bounds[0] and summed in (DType.FLOAT16, DType.FLOAT32)
    return int(Activation.RELU if infinite else Activation.LINEAR)


def _slope(activation: str, bounds: tuple[float, float]) -> float:
    return bounds[0] if activation == "leaky" else 1.0
