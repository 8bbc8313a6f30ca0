"""Resizing and sampling of images."""

from __future__ import annotations

import numpy as np

from ..draft import Draft, Unfit
from .table import builds

_MODES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]


def _factors(draft: Draft, rank: int, mode: str) -> list[float]:
    """Factors of each axis; axes of batch and channels stay, as most kernels want."""
    inner = [float(draft.one(2.0, 0.5, 1.5, 1.7, 0.6, 3.0, 1.0)) for _ in range(rank - 2)]
    if mode == "cubic" and rank != 4:
        raise Unfit("cubic is of images")
    return [1.0] * min(2, rank) + inner if rank > 2 else [float(draft.one(2.0, 0.5, 1.5)) for _ in range(rank)]


@builds("Resize")
def resize(draft: Draft) -> None:
    mode = draft.attribute("mode", "nearest", "linear", "cubic", default="nearest")
    rank = draft.one(4, 4, 4, 3, 5, 2)
    if mode == "cubic":
        rank = 4
        if draft.version < 11:
            raise Unfit("no cubic in 10")
    if mode == "linear" and draft.version < 13:
        rank = 4
    dims = (*draft.one((1, 1), (1, 2), (2, 3)), *(draft.one(2, 3, 4, 5) for _ in range(rank - 2)))
    image = draft.values(dims, draft.type_of(draft.schema.inputs[0].type_str))
    if draft.version < 11:
        draft.read(image)
        draft.read(np.array(_factors(draft, rank, mode), np.float32))
        draft.exact = mode == "nearest"
        return
    modes = [*_MODES, "tf_crop_and_resize"] + (["half_pixel_symmetric"] if draft.version >= 19 else [])
    if draft.version < 13:
        modes.append("tf_half_pixel_for_nn")
    placed = draft.attribute("coordinate_transformation_mode", *modes, default="half_pixel")
    if mode == "nearest":
        draft.attribute("nearest_mode", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    if mode == "cubic":
        draft.attribute("cubic_coeff_a", -0.75, -0.5)
        draft.attribute("exclude_outside", 0, 1)
    if mode in ("linear", "cubic") and draft.chance(0.3):
        draft.attribute("antialias", 0, 1)
    axes = None
    if draft.has("axes") and draft.chance(0.4):
        axes = [axis - rank if draft.chance(0.3) else axis for axis in range(2, rank)] or None
        if axes:
            draft.set("axes", axes)
    factors = _factors(draft, rank, mode)
    if axes:
        factors = factors[2:]
    draft.read(image)
    crop = placed == "tf_crop_and_resize"
    if crop:
        draft.attribute("extrapolation_value", 0.0, 2.0)
        count = len(factors)
        roi = np.concatenate([np.zeros(count), np.ones(count)])
        first = 2 if len(factors) == rank and rank > 2 else 0
        roi[first:count], roi[count + first :] = draft.one((0.1, 0.8), (-0.2, 1.2), (0.0, 0.5))
        draft.read(roi.astype(draft.type_of("T2")))
    elif draft.version < 13:
        draft.read(np.zeros(0, draft.type_of("T2")))
    else:
        draft.skip()
    by_sizes = draft.chance(0.4)
    sizes = [max(1, int(np.floor(dims[-len(factors) + i] * f))) for i, f in enumerate(factors)]
    if by_sizes:
        if draft.version < 13:
            draft.read(np.zeros(0, np.float32))
        else:
            draft.skip()
        draft.read(np.array(sizes, np.int64))
        if draft.has("keep_aspect_ratio_policy") and draft.chance(0.4) and axes:
            draft.set("keep_aspect_ratio_policy", draft.one("not_larger", "not_smaller", "stretch"))
    else:
        draft.read(np.array(factors, np.float32))
    draft.loose = 8.0


@builds("Upsample")
def upsample(draft: Draft) -> None:
    mode = draft.attribute("mode", "nearest", "linear", default="nearest")
    dims = (1, draft.one(1, 2), draft.one(2, 3), draft.one(2, 3, 4))
    height, width = float(draft.one(1.0, 2.0, 3.0)), float(draft.one(2.0, 1.5, 1.0))
    draft.tensor(dims)
    if draft.version < 7:
        draft.set("height_scale", height)
        draft.set("width_scale", width)
        draft.attributes.setdefault("mode", "nearest")
        if draft.attributes["mode"] == "linear":
            draft.attributes["mode"] = "bilinear"
    elif draft.version < 9:
        draft.set("scales", [1.0, 1.0, height, width])
    else:
        draft.read(np.array([1.0, 1.0, height, width], np.float32))
    draft.exact = mode == "nearest"


@builds("GridSample")
def grid_sample(draft: Draft) -> None:
    volume = draft.version >= 20 and draft.chance(0.3)
    modes = ("bilinear", "nearest", "bicubic") if draft.version < 20 else ("linear", "nearest", "cubic")
    mode = draft.attribute("mode", *(modes[:2] if volume else modes), default=modes[0])
    draft.attribute("padding_mode", "zeros", "border", "reflection")
    draft.attribute("align_corners", 0, 1)
    del mode
    n, c = draft.one(1, 2), draft.one(1, 2)
    image = [draft.one(2, 3, 4) for _ in range(3 if volume else 2)]
    draft.tensor((n, c, *image), "T1")
    grid = draft.rng.uniform(-1.4, 1.4, (n, *(draft.one(2, 3) for _ in image), len(image)))
    draft.read(grid.astype(draft.type_of("T2")))
    draft.loose = 16.0


@builds("RoiAlign")
def roi_align(draft: Draft) -> None:
    draft.attribute("mode", "avg", "max")
    draft.attribute("output_height", 1, 2, 3)
    draft.attribute("output_width", 1, 2, 3)
    draft.attribute("sampling_ratio", 0, 1, 2, 3)
    draft.attribute("spatial_scale", 1.0, 0.5)
    draft.attribute("coordinate_transformation_mode", "half_pixel", "output_half_pixel")
    draft.tensor((2, draft.one(1, 2), 6, 7), "T1")
    rois = np.array([[0.5, 1.0, 5.0, 4.5], [1.0, 0.0, 3.2, 5.9], [2.0, 2.0, 2.5, 2.5]])
    draft.read(rois.astype(draft.type_of("T1")))
    draft.read(np.array([0, 1, 1], np.int64))
    draft.loose = 8.0
