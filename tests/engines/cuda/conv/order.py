"""Which tactics there are for which convolutions: ``python -m tests.engines.cuda.conv.order`` lists them.

These are those that are tried first for YOLOv2's convolutions, in an order that was fitted to times on an H200: another one needs
times again. Below, for a convolution with one change at a time, how many tactics each family has, and a checksum of all that a
launch is given.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pytrtplugins.engines.cuda.conv.depthwise import DepthwiseProvider
from pytrtplugins.engines.cuda.conv.launcher import Addresses, conv_arguments
from pytrtplugins.engines.cuda.conv.problem import ConvProblem
from pytrtplugins.engines.cuda.conv.shape import ConvShape
from pytrtplugins.engines.cuda.conv.skinny_gemm import SkinnyGemmProvider
from pytrtplugins.engines.cuda.device.device import HostDevice
from pytrtplugins.engines.cuda.device.layout import Format, channels_last, linear
from pytrtplugins.tensor import DType
from tests.engines.cuda.conv.shapes import FP8, HALF, INT8, SINGLE, YOLOV2, square, tactics_of

LIST = Path(__file__).with_suffix(".txt")
_FAMILIES = {"hopper": (HALF, INT8, FP8), "halo": (HALF, FP8), "mma": (HALF, INT8, FP8), "simt": (SINGLE,)}


def order() -> Iterator[str]:
    """A line for each family, element type, batch and convolution, with its first tactics."""
    for family, kinds in _FAMILIES.items():
        for kind, batch in ((kind, batch) for kind in kinds for batch in (1, 8)):
            for side, c, k, kernel, pool in YOLOV2:
                found = tactics_of(family, square(batch, side, c, k, kernel, kind, pool=pool))
                names = " ".join(tactic.name for tactic in found[:4])
                yield f"{family} {kind} {batch}x{c}x{side} {k} of {kernel}{' pool' * pool}: {names}"


def changed(kind: DType) -> Iterator[tuple[str, ConvProblem]]:
    """Convolutions of 3x3 filters on 64 channels of 16x16 pixels, with one change of each."""
    image = channels_last((2, 64, 16, 16), kind)
    base = ConvProblem(x=image, y=image, kernel=(3, 3), pads=(1, 1, 1, 1))
    yield "as it is", base
    for channels in (1, 3, 16, 40, 48, 200):
        x = channels_last((2, channels, 16, 16), kind)
        yield f"{channels} channels", replace(base, x=x)
        yield f"{channels} filters", replace(base, y=x)
    for sides in ((4, 4), (7, 13), (64, 64)):
        x = channels_last((1, 64, *sides), kind)
        yield f"sides {sides}", replace(base, x=x, y=x)
    one = {"kernel": (1, 1), "pads": (0, 0, 0, 0)}
    for rows in (1, 8, 9):
        x = channels_last((rows, 64, 1, 1), kind)
        yield f"{rows} rows", replace(base, x=x, y=x, **one)
        yield f"{rows} rows, strides", replace(base, x=x, y=x, **{**one, "strides": (2, 1)})
    half, pooled = (channels_last((2, 64, *sides), kind) for sides in ((8, 16), (8, 8)))
    wide = channels_last((2, 256, 8, 8), kind)
    for changes in (
        *({"pads": pads} for pads in ((1, 1, 1, 0), (0, 1, 2, 1), (2, 0, 0, 2))),
        *({"kernel": (1, 1), "pads": pads} for pads in ((0, 0, 0, 0), (1, 0, -1, 0))),
        *(
            {"kernel": kernel, "pads": (kernel[0] // 2, kernel[1] // 2) * 2}
            for kernel in ((5, 3), (3, 7), (7, 7), (9, 9))
        ),
        *({"groups": groups} for groups in (2, 4, 16, 64)),
        *(
            {"activation": name, "bounds": (0.25, 2.0)}
            for name in ("leaky", "clip", "logistic", "swish", "gelu", "prelu")
        ),
        {"strides": (2, 1), "y": half},
        {"dilations": (2, 1), "pads": (2, 1, 2, 1)},
        {"dilations": (2, 2), "pads": (2, 2, 2, 2), "groups": 64},
        {"residual": image},
        {"residual": image, "residual_activation": "leaky", "residual_bounds": (0.1, 0.0)},
        {"residual": image, "activation": "logistic", "residual_activation": "clip", "residual_bounds": (0.0, 1.0)},
        {"residual": Format(image.dims, kind, 80)},
        {"x": Format(image.dims, kind, 80)},
        {"x": Format(image.dims, kind, 65)},
        {"y": Format(image.dims, kind, 80)},
        {"y": Format(image.dims, kind, 65)},
        *({"y": channels_last(image.dims, other)} for other in (HALF, SINGLE, INT8, FP8) if other is not kind),
        {"y": linear(image.dims, SINGLE)},
        {"tensor_cores": False},
        {"pool": True, "y": pooled},
        {"reorg": 2, "y": wide},
        {"blocks": 2, "y": channels_last((2, 16, 32, 32), kind)},
        {"blocks": 2, "y": channels_last((2, 16, 31, 30), kind), "cut": (1, 0, 0, 2)},
    ):
        yield ", ".join(f"{name} {value}" for name, value in changes.items()), replace(base, **changes)


def launches(problem: ConvProblem) -> Iterator[str]:
    """For each family how many tactics a convolution has, and a checksum of what their launches are given."""
    shape, at = ConvShape.of(problem), Addresses(16, 32, 48, 64, 80, 96 if problem.residual else 0)
    refusal = "no shape" if shape is None else shape.unsupported()
    for family, capability in (("hopper", 90), ("halo", 90), ("mma", 80), ("mma", 89), ("simt", 90)):
        texts = []
        for tactic in [] if refusal or shape is None else tactics_of(family, shape, capability=capability):
            arguments = conv_arguments(shape, tactic, at, 0.5, 0.25)
            values = [
                list(value) if hasattr(value, "__len__") else value
                for value in (getattr(arguments, name) for name, _ in arguments._fields_)
            ]
            sizes = tactic.shared_bytes(shape), tactic.threads, tactic.blocks(shape, 132), tactic.definitions(shape)
            texts.append(f"{tactic.name} {sizes} {values}")
        yield f"{family} {len(texts)} {zlib.crc32(' '.join(texts).encode()):08x}" if texts else f"{family} 0"
    for provider in (SkinnyGemmProvider(HostDevice()), DepthwiseProvider(HostDevice())):
        yield f"{provider.name} {' '.join(provider.tactics(problem)[:4]) or 0}"
    yield refusal


def variants() -> Iterator[str]:
    """A line for each change and element type."""
    for kind in (HALF, INT8, FP8, SINGLE):
        for what, problem in changed(kind):
            yield f"{kind}, {what}: {'; '.join(launches(problem))}"


if __name__ == "__main__":
    LIST.write_text("".join(f"{line}\n" for line in (*order(), *variants())))
