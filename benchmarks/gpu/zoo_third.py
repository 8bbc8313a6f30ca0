"""A third zoo: networks drawn from timm's list once the kernels were written, so that none of them was tuned on one.

``python -m benchmarks.gpu.zoo_third 123`` draws the networks of another seed, and prints what stands in `THIRD`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import torch

from .zoo_second import make_timm

__all__ = ["SEED", "THIRD", "draw"]

_COUNT, _LARGEST_SIDE, _MAX_WEIGHTS = 10, 256, 100_000_000
SEED = 0xDC92813E
"""The first 8 hexadecimal digits of the commit with the last kernel before the draw."""
SIDES: dict[str, int] = {
    "vit_wee_patch16_reg1_gap_256": 256,
    "eca_resnet33ts": 256,
    "dpn48b": 224,
    "pit_s_224": 224,
    "twins_pcpvt_large": 224,
    "starnet_s050": 224,
    "ghostnet_100": 224,
    "skresnet18": 224,
    "dla60x": 224,
    "lcnetv2_base": 224,
}
"""What `draw` gives for `SEED` and timm 1.0.31: network → side of its images."""
THIRD: dict[str, dict[str, Any]] = {
    name: {"module": partial(make_timm, name), "side": side} for name, side in SIDES.items()
}
"""Name → what the network is made of; the rest is as in zoo.py."""


def draw(seed: int) -> dict[str, int]:
    """Draw networks of different modules of timm, with images up to 256 pixels wide and up to 100 million weights.

    Args:
        seed: Orders timm's names.

    Returns:
        Network → side of its images.
    """
    return dict(islice(_candidates(seed), _COUNT))


def _candidates(seed: int) -> Iterator[tuple[str, int]]:
    import timm

    names, modules = sorted(timm.list_models()), set[str]()
    random.Random(seed).shuffle(names)
    for name in names:
        module, side = timm.model_entrypoint(name).__module__, timm.get_pretrained_cfg(name).input_size[-1]
        if module in modules or side > _LARGEST_SIDE:
            continue
        with torch.device("meta"):
            weights = sum(each.numel() for each in timm.create_model(name).parameters())
        if weights <= _MAX_WEIGHTS:
            modules.add(module)
            yield name, side


if __name__ == "__main__":
    print(draw(int(sys.argv[1])))
