"""Images become the numbers that a network takes."""

import numpy as np
import pytest

from pytrtplugins.errors import UsageError
from pytrtplugins.tensor import DType, TensorDesc
from pytrtplugins.vision import PIXELS
from pytrtplugins.vision.pixels import image_batches, image_input

IMAGE = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) * 10


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("0..255", lambda v, c: v),
        ("0..1", lambda v, c: v / 255),
        ("-1..1", lambda v, c: (v - 127.5) / 127.5),
        ("imagenet", lambda v, c: (v / 255 - (0.485, 0.456, 0.406)[c]) / (0.229, 0.224, 0.225)[c]),
    ],
)
def test_each_form_is_its_formula_channel_by_channel(name, formula):
    found = PIXELS[name]([IMAGE, IMAGE], (3, 2))
    assert found.shape == (2, 3, 2, 3)
    assert found.dtype == np.float32
    for channel in range(3):
        assert np.allclose(found[1, channel], formula(IMAGE[:, :, channel].astype(np.float64), channel), atol=1e-5)


def test_images_of_another_size_are_stretched():
    pytest.importorskip("cv2")
    found = PIXELS["0..255"]([np.full((9, 5, 3), 7, np.uint8)], (4, 6))
    assert found.shape == (1, 3, 6, 4)
    assert (found == 7).all()


def test_the_input_of_a_network_for_images_is_told():
    assert image_input([TensorDesc("data", ("N", 3, 8, 6), DType.FLOAT32)]) == ("data", (6, 8), None)
    assert image_input([TensorDesc("x", (4, 3, 8, 6), DType.FLOAT32)]) == ("x", (6, 8), 4)
    for dims in [("N", 1, 8, 8), ("N", 3, "H", 8), (3, 8, 8)]:
        with pytest.raises(UsageError, match="one input"):
            image_input([TensorDesc("x", dims, DType.FLOAT32)])


@pytest.mark.parametrize(
    ("batch", "counts", "rows"), [("N", [8, 3], [8, 3]), (4, [4, 4, 3], [4, 4, 4]), (1, [1] * 11, [1] * 11)]
)
def test_batches_have_all_images_in_order_and_the_last_one_is_repeated_where_the_batch_is_fixed(batch, counts, rows):
    images = [np.full((2, 3, 3), number, np.uint8) for number in range(11)]
    inputs = [TensorDesc("x", (batch, 3, 2, 3), DType.FLOAT32)]
    found = list(image_batches(iter(images), inputs, PIXELS["0..255"]))
    assert [count for _, count in found] == counts
    assert [len(arrays["x"]) for arrays, _ in found] == rows
    told = np.concatenate([arrays["x"][:count, 0, 0, 0] for arrays, count in found])
    assert told.tolist() == list(range(11))
    last, count = found[-1]
    assert (last["x"][count:] == 10).all()


def test_images_are_taken_when_their_batch_is_made():
    taken = []
    batches = image_batches(
        (taken.append(number) or IMAGE for number in range(9)),
        [TensorDesc("x", (2, 3, 2, 3), DType.FLOAT32)],
        PIXELS["0..1"],
    )
    next(batches)
    assert taken == [0, 1]
