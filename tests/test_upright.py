"""Every reader of photos turns them upright as EXIF says; the oracle is Pillow's `ImageOps.exif_transpose`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pytrtplugins.calibration import ImageBatches
from pytrtplugins.cli.shared.samples import read_samples
from pytrtplugins.mlops.drift.features import measure_photos
from pytrtplugins.mlops.shards import PhotoSet, Shards, make_shards
from pytrtplugins.mlops.tables import LabelledImages
from pytrtplugins.models import YoloData
from pytrtplugins.serving import Model
from pytrtplugins.tensor import TensorDesc
from pytrtplugins.vision import Sources, decode_image, letterbox, load_image
from tests.mlops.shards.turned import form, turned

SIZE = (32, 32)


def fitted(image) -> np.ndarray:
    return np.asarray(letterbox(image, SIZE).data, np.float32)


def calibration(folder: Path):
    (batch,) = ImageBatches(folder / "images/a", SIZE, batch=1, mode="letterbox")
    return next(iter(batch.values()))[0]


def samples(folder: Path):
    (sample,) = read_samples(
        [folder], [TensorDesc("x", (1, 3, *SIZE))], limit=1, seed=0, mode="letterbox", split="val.txt"
    )
    return sample["x"][0]


def served(folder: Path):
    request = SimpleNamespace(body=(folder / "images/a/p.png").read_bytes(), max_image_bytes=1 << 20)
    return Model.preprocess(SimpleNamespace(), request)["image"]


def in_drift(photos):
    images = list[np.ndarray]()
    measure_photos(photos, 1, 0, lambda given: images.extend(given) or np.zeros((1, 1)), lambda: None)
    return images[0]


def in_shards(folder: Path):
    make_shards(folder, folder / "shards", exif="shown", progress=False)
    return in_drift(Shards.open(folder / "shards"))


IMAGES = {
    "load_image": lambda folder: load_image(folder / "images/a/p.png"),
    "pytrt run": lambda folder: next(iter(Sources([folder / "images/a"]))).image,
    "pytrt evaluate": lambda folder: YoloData(folder).image("images/a/p.png"),
    "pytrt serve": served,
    "pytrt table": lambda folder: LabelledImages(folder / "images").image("a/p.png"),
    "pytrt data compare": lambda folder: in_drift(PhotoSet.open(folder, labels="none")),
    "pytrt data compare, shards": in_shards,
}
INPUTS = {"calibration": calibration, "pytrt precision": samples}


@pytest.mark.parametrize("reader", [*IMAGES, *INPUTS])
def test_photos_are_read_upright(tmp_path, reader):
    for orientation in range(1, 9):
        folder = tmp_path / str(orientation)
        for name in ("images/a", "labels/a"):
            (folder / name).mkdir(parents=True)
        image = turned(orientation)
        (folder / "images/a/p.png").write_bytes(image)
        (folder / "labels/a/p.txt").write_text("0 0.5 0.5 0.25 0.5\n")
        (folder / "classes.txt").write_text("box\n")
        (folder / "val.txt").write_text("images/a/p.png\n")
        upright = np.asarray(form(image, "shown"))
        if reader in IMAGES:
            np.testing.assert_array_equal(IMAGES[reader](folder), upright)
        else:
            np.testing.assert_array_equal(INPUTS[reader](folder), fitted(upright))
    assert not np.array_equal(decode_image(image, exif=False).shape, upright.shape)  # the last one lies on its side
