"""Augmentation on the device: small tensors plan what goes where, then one pass draws a whole batch.

A plan is a few hundred numbers an image; only the drawing touches pixels, so that it compiles to one kernel.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from .batch import GREY, Pool

__all__ = ["STRIDE", "Augmenter", "Plan", "mix", "render"]

MAX_BOXES = 32  # boxes kept of a training image
TILES = 4  # images of a mosaic
STRIDE = 32
"""Pixels of the network's input that a cell covers."""


class Plan(NamedTuple):
    """How a batch is drawn: B images of four tiles each.

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
    """Plans batches over a pool of photos on the device: all photos of the set, or those that a loader gave for one step.

    Args:
        pool: The photos.
        balance: 0 draws photos uniformly; at 1 a photo is drawn in inverse proportion to its rarest class.
    """

    def __init__(self, pool: Pool, balance: float = 0.0) -> None:
        self.pixels = _with_halves(pool)
        self.count, self.side = pool.pixels.shape[:2]
        self.size, self.boxes, self.device = pool.size, pool.boxes, pool.pixels.device
        self._cumulative = _shares(pool, balance).cumsum(0)

    def plan(
        self,
        batch: int,
        out: int,
        mosaic_share: float,
        zoom: tuple[float, float],
        *,
        own: Tensor | None = None,
    ) -> tuple[Plan, Tensor, Tensor]:
        """Draw lots for a batch of ``out`` x ``out`` images, from the generator of the device, which the caller has seeded.

        Args:
            batch: Images.
            out: Their width and height in pixels.
            mosaic_share: Probability that an image is a mosaic of four images.
            zoom: Smallest and largest scale of a single image, 1 = fits exactly.
            own: (batch,) index of each image's first photo in the pool; only the partners in mosaics are drawn then. None: all are.

        Returns:
            The plan; boxes (B, MAX_BOXES, 5) as x1, y1, x2, y2 in cells and class; which of them count (B, MAX_BOXES).
        """
        source = torch.searchsorted(self._cumulative, self._rand(batch, TILES)).clamp(max=self.count - 1)
        if own is not None:
            source[:, 0] = own
        mosaic = self._rand(batch, 1) < mosaic_share
        centre = torch.where(mosaic, out * (0.3 + 0.4 * self._rand(batch, 2)), float(out))
        second = torch.tensor([[0, 0], [1, 0], [0, 1], [1, 1]], device=self.device).bool()  # is the tile right, low?
        low = torch.where(second, centre[:, None], 0.0)
        high = torch.where(second, float(out), centre[:, None])
        image = self.size[source]
        small, large = torch.where(mosaic, 0.3, zoom[0]), torch.where(mosaic, 1.2, zoom[1])
        scale = small * (large / small) ** self._rand(batch, TILES) * out / image.amax(2)
        aspect = torch.exp((self._rand(batch, TILES, 1) - 0.5) * torch.tensor([0.4, -0.4], device=self.device))
        scale = scale[..., None] * aspect
        offset = low + self._rand(batch, TILES, 2) * (high - low - image * scale)
        flip = self._rand(batch, TILES) < 0.5
        used = mosaic | ~second.any(1)
        truth, valid = self._place(source, image, scale, offset, flip, torch.cat([low, high], 2), used)
        shrunk = (scale.amin(2) < 0.6) | (self._rand(batch, TILES) < 0.1)  # from the half-size copy; some as a blur
        affine = _affine(image, scale, offset, flip, torch.where(shrunk, 0.5, 1.0))
        stride = torch.where(shrunk, self.side // 2, self.side)
        halves = self.count * self.side**2 + source * (self.side // 2) ** 2
        base = torch.where(shrunk, halves, source * self.side**2)
        drawn = torch.where(used, source, -1)
        return Plan(centre, affine, stride, base, self._colours(batch), self._holes(batch, out), drawn), truth, valid

    def _rand(self, *shape: int) -> Tensor:
        return torch.rand(*shape, device=self.device)

    def _place(
        self, source: Tensor, image: Tensor, scale: Tensor, offset: Tensor, flip: Tensor, tile: Tensor, used: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The boxes that are left of the images in their tiles: those still 5 pixels wide and a fifth of their area."""
        boxes = self.boxes[source]
        kind, x1, y1, x2, y2 = boxes.unbind(3)
        turned = torch.stack([image[..., :1] - x2, y1, image[..., :1] - x1, y2], 3)
        whole = torch.where(flip[..., None, None], turned, boxes[..., 1:])
        whole = whole * scale.repeat(1, 1, 2)[:, :, None] + offset.repeat(1, 1, 2)[:, :, None]
        lowest, highest = tile[..., :2].repeat(1, 1, 2)[:, :, None], tile[..., 2:].repeat(1, 1, 2)[:, :, None]
        cut = torch.maximum(torch.minimum(whole, highest), lowest)
        large = ((cut[..., 2:] - cut[..., :2]).amin(3) > 5) & (_area(cut) > 0.2 * _area(whole))
        keep = (kind >= 0) & used[..., None] & large
        truth = torch.cat([cut / STRIDE, kind[..., None]], 3).flatten(1, 2)
        first = keep.flatten(1).float().topk(min(MAX_BOXES, truth.shape[1]), 1)
        return truth.gather(1, first.indices[..., None].expand(-1, -1, 5)), first.values > 0

    def _holes(self, batch: int, out: int) -> Tensor:
        middle = self._rand(batch, 4, 2) * out
        half = (0.03 + 0.07 * self._rand(batch, 4, 2)) * out * (self._rand(batch, 4, 1) < 0.35)
        return torch.cat([middle - half, middle + half], 2)

    def _colours(self, batch: int) -> Tensor:
        """A 3x3 matrix and an offset each: hue turned, saturation, gain and brightness changed; a tenth in grey."""
        rgb_to_yiq = torch.tensor([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])
        yiq_to_rgb, rgb_to_yiq = torch.linalg.inv(rgb_to_yiq).to(self.device), rgb_to_yiq.to(self.device)
        angle, saturation = (self._rand(batch) - 0.5) * 0.5, 0.2 + 1.6 * self._rand(batch)
        saturation = torch.where(self._rand(batch) < 0.1, 0.0, saturation)
        gain = torch.exp((self._rand(batch) - 0.5) * 1.1)
        turn = torch.zeros(batch, 3, 3, device=self.device)
        turn[:, 0, 0] = 1
        turn[:, 1, 1] = turn[:, 2, 2] = saturation * angle.cos()
        turn[:, 1, 2], turn[:, 2, 1] = -saturation * angle.sin(), saturation * angle.sin()
        matrix = gain[:, None, None] * (0.9 + 0.2 * self._rand(batch, 3, 1)) * (yiq_to_rgb @ turn @ rgb_to_yiq)
        offset = 0.45 * (1 - gain) + 0.25 * (self._rand(batch) - 0.5)
        return torch.cat([matrix, offset[:, None, None].expand(-1, 3, 1)], 2)


def _with_halves(pool: Pool) -> Tensor:
    """The pixels of all photos, (..., 3), and behind them those of their copies of half the width and height."""
    pixels, half = pool.pixels.reshape(-1, 3), pool.pixels.shape[1] // 2
    storage = torch.cat([pixels, pixels.new_empty(len(pool) * half**2, 3)]) if pool.storage is None else pool.storage
    halves = storage[len(pixels) :].view(len(pool), half, half, 3)
    for source, target in zip(pool.pixels.split(256), halves.split(256), strict=True):
        target[:] = functional.avg_pool2d(source.permute(0, 3, 1, 2).float(), 2).permute(0, 2, 3, 1).round().byte()
    return storage


def _area(boxes: Tensor) -> Tensor:
    return (boxes[..., 2:] - boxes[..., :2]).prod(-1)


def _shares(pool: Pool, balance: float) -> Tensor:
    """How often each photo is drawn: by its rarest class, softened by ``balance``."""
    if not balance:
        return torch.full((len(pool),), 1 / len(pool), device=pool.pixels.device)
    kind = pool.boxes[..., 0].long()
    present = (
        functional.one_hot(kind.clamp(min=0), max(0, int(kind.max())) + 1).mul(kind[..., None] >= 0).amax(1).float()
    )
    rarity = (present.sum(0).clamp(min=1).max() / present.sum(0).clamp(min=1)) ** balance
    weight = (present * rarity).amax(1).clamp(min=1)
    return weight / weight.sum()


def _affine(image: Tensor, scale: Tensor, offset: Tensor, flip: Tensor, level: Tensor) -> Tensor:
    """From a pixel of the image to one of the stored image, ``level`` being 0.5 for its half-size copy."""
    sign, start = torch.where(flip, -1.0, 1.0), torch.where(flip, image[..., 0], 0.0)
    columns = [sign * level / scale[..., 0], (start - sign * offset[..., 0] / scale[..., 0]) * level]
    rows = [level / scale[..., 1], -offset[..., 1] / scale[..., 1] * level]
    return torch.stack([*columns, *rows, (image[..., 0] * level).floor(), (image[..., 1] * level).floor()], 2)


def render(pixels: Tensor, plan: Plan, out: int) -> Tensor:
    """Draw the planned images with bilinear interpolation, (B, 3, out, out) in 0..1, channels last in memory."""
    centre, affine, stride, base, colour, holes, _ = plan
    r = torch.arange(out, device=pixels.device) + 0.5
    tile = (r[None, None] > centre[:, :1, None]).long() + 2 * (r[None, :, None] > centre[:, 1:, None]).long()

    def pick(table: Tensor) -> Tensor:
        return table.gather(1, tile.flatten(1)).view(tile.shape)

    u = pick(affine[..., 0]) * r + pick(affine[..., 1]) - 0.5
    v = pick(affine[..., 2]) * r[:, None] + pick(affine[..., 3]) - 0.5
    w, h, step, start = pick(affine[..., 4]), pick(affine[..., 5]), pick(stride), pick(base)
    inside = (u > -0.5) & (v > -0.5) & (u < w - 0.5) & (v < h - 0.5)
    for x1, y1, x2, y2 in holes[..., None, None].permute(1, 2, 0, 3, 4):
        inside = inside & ~((r > x1) & (r < x2) & (r[:, None] > y1) & (r[:, None] < y2))
    u, v = torch.minimum(u.clamp(min=0), w - 1), torch.minimum(v.clamp(min=0), h - 1)
    u0, v0, fraction_u, fraction_v = u.floor(), v.floor(), u.frac()[..., None], v.frac()[..., None]
    i = start + v0.long() * step + u0.long()
    right, down = (u0 + 1 < w).long(), (v0 + 1 < h).long() * step
    top = pixels[i].float() * (1 - fraction_u) + pixels[i + right].float() * fraction_u
    bottom = pixels[i + down].float() * (1 - fraction_u) + pixels[i + down + right].float() * fraction_u
    rgb = torch.where(inside[..., None], top * (1 - fraction_v) + bottom * fraction_v, float(GREY)) / 255
    rgb = (rgb[..., None, :] * colour[:, None, None, :, :3]).sum(-1) + colour[:, None, None, :, 3]
    return rgb.clamp(0, 1).permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)


def mix(images: Tensor, truth: Tensor, valid: Tensor, share: float) -> tuple[Tensor, Tensor, Tensor]:
    """Blend some images with their neighbour in the batch; those keep the boxes of both."""
    mixed = torch.rand(len(images), 1, device=images.device) < share
    weight = torch.where(mixed, 0.4 + 0.2 * torch.rand(len(images), 1, device=images.device), 0.0)[..., None, None]
    images = images.lerp(images.roll(1, 0), weight)
    return images, torch.cat([truth, truth.roll(1, 0)], 1), torch.cat([valid, valid.roll(1, 0) & mixed], 1)
