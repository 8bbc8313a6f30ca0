"""JPEG files that the GPU decodes, with NumPy in its place and Pillow in nvImageCodec's; test_decoding_gpu.py has the real ones."""

from __future__ import annotations

import gc
import sys
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image as Pillow

from pytrtplugins.cuda.backends import host as host_backend
from pytrtplugins.engines.base.host_detection import HostDetection
from pytrtplugins.engines.cuda.run.detection import CudaDetection
from pytrtplugins.errors import ImageError, MissingExtraError, UsageError
from pytrtplugins.models import Yolov2, read_heads
from pytrtplugins.utils import optional
from pytrtplugins.vision import Sources, decode_image, device_images, save_image
from tests.engines.cuda.run.test_detection import Engine, NumpyAsCupy, Stream
from tests.engines.cuda.run.test_image_run import HostEngine, detection_model, executed, random_image

pytestmark = pytest.mark.skipif(not host_backend.available(), reason="no C++ compiler (apt-get install g++)")

PADDING = 5


class Codec(SimpleNamespace):
    """nvImageCodec, whose rows are padded. Its JPEG engines refuse what says "software"; all decoders refuse what says "refused"."""

    made = 0
    batches: list[int]
    seldom: list[int]
    ColorSpec = SimpleNamespace(SRGB=1)
    BackendKind = SimpleNamespace(HW_GPU_ONLY="engines")

    def CodeStream(self, data):
        return data

    def Backend(self, kind):
        return kind

    def DecodeParams(self, apply_exif_orientation, color_spec):
        assert apply_exif_orientation
        assert color_spec == 1

    def Decoder(self, device_id, backends=None):
        assert device_id == 0
        if backends is None:
            return CodecDecoder(self, self.seldom, [b"refused"])
        assert backends == ["engines"]
        return CodecDecoder(self, self.batches, [b"refused", b"software"])


class CodecDecoder:
    def __init__(self, codec, batches, refused):
        self.codec, self.batches, self.refused = codec, batches, refused

    def decode(self, streams, images, params, cuda_stream):
        self.batches.append(len(streams))
        return [
            None if any(word in data for word in self.refused) else self.decoded(data, used)
            for data, used in zip(streams, images, strict=True)
        ]

    def decoded(self, data, used):
        if used is None:
            self.codec.made += 1
            used = CodecImage()
        used.fill(decode_image(data))
        return used


class CodecImage:
    def fill(self, pixels):
        height, width, _ = self.shape = pixels.shape
        self.rows = np.full((height, 3 * width + PADDING), 99, np.uint8)
        self.rows[:, : 3 * width] = pixels.reshape(height, -1)

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.shape, "data": (self.rows.ctypes.data, False), "strides": (self.rows.strides[0], 3, 1)}

    def cpu(self):
        return np.ascontiguousarray(self.rows[:, : 3 * self.shape[1]]).reshape(self.shape)


class StreamWithAddress(Stream):
    ptr = 7


@pytest.fixture
def codec(monkeypatch):
    made = Codec(batches=[], seldom=[])
    monkeypatch.setitem(sys.modules, "nvidia.nvimgcodec", made)
    monkeypatch.setitem(optional._imported, "nvidia.nvimgcodec", made)
    monkeypatch.setattr(NumpyAsCupy, "cuda", SimpleNamespace(Stream=StreamWithAddress))
    return made


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return detection_model("region", tmp_path_factory.mktemp("model"))


@pytest.fixture
def detector(model):
    engine = Engine(model, batches=(4, 1))
    engine.model_without_weights, engine.name, engine.precision = model, "cuda", "fp32"
    engine.create_detection_context = lambda *arguments: CudaDetection(engine, *arguments)
    with Yolov2(engine, batch=4) as made:
        yield made


@pytest.fixture
def folder(tmp_path):
    """Nine images of other sizes, of which the third is a PNG; the sixth is on its side by EXIF."""
    for number in range(9):
        image, path = random_image((20 + 3 * number, 31 - number), number), tmp_path / f"{number}.jpg"
        save_image(image, path.with_suffix(".png") if number == 2 else path)
    exif = Pillow.Exif()
    exif[0x0112] = 6
    Pillow.fromarray(random_image((40, 24))).save(tmp_path / "5.jpg", exif=exif)
    return tmp_path


def test_detections_and_images_are_those_of_the_other_way(detector, folder, codec):
    streams = (detector.stream(Sources([folder]), decode=decode, score_threshold=0.1) for decode in ("cpu", "gpu"))
    for (frame, wanted), (other, found) in zip(*streams, strict=True):
        assert len(found)
        assert (found, found.source, other.source, other.index) == (wanted, wanted.source, frame.source, frame.index)
        assert isinstance(other.pixels, np.ndarray) == (other.stem == "2")
        np.testing.assert_array_equal(other.image, frame.image)
        assert other.image is other.image
        assert other.pixels.shape == frame.image.shape
    assert (codec.batches, codec.seldom) == ([8], [])


def with_comment(data, text):
    """A JPEG file with a comment before all else."""
    return data[:2] + b"\xff\xfe\0" + bytes([2 + len(text)]) + text + data[2:]


def test_what_the_engines_refuse_goes_to_all_decoders(folder, codec, detector):
    wanted = [image for _, image in detector.stream(Sources([folder]), score_threshold=0.1)]
    for name in ("1.jpg", "7.jpg"):
        (folder / name).write_bytes(with_comment((folder / name).read_bytes(), b"software"))
    for batches in ([2], [2, 2]):
        found = list(detector.stream(Sources([folder]), decode="gpu", score_threshold=0.1))
        assert [result for _, result in found] == wanted
        assert [frame.stem for frame, _ in found if isinstance(frame.pixels, np.ndarray)] == ["2"]
        assert codec.seldom == batches


def test_memory_of_images_that_nobody_holds_is_used_again(detector, folder, codec, monkeypatch):
    monkeypatch.setattr(device_images, "_MOST_IMAGES", 2)
    sources = Sources([folder / "1.jpg"] * 40)
    for _ in range(2):
        assert sum(1 for _ in detector.stream(sources, decode="gpu")) == 40
    assert codec.batches == [2] * 40
    assert codec.made < 30


def test_the_stream_outlives_the_memory_that_is_freed_on_it(folder, codec, detector):
    order = list[str]()
    frames = [frame for frame, _ in detector.stream(Sources([folder / "1.jpg"] * 3), decode="gpu")]
    for frame in frames:
        weakref.finalize(frame.pixels._held, order.append, "image")
    weakref.finalize(detector._decoder._memory.stream, order.append, "stream")
    detector._decoder = None
    assert order == []
    del frame, frames
    gc.collect()
    assert order == ["image"] * 3 + ["stream"]


def test_batches_are_limited_by_their_bytes(folder, codec, detector, monkeypatch):
    monkeypatch.setattr(device_images, "_MOST_BYTES", 2 * 20 * 31 * 3)
    assert len(list(detector.stream(Sources([folder / "0.jpg"] * 5), decode="gpu"))) == 5
    assert codec.batches == [2, 2, 1]


def test_what_the_gpu_refuses_is_decoded_or_named_by_the_host(folder, codec, detector):
    plain = (folder / "0.jpg").read_bytes()
    (folder / "0.jpg").write_bytes(with_comment(plain, b"refused"))
    (folder / "1.jpg").write_bytes(with_comment(plain[: len(plain) // 2], b"refused") + b"\xff\xd8\xff\xd9")
    (folder / "3.jpg").write_bytes(plain[:100])
    seen, sources = list[tuple[str, type]](), Sources([folder])
    with pytest.raises(ImageError, match=r"2 of 9 files"):
        seen.extend((frame.stem, type(frame.pixels)) for frame, _ in detector.stream(sources, decode="gpu"))
    assert [stem for stem, _ in seen] == list("0245678")
    assert seen[0][1] is np.ndarray
    assert [failure.path.name for failure in sources.failures] == ["1.jpg", "3.jpg"]
    with pytest.raises(ImageError) as one:
        list(Sources([folder / "3.jpg"]))
    assert str(sources.failures[1]) == str(one.value)


def test_a_stream_that_is_left_ends_its_threads(folder, codec, detector):
    results = detector.stream(Sources([folder / "1.jpg"] * 300), decode="gpu")
    assert next(results)[0].index == 0
    results.close()
    assert len(codec.batches) <= 4


def test_images_on_the_device_may_go_through_the_host(folder, codec, detector, model):
    frames = [frame for frame, _ in detector.stream(Sources([folder]), decode="gpu")][3:5]
    plain = HostDetection(HostEngine(executed(model, 2), 2), read_heads(model), (32, 16))
    on_device, on_host = ([getattr(frame, name) for frame in frames] for name in ("pixels", "image"))
    pairs = zip(plain.detect(on_device, score_threshold=0.1), plain.detect(on_host, score_threshold=0.1), strict=True)
    for one, other in pairs:
        assert len(one.scores)
        np.testing.assert_array_equal(one.boxes_cxcywh, other.boxes_cxcywh)


def test_a_missing_library_other_items_and_other_words_are_told(folder, detector, monkeypatch):
    monkeypatch.setitem(sys.modules, "nvidia.nvimgcodec", None)
    with pytest.raises(MissingExtraError, match=r'nvidia-nvimgcodec-cu13[\s\S]*pip install "pytrtplugins\[nvjpeg\]"'):
        next(detector.stream(Sources([folder]), decode="gpu"))
    with pytest.raises(UsageError, match=r"needs files to read[\s\S]*Sources"):
        next(detector.stream([folder / "0.jpg"], decode="gpu"))
    with pytest.raises(UsageError, match="decode: expected one of cpu, gpu, found 'tpu'"):
        next(detector.stream(Sources([folder]), decode="tpu"))


def test_an_engine_without_a_decoder_says_so(model):
    engine = HostEngine(executed(model, 2), 2)
    engine.name = "cpu"
    with pytest.raises(UsageError, match=r"engine 'cpu' has no decoder[\s\S]*Do: decode=\"cpu\""):
        HostDetection(engine, read_heads(model), (32, 16)).create_decoder()
