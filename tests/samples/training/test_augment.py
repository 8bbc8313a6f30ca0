"""Augmentation on a pool of photos."""

from __future__ import annotations

import numpy as np

from tests.samples.needs_torch import torch
from training import augment
from training.augment import Augmenter, draw_random_numbers, render
from training.batch import Pool, as_pool

AMOUNTS = torch.tensor([0.75, 0.4, 1.6, 0.4])
CPU = torch.device("cpu")


def make_pool() -> Pool:
    rng = np.random.default_rng(5)
    pixels = torch.from_numpy(rng.integers(0, 256, (6, 32, 32, 3), dtype=np.uint8))
    size = torch.tensor([[32, 24], [20, 32], [32, 32], [16, 10], [32, 8], [31, 29]], dtype=torch.float32)
    boxes = torch.full((6, 3, 5), -1.0)
    for i, (w, h) in enumerate(size.tolist()):
        for j in range(i % 3 + 1):
            boxes[i, j] = torch.tensor(
                [(i + j) % 3, w * 0.1 * j, h * 0.1 * j, w * 0.1 * j + w * 0.7, h * 0.1 * j + h * 0.6]
            )
    return Pool(pixels, size, boxes)


def draw(pool: Pool, seed: int, step: int):
    torch.manual_seed(seed * 1_000_003 + step + 1)  # as the loop does
    return Augmenter(CPU, pool, 0.5).draw(draw_random_numbers(4, CPU), AMOUNTS, 64)


def test_a_step_is_drawn_as_the_first_shipped_network_was_trained() -> None:
    """Values that the first version of the augmentation gave for this pool, seed and step."""
    images, truth, valid = draw(make_pool(), 7, 11)
    means = [[0.5544, 0.560685, 0.574482], [0.505474, 0.495188, 0.498824], [0.476043, 0.507145, 0.479787]]
    means += [[0.544724, 0.52899, 0.562254]]
    torch.testing.assert_close(images.mean((2, 3)), torch.tensor(means), rtol=0, atol=2e-5)
    row = [
        [0.59035, 0.48846, 0.38115, 0.76733],
        [0.45417, 0.53497, 0.3557, 0.66613],
        [0.59343, 0.54612, 0.44605, 0.72832],
    ]
    torch.testing.assert_close(images[0, :, 0, ::21], torch.tensor(row), rtol=0, atol=2e-5)
    assert valid.sum(1).tolist() == [2, 10, 5, 6]
    boxes = [[0.0, 0.02051, 1.30442, 0.82884, 0.0], [0.33179, 0.0, 2.0, 1.0748, 0.0]]
    torch.testing.assert_close(truth[0][valid[0]], torch.tensor(boxes), rtol=0, atol=2e-5)


def test_each_photo_of_a_loaded_batch_is_drawn() -> None:
    """In a batch of plain colours image i shows that of photo i."""
    pixels = torch.arange(4, dtype=torch.uint8)[:, None, None, None].expand(4, 3, 32, 32).mul(60).contiguous()
    boxes = torch.tensor([0.0, 0.5, 0.5, 1.0, 1.0]).expand(4, 1, 5)
    batch = as_pool(pixels, torch.full((4, 2), 32.0), boxes, torch.ones(4, 1, dtype=torch.bool))
    plan, _, valid = Augmenter(CPU).plan(draw_random_numbers(4, CPU), torch.tensor([0.0, 1.0, 1.0, 0.0]), 64, batch)
    colour = torch.cat([torch.eye(3), torch.zeros(3, 1)], 1).expand(4, 3, 4)
    storage = augment._with_halves(batch)
    images = render(storage, plan._replace(colour=colour, holes=torch.zeros(4, 4, 4)), 64)
    assert (images[:, 0, 32, 32] * 255 / 60).round().tolist() == [0, 1, 2, 3]
    assert valid.any(1).all()


def test_room_behind_the_photos_is_used_for_their_copies() -> None:
    """A set that fills most of a GPU is not copied."""
    pool = make_pool()
    storage = torch.zeros(6 * (32 * 32 + 16 * 16), 3, dtype=torch.uint8)
    storage[: 6 * 32 * 32] = pool.pixels.view(-1, 3)
    roomy = Pool(storage[: 6 * 32 * 32].view(6, 32, 32, 3), pool.size, pool.boxes, storage)
    found = augment._with_halves(roomy)
    assert found.data_ptr() == storage.data_ptr()
    assert torch.equal(found, augment._with_halves(pool))


def test_photos_without_boxes_are_drawn_too() -> None:
    pool = make_pool()
    pool.boxes.fill_(-1)
    _, _, valid = draw(pool, 0, 0)
    assert not valid.any()


def test_some_images_have_light_and_dark_exchanged_and_all_else_as_before() -> None:
    torch.manual_seed(0)
    lots = draw_random_numbers(400, CPU)
    plain, other = Augmenter(CPU)._colours(lots), Augmenter(CPU, negative=0.25)._colours(lots)
    changed = (plain != other).flatten(1).any(1)
    assert torch.equal(changed, lots["grey"] > 0.75)
    rgb, luma = torch.rand(3), torch.tensor(augment.LUMA)

    def shown(colours):
        return colours[..., :3] @ rgb + colours[..., 3]

    before, after = shown(plain[changed]), shown(other[changed])
    torch.testing.assert_close(after @ luma, 1 - before @ luma)
    lightness = [(each @ luma)[:, None] for each in (before, after)]
    torch.testing.assert_close(after - lightness[1], before - lightness[0])  # colours stay


def test_photos_of_a_class_with_few_boxes_are_drawn_more_often() -> None:
    """Sheep come in flocks: three boxes a photo here, in as many photos as there are horses."""
    boxes = torch.full((4, 3, 5), -1.0)
    boxes[:2, 0, 0] = 0.0  # a horse each
    boxes[2:, :, 0] = 1.0
    pool = Pool(torch.zeros(4, 8, 8, 3, dtype=torch.uint8), torch.full((4, 2), 8.0), boxes)
    torch.testing.assert_close(augment._shares(pool, 1.0), torch.full((4,), 0.25))
    torch.testing.assert_close(augment._shares(pool, 0.0, 1.0), torch.tensor([3.0, 3.0, 1.0, 1.0]) / 8)


def test_pixels_of_an_image_are_mapped_to_those_of_its_photo_or_of_the_half_sized_copy() -> None:
    """u = a x + b and v = c y + d, and the width and height: of a copy in whole pixels, without the last odd one."""
    image, scale, offset = torch.tensor([[33.0, 21.0]] * 3), torch.tensor([2.0, 4.0]), torch.tensor([8.0, 12.0])
    flip, level = torch.tensor([False, True, False]), torch.tensor([1.0, 1.0, 0.5])
    found = augment._affine(image[None], scale.expand(1, 3, 2), offset.expand(1, 3, 2), flip[None], level[None])
    assert found[0].tolist() == [
        [0.5, -4, 0.25, -3, 33, 21],
        [-0.5, 33 + 4, 0.25, -3, 33, 21],
        [0.25, -2, 0.125, -1.5, 16, 10],
    ]
