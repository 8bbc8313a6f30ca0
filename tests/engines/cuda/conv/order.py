"""Which tactics are tried first for YOLOv2's convolutions: ``python -m tests.engines.cuda.conv.order`` lists them.

The order was fitted to times on an H200; another one needs times again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

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


if __name__ == "__main__":
    LIST.write_text("".join(f"{line}\n" for line in order()))
