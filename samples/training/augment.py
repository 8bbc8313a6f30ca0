"""GPU augmentation: draw random numbers, plan the crops, render the whole batch in one pass.

A plan is a few hundred numbers an image; only the drawing touches pixels. All but the lots is a function of tensors on the device,
without any number that the host has to know: it compiles as a whole, and a CUDA graph can replay it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from .batch import GREY, Pool

__all__ = ["MAX_BOXES", "STRIDE", "Augmenter", "Plan", "draw_random_numbers", "render"]

MAX_BOXES = 32
"""Boxes kept of a training image, unless more are asked for."""
TILES = 4  # images of a mosaic
STRIDE = 32
"""Pixels of the network's input that a cell covers."""
RANDOM_SHAPES: dict[str, tuple[int, ...]] = {
    "source": (TILES,),
    "mosaic": (1,),
    "centre": (2,),
    "scale": (TILES,),
    "aspect": (TILES, 1),
    "offset": (TILES, 2),
    "flip": (TILES,),
    "blur": (TILES,),
    "angle": (),
    "saturation": (),
    "grey": (),
    "gain": (),
    "channels": (3, 1),
    "brightness": (),
    "hole middle": (4, 2),
    "hole size": (4, 2),
    "hole": (4, 1),
    "mixed": (1,),
    "weight": (1,),
}
"""What is drawn by lots for an image, and how many numbers each takes; in this order."""
LUMA = [0.299, 0.587, 0.114]  # how light red, green and blue are
Lots = dict[str, Tensor]


def draw_random_numbers(images: int, device: torch.device) -> Lots:
    """Random numbers in 0..1 for each image, from the generator of the device, which the caller has seeded."""
    return {name: torch.rand(images, *shape, device=device) for name, shape in RANDOM_SHAPES.items()}


class Plan(NamedTuple):
    """How a batch is rendered: B images of four tiles each.

    Fields:
        centre: (B, 2) where the four tiles meet, in pixels of the image.
        affine: (B, 4, 6) image column = a0 * x + a1, image row = a2 * y + a3; then the image's width and height.
        stride: (B, 4) pixels of a row of the stored image.
        base: (B, 4) index of the image's first pixel among all stored pixels.
        colour: (B, 3, 4) colour matrix and offset.
        holes: (B, 4, 4) erased rectangles x1, y1, x2, y2; empty ones have no area.
        source: (B, 4) the photos' indices in the pool; -1 where a tile is not drawn.
    """

    centre: Tensor
    affine: Tensor
    stride: Tensor
    base: Tensor
    colour: Tensor
    holes: Tensor
    source: Tensor


class Augmenter:
    """Renders batches from a pool of photos on the device: all photos of the set, or those of one step.

    Args:
        device: Where.
        pool: All photos of the set; None: each call brings its own.
        balance: 0 draws photos of the set uniformly; at 1 a photo is drawn in inverse proportion to its rarest class.
        dtype: Element type of the images.
        boxes: The same as ``balance``, where a class is as rare as its boxes are, and not the photos that have it.
        negative: Share of the images in which light and dark are exchanged, while hues stay; 0.9 at most.
        most: Boxes kept of an image; of more than `MAX_BOXES` the largest.
    """

    def __init__(
        self,
        device: torch.device,
        pool: Pool | None = None,
        balance: float = 0.0,
        dtype: torch.dtype = torch.float32,
        *,
        boxes: float = 0.0,
        negative: float = 0.0,
        most: int = MAX_BOXES,
    ) -> None:
        self.pool = pool
        self._storage = None if pool is None else _with_halves(pool)
        # on the CPU, since a GPU adds up in an order of its own
        self._chances = None if pool is None else _shares(pool, balance, boxes).cpu().cumsum(0).to(device)
        self._dtype, self._turns, self._negative, self._most = dtype, _colour_turns().to(device), negative, most
        self._luma = torch.tensor(LUMA, device=device)

    def draw(self, lots: Lots, amounts: Tensor, out: int, batch: Pool | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Draw a batch of ``out`` x ``out`` images with their boxes.

        Args:
            lots: From `draw_random_numbers`; their number is that of the images.
            amounts: (4,) probability that an image is a mosaic of four images; smallest and largest scale of a single image, 1 = fits
                exactly; probability that an image is blended with its neighbour in the batch, of which it gets the boxes, too.
            out: Width and height in pixels.
            batch: Draw from these photos, and image i from photo i: only the partners in mosaics are drawn by lots.

        Returns:
            Images (B, 3, out, out) in 0..1, channels last in memory; boxes (B, 2 * most, 5) as x1, y1, x2, y2 in cells and class;
            which of them count (B, 2 * most).
        """
        storage = self._storage if batch is None else _with_halves(batch)
        plan, truth, valid = self.plan(lots, amounts, out, batch)
        images, mixed = render(storage, plan, out), lots["mixed"] < amounts[3]
        weight = torch.where(mixed, 0.4 + 0.2 * lots["weight"], 0.0)[..., None, None]
        images = images.lerp(images.roll(1, 0), weight).to(self._dtype)
        return images, torch.cat([truth, truth.roll(1, 0)], 1), torch.cat([valid, valid.roll(1, 0) & mixed], 1)

    def plan(self, lots: Lots, amounts: Tensor, out: int, batch: Pool | None = None) -> tuple[Plan, Tensor, Tensor]:
        """Plan a batch for :meth:`draw`: the plan, boxes (B, most, 5), and a mask of valid boxes (B, most)."""
        pool = self.pool if batch is None else batch
        count, side = pool.pixels.shape[:2]
        tile = torch.arange(TILES, device=pool.size.device)
        source = self._choose_photos(lots["source"], count, batch is None)
        if batch is not None:
            source = torch.where(tile == 0, torch.arange(count, device=pool.size.device)[:, None], source)
        mosaic = lots["mosaic"] < amounts[0]
        centre = torch.where(mosaic, out * (0.3 + 0.4 * lots["centre"]), float(out))
        second = torch.stack([tile % 2, tile // 2], 1).bool()  # is the tile right, low?
        low = torch.where(second, centre[:, None], 0.0)
        high = torch.where(second, float(out), centre[:, None])
        image = pool.size[source]
        small, large = torch.where(mosaic, 0.3, amounts[1]), torch.where(mosaic, 1.2, amounts[2])
        stretch = (lots["aspect"] - 0.5) * 0.4
        aspect = torch.exp(torch.cat([stretch, -stretch], 2))
        scale = (small * (large / small) ** lots["scale"] * out / image.amax(2))[..., None] * aspect
        offset = low + lots["offset"] * (high - low - image * scale)
        flip = lots["flip"] < 0.5
        used = mosaic | ~second.any(1)
        truth, valid = _place(
            pool.boxes[source], image, scale, offset, flip, torch.cat([low, high], 2), used, self._most
        )
        shrunk = (scale.amin(2) < 0.6) | (lots["blur"] < 0.1)  # from the half-size copy; some as a blur
        affine = _affine(image, scale, offset, flip, torch.where(shrunk, 0.5, 1.0))
        stride, base = _memory_of(source, shrunk, count, side)
        drawn = torch.where(used, source, -1)
        return Plan(centre, affine, stride, base, self._colours(lots), _holes(lots, out), drawn), truth, valid

    def _choose_photos(self, lots: Tensor, count: int, of_the_set: bool) -> Tensor:
        """Indices of photos: of the set, by their chances, or of a batch."""
        indices = torch.searchsorted(self._chances, lots.contiguous()) if of_the_set else (lots * count).long()
        return indices.clamp(max=count - 1)

    def _colours(self, lots: Lots) -> Tensor:
        """A 3x3 matrix and an offset each: hue turned, saturation, gain and brightness changed; a tenth in grey, others as negatives."""
        angle = (lots["angle"] - 0.5) * 0.5
        saturation = torch.where(lots["grey"] < 0.1, 0.0, 0.2 + 1.6 * lots["saturation"])
        gain = torch.exp((lots["gain"] - 0.5) * 1.1)
        along, across = ((saturation * part)[:, None, None] for part in (angle.cos(), angle.sin()))
        turned = self._turns[0] + along * self._turns[1] + across * self._turns[2]
        matrix = gain[:, None, None] * (0.9 + 0.2 * lots["channels"]) * turned
        offset = 0.45 * (1 - gain) + 0.25 * (lots["brightness"] - 0.5)
        if self._negative:  # drawn by the lot of grey, whose other end it takes: so all else is drawn as without it
            chosen = lots["grey"] > 1 - self._negative
            light = (self._luma[:, None] * matrix).sum(1, keepdim=True)  # which the offset is added to, too
            matrix = torch.where(chosen[:, None, None], matrix - 2 * light, matrix)
            offset = torch.where(chosen, 1 - offset, offset)
        return torch.cat([matrix, offset[:, None, None].expand(-1, 3, 1)], 2)


def _colour_turns() -> Tensor:
    """(3, 3, 3) matrices of RGB whose sum, weighted by 1, s cos(a) and s sin(a), turns hues by a and multiplies saturation by s, in YIQ."""
    to_yiq = torch.tensor([LUMA, [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])
    parts = torch.zeros(3, 3, 3)
    parts[0, 0, 0] = parts[1, 1, 1] = parts[1, 2, 2] = parts[2, 2, 1] = 1
    parts[2, 1, 2] = -1
    return torch.linalg.inv(to_yiq) @ parts @ to_yiq


def _holes(lots: Lots, out: int) -> Tensor:
    middle = lots["hole middle"] * out
    half = (0.03 + 0.07 * lots["hole size"]) * out * (lots["hole"] < 0.35)
    return torch.cat([middle - half, middle + half], 2)


def _place(
    boxes: Tensor, image: Tensor, scale: Tensor, offset: Tensor, flip: Tensor, tile: Tensor, used: Tensor, most: int
) -> tuple[Tensor, Tensor]:
    """Transform boxes into their tiles, and drop those smaller than 5 pixels or a fifth of their area."""
    kind, x1, y1, x2, y2 = boxes.unbind(3)
    turned = torch.stack([image[..., :1] - x2, y1, image[..., :1] - x1, y2], 3)
    placed = torch.where(flip[..., None, None], turned, boxes[..., 1:])
    placed = placed * scale.repeat(1, 1, 2)[:, :, None] + offset.repeat(1, 1, 2)[:, :, None]
    lowest, highest = tile[..., :2].repeat(1, 1, 2)[:, :, None], tile[..., 2:].repeat(1, 1, 2)[:, :, None]
    cut = torch.maximum(torch.minimum(placed, highest), lowest)
    large = ((cut[..., 2:] - cut[..., :2]).amin(3) > 5) & (_area(cut) > 0.2 * _area(placed))
    keep = (kind >= 0) & used[..., None] & large
    truth = torch.cat([cut / STRIDE, kind[..., None]], 3).flatten(1, 2)
    rank = keep.float() if most <= MAX_BOXES else keep * _area(cut)
    first = rank.flatten(1).topk(min(most, truth.shape[1]), 1)
    return truth.gather(1, first.indices[..., None].expand(-1, -1, 5)), first.values > 0


def _with_halves(pool: Pool) -> Tensor:
    """The pixels of all photos, (..., 3), followed by copies of half the width and height."""
    pixels, half = pool.pixels.reshape(-1, 3), pool.pixels.shape[1] // 2
    storage = torch.cat([pixels, pixels.new_empty(len(pool) * half**2, 3)]) if pool.storage is None else pool.storage
    halves = storage[len(pixels) :].view(len(pool), half, half, 3)
    for source, target in zip(pool.pixels.split(256), halves.split(256), strict=True):
        target[:] = functional.avg_pool2d(source.permute(0, 3, 1, 2).float(), 2).permute(0, 2, 3, 1).round().byte()
    return storage


def _memory_of(photo: Tensor, shrunk: Tensor, count: int, side: int) -> tuple[Tensor, Tensor]:
    """Pixels of a row, and the first pixel, of stored photos or of their copies of half the size."""
    half = side // 2
    return torch.where(shrunk, half, side), torch.where(shrunk, count * side**2 + photo * half**2, photo * side**2)


def _inside(boxes: Tensor, out: int) -> Tensor:
    """Mask of an image's pixels inside a box x1, y1, x2, y2, (..., 4) → (..., out, out)."""
    r = torch.arange(out, device=boxes.device) + 0.5
    x1, y1, x2, y2 = boxes[..., None, None].unbind(-3)
    return (r > x1) & (r < x2) & (r[:, None] > y1) & (r[:, None] < y2)


def _area(boxes: Tensor) -> Tensor:
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def _shares(pool: Pool, balance: float, boxes: float = 0.0) -> Tensor:
    """Sampling weights of photos: by their rarest class, softened by ``balance``, and by ``boxes`` if these count."""
    if not balance and not boxes:
        return torch.full((len(pool),), 1 / len(pool), device=pool.pixels.device)
    kind = pool.boxes[..., 0].long()
    class_counts = functional.one_hot(kind.clamp(min=0), max(0, int(kind.max())) + 1).mul(kind[..., None] >= 0)
    present, counts = class_counts.amax(1).float(), class_counts.sum((0, 1)).float()
    rarity = (present.sum(0).clamp(min=1).max() / present.sum(0).clamp(min=1)) ** balance
    rarity = rarity * (counts.max().clamp(min=1) / counts.clamp(min=1)) ** boxes
    weight = (present * rarity).amax(1).clamp(min=1)
    return weight / weight.sum()


def _affine(image: Tensor, scale: Tensor, offset: Tensor, flip: Tensor, level: Tensor) -> Tensor:
    """Affine map from a pixel of the image to one of the stored image; ``level`` is 0.5 for its half-size copy."""
    sign, start = torch.where(flip, -1.0, 1.0), torch.where(flip, image[..., 0], 0.0)
    columns = [sign * level / scale[..., 0], (start - sign * offset[..., 0] / scale[..., 0]) * level]
    rows = [level / scale[..., 1], -offset[..., 1] / scale[..., 1] * level]
    return torch.stack([*columns, *rows, (image[..., 0] * level).floor(), (image[..., 1] * level).floor()], 2)


def render(pixels: Tensor, plan: Plan, out: int) -> Tensor:
    """Draw the planned images with bilinear interpolation, (B, 3, out, out) in 0..1, channels last in memory.

    Args:
        pixels: All stored pixels, (..., 3) uint8.
        plan: What goes where.
        out: Width and height of the images.
    """
    centre, affine, stride, base, colour, holes, _ = plan
    r = torch.arange(out, device=pixels.device) + 0.5
    tile = (r[None, None] > centre[:, :1, None]).long() + 2 * (r[None, :, None] > centre[:, 1:, None]).long()

    def pick(table: Tensor) -> Tensor:
        return table.gather(1, tile.flatten(1)).view(tile.shape)

    u = pick(affine[..., 0]) * r + pick(affine[..., 1]) - 0.5
    v = pick(affine[..., 2]) * r[:, None] + pick(affine[..., 3]) - 0.5
    w, h, step, start = pick(affine[..., 4]), pick(affine[..., 5]), pick(stride), pick(base)
    inside = (u > -0.5) & (v > -0.5) & (u < w - 0.5) & (v < h - 0.5)
    for number in range(holes.shape[1]):
        inside = inside & ~_inside(holes[:, number], out)
    u, v = torch.minimum(u.clamp(min=0), w - 1), torch.minimum(v.clamp(min=0), h - 1)
    u0, v0, fraction_u, fraction_v = u.floor(), v.floor(), u.frac()[..., None], v.frac()[..., None]
    i = start + v0.long() * step + u0.long()
    right, down = (u0 + 1 < w).long(), (v0 + 1 < h).long() * step
    top = pixels[i].float() * (1 - fraction_u) + pixels[i + right].float() * fraction_u
    bottom = pixels[i + down].float() * (1 - fraction_u) + pixels[i + down + right].float() * fraction_u
    rgb = torch.where(inside[..., None], top * (1 - fraction_v) + bottom * fraction_v, float(GREY)) / 255
    rgb = (rgb[..., None, :] * colour[:, None, None, :, :3]).sum(-1) + colour[:, None, None, :, 3]
    return rgb.clamp(0, 1).permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
