"""JPEG files that nvImageCodec decodes on a GPU: nearly the pixels of the CPU, upright, and what is damaged is refused alike."""

import io

import numpy as np
import pytest
from PIL import Image as Pillow

from pytrtplugins.engines.cuda.device.device import CudaDevice
from pytrtplugins.engines.cuda.run.decoding import JpegDecoder
from pytrtplugins.errors import ImageError
from pytrtplugins.models import Yolov2
from pytrtplugins.vision import Sources, decode_image
from tests.engines.cuda.conftest import animals_engine
from tests.measures import sqnr

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu", "codec")]

SPOTS = np.random.default_rng(0).integers(0, 256, (7, 9, 3), dtype=np.uint8)


def encoded(size=(768, 576), mode=None, **options):
    file, image = io.BytesIO(), Pillow.fromarray(SPOTS).resize(size, Pillow.Resampling.BICUBIC)
    (image.convert(mode) if mode else image).save(file, "JPEG", quality=90, **options)
    return file.getvalue()


@pytest.fixture(scope="module")
def codec(gpu):
    pytest.importorskip("nvidia.nvimgcodec", reason='nvImageCodec is missing (pip install "pytrtplugins[nvjpeg]")')


@pytest.fixture(scope="module")
def decoder(gpu, codec):
    return JpegDecoder(CudaDevice())


@pytest.mark.parametrize(
    "options",
    [{}, {"subsampling": 0}, {"subsampling": 1}, {"progressive": True}, {"mode": "L"}, {"restart_marker_rows": 1}],
    ids=str,
)
def test_pixels_are_nearly_those_of_the_cpu(options, decoder):
    files = [encoded(size, **options) for size in [(768, 576), (33, 47), (1, 1), (640, 31)] * 3]
    for data, image in zip(files, decoder.decode(files), strict=True):
        wanted, found = decode_image(data), image.download()
        assert found.shape == wanted.shape == image.shape
        coarse = min(image.shape[:2]) < 100 and options.get("mode") != "L" and options.get("subsampling") != 0
        assert sqnr(wanted, found) > (18 if coarse else 35)  # chroma of few pixels is interpolated otherwise
        assert abs(found.astype(int) - wanted).mean() < (15 if coarse else 2)


@pytest.mark.parametrize("orientation", [1, 2, 3, 4, 5, 6, 7, 8])
def test_images_are_upright(orientation, decoder):
    exif = Pillow.Exif()
    exif[0x0112] = orientation
    data = encoded((96, 64), exif=exif, subsampling=0)
    (image,) = decoder.decode([data])
    assert abs(image.download().astype(int) - decode_image(data)).mean() < 2


def test_a_damaged_file_is_none_and_the_others_are_decoded(decoder):
    data = encoded()
    found = decoder.decode([data, data[:300] + b"\xff\xd9", b"nothing", data])
    assert [image is None for image in found] == [False, True, True, False]


@pytest.fixture(scope="module")
def engine(gpu, codec):
    return animals_engine([1, 8])


@pytest.mark.parametrize("batch", [1, 8])
def test_boxes_are_nearly_those_of_the_cpu(batch, engine, tmp_path):
    for number in range(20):
        (tmp_path / f"{number:02}.jpg").write_bytes(encoded((320 + 16 * number, 240 + number)))
    (tmp_path / "20.jpg").write_bytes(encoded()[:500])
    with Yolov2(engine, batch=batch) as detector:
        found = dict[str, list]()
        for decode in ("cpu", "gpu"):
            sources = Sources([tmp_path])
            rows = found[decode] = []
            with pytest.raises(ImageError, match="1 of 21 files"):
                rows.extend(detector.stream(sources, decode=decode, score_threshold=0.05))
    for (frame, wanted), (other, boxes) in zip(found["cpu"], found["gpu"], strict=True):
        assert other.name == frame.name
        assert len(boxes) == pytest.approx(len(wanted), abs=2)
        if len(wanted) and len(boxes):
            assert boxes.scores[0] == pytest.approx(wanted.scores[0], abs=0.05)
        assert abs(other.image.astype(int) - frame.image).mean() < 4
