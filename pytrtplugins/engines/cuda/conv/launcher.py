"""A loaded convolution kernel with its arguments."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from ....cuda.driver import Launch, TensorMap, kernel_fields, tensor_map
from ....errors import KernelError
from ..device.source import load_kernel
from .shape import ConvShape
from .tactics import Tactic, im2col_corners

__all__ = ["Addresses", "ConvArgs", "ConvKernel", "conv_arguments"]


class ConvArgs(ctypes.Structure):
    """``ConvArgs`` of common.cu, field by field."""

    _fields_ = kernel_fields(
        pointers="x weights scale bias residual y",
        ints="h w channel_bytes x_pitch oh ow pixels kernel_h kernel_w units chunks stride_h stride_w pad_h pad_w "
        "dilation_h dilation_w filters y_pitch residual_pitch tiles_m tiles_n patches_h patches_w halo_lines halo_pitch vector "
        "group_filters group_bytes cut_top cut_left rows columns",
        floats="slope residual_scale residual_slope step low high",
    )


class Addresses(NamedTuple):
    """Device addresses of a convolution's arrays.

    Attributes:
        x: Its input, at a multiple of 16 bytes.
        weights: From `pack_weights`.
        scale: From `pack_filters`; divided by the output's scale.
        bias: Likewise; slopes, where there are any, behind those of all tiles.
        y: Its output.
        residual: What is added; 0 without one.
    """

    x: int
    weights: int
    scale: int
    bias: int
    y: int
    residual: int = 0


def conv_arguments(shape: ConvShape, tactic: Tactic, at: Addresses, residual_scale: float, y_scale: float) -> ConvArgs:
    """Make the argument structure of a kernel."""
    y_pitch = shape.y_pitch * shape.y_type.itemsize
    rows, columns = shape.block_sides
    lines, pitch = tactic.halo(shape) if tactic.family == "halo" else (0, 0)
    patches = -(-shape.oh // (tactic.tile_m // 8)), -(-shape.ow // 8)
    if tactic.family == "halo" and not tactic.spatial_tile:
        patches = tactic.tiles(shape)[0] // shape.n, 1
    return ConvArgs(
        **at._asdict(),
        h=shape.h,
        w=shape.w,
        channel_bytes=shape.channel_bytes,
        x_pitch=shape.x_pitch * shape.x_type.itemsize,
        oh=shape.oh,
        ow=shape.ow,
        pixels=shape.pixels,
        kernel_h=shape.kernel[0],
        kernel_w=shape.kernel[1],
        units=tactic.steps(shape),
        chunks=tactic.chunks(shape),
        stride_h=shape.strides[0],
        stride_w=shape.strides[1],
        pad_h=shape.pads[0],
        pad_w=shape.pads[1],
        dilation_h=shape.dilations[0],
        dilation_w=shape.dilations[1],
        filters=shape.k,
        y_pitch=y_pitch,
        residual_pitch=0 if shape.residual_type is None else shape.residual_pitch * shape.residual_type.itemsize,
        tiles_m=tactic.tiles(shape)[0],
        tiles_n=tactic.tiles(shape)[1],
        patches_h=patches[0],
        patches_w=patches[1],
        halo_lines=lines,
        halo_pitch=pitch,
        vector=int(not (shape.reorg or shape.linear) and y_pitch % 16 == 0 and at.y % 16 == 0),
        group_filters=shape.group_filters,
        group_bytes=shape.group_channels * shape.x_type.itemsize,
        cut_top=shape.cut[0],
        cut_left=shape.cut[1],
        rows=rows,
        columns=columns,
        slope=shape.slope,
        residual_scale=residual_scale,
        residual_slope=shape.residual_slope,
        step=y_scale,
        low=shape.bounds[0],
        high=shape.bounds[1],
    )


class ConvKernel:
    """A convolution's kernel in the current context.

    Args:
        shape: The problem.
        tactic: Its sizes.
        capability: The GPU's compute capability, 90 for 9.0.
        y_scale: The output's scale; 1 for floats.
        multiprocessors: The GPU's.

    Raises:
        KernelError: it does not compile, or the GPU refuses it.
    """

    def __init__(
        self, shape: ConvShape, tactic: Tactic, capability: int, y_scale: float = 1.0, multiprocessors: int = 132
    ) -> None:
        self.shape, self.tactic, self.capability, self.y_scale = shape, tactic, capability, y_scale
        self.multiprocessors = multiprocessors
        self._function = load_kernel(
            f"conv_{tactic.family}.cu", tactic.definitions(shape), capability, tactic.shared_bytes(shape)
        )
        self._launches: dict[tuple[Addresses, float, bool], Launch] = {}

    def launch(self, at: Addresses, stream: int, residual_scale: float = 1.0, programmatic_launch: bool = True) -> None:
        """Queue it; nothing is allocated on the device, so that it can be captured.

        Args:
            at: Its arrays.
            stream: The stream's number.
            residual_scale: What the residual is multiplied by.
            programmatic_launch: Whether it may start before the kernel before it has ended.
        """
        key = at, residual_scale, programmatic_launch
        if (launch := self._launches.get(key)) is None:
            launch = self._launches[key] = self._prepare(*key)
        launch(stream)

    def _prepare(self, at: Addresses, residual_scale: float, programmatic_launch: bool) -> Launch:
        shape, tactic = self.shape, self.tactic
        arguments: list[ctypes.Structure] = [conv_arguments(shape, tactic, at, residual_scale, self.y_scale)]
        if tactic.family in ("hopper", "halo"):
            arguments.insert(0, _tensor_map(shape, tactic, at.x))
        grid, programmatic_launch = (
            tactic.blocks(shape, self.multiprocessors),
            programmatic_launch and self.capability >= 90,
        )
        return Launch(self._function, grid, tactic.threads, arguments, tactic.split_k, programmatic_launch)


def _tensor_map(shape: ConvShape, tactic: Tactic, address: int) -> TensorMap:
    size = shape.x_type.itemsize
    if address % 16:
        raise KernelError(
            "engine 'cuda': a convolution's input must begin at a multiple of 16 bytes", path="x", line=None
        )
    sizes = (shape.c, shape.w, shape.h, shape.n)
    pitch = shape.x_pitch * size
    strides = (pitch, pitch * shape.w, pitch * shape.w * shape.h)
    if tactic.family == "halo":
        lines, columns = tactic.halo(shape)
        return tensor_map(address, size, sizes, strides, tactic.depth, (columns, lines))
    if tactic.spatial_tile:
        return tensor_map(address, size, sizes, strides, tactic.depth, (8, tactic.tile_m // 8))
    places = im2col_corners(shape), (shape.strides[1], shape.strides[0])
    return tensor_map(address, size, sizes, strides, tactic.depth, tactic.tile_m, *places)
