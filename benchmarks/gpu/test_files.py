"""From JPEG files to boxes: images a second of a detector's stream, beside decoding alone."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pytrtplugins.models import Yolov2
from pytrtplugins.models.yolov2 import Decoder
from pytrtplugins.utils.prefetch import threads_for_files
from pytrtplugins.vision import Sources

from .clock import Clock, wall
from .ours import whole
from .subject import BATCHES, Subject

pytestmark = pytest.mark.filterwarnings("default")  # of other people's libraries

SIZE, CELL, NOISE = (768, 576), 32, 12
FILES, TIMES = 64, 32
ROUNDS = 5
DECODED_AT_A_TIME = 32


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """JPEG files, of about the size that cameras make, each named many times."""
    pillow = pytest.importorskip("PIL.Image")
    folder, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(3)
    paths = [folder / f"{number:02}.jpg" for number in range(FILES)]
    for path in paths:
        spots = rng.integers(0, 256, (SIZE[1] // CELL, SIZE[0] // CELL, 3), dtype=np.uint8)
        image = np.asarray(pillow.fromarray(spots).resize(SIZE)) + rng.integers(-NOISE, NOISE + 1, (*SIZE[::-1], 3))
        pillow.fromarray(np.clip(image, 0, 255).astype(np.uint8)).save(path, quality=90)
    return paths * TIMES


@pytest.mark.parametrize("decode", ["cpu", "gpu"])
@pytest.mark.parametrize("batch", BATCHES)
def test_files_to_boxes(
    batch: int, decode: Decoder, subject: Subject, clock: Clock, files: list[Path], benchmark
) -> None:
    if decode == "gpu":
        pytest.importorskip("nvidia.nvimgcodec")
    with Yolov2(whole(subject, "fp16", batch), batch=batch) as detector:
        few = Sources(files[:FILES])
        found = [boxes for _, boxes in detector.stream(few, decode=decode, score_threshold=subject.threshold)]
        wanted = [detector(path, score_threshold=subject.threshold) for path in files[:FILES]]
        assert sum(map(len, wanted)), "images without boxes show nothing"
        assert decode == "gpu" or found == wanted
        sources = Sources(files)

        def run() -> None:
            assert sum(1 for _ in detector.stream(sources, decode=decode)) == len(files)

        alone = decoding(detector, files, decode)
        alone()
        spent = statistics.median(wall(alone) for _ in range(ROUNDS))
        benchmark.pedantic(run, rounds=ROUNDS, warmup_rounds=1)
        benchmark.extra_info.update(
            kind="files", precision="FP16", batch=batch, decode=decode, size=SIZE, images=len(files),
            threads=threads_for_files(), bytes=statistics.mean(path.stat().st_size for path in files[:FILES]),
            decoding_us=1e6 * spent,
        )  # fmt: skip


def decoding(detector: Yolov2, files: list[Path], decode: Decoder) -> Callable[[], object]:
    """Decodes all files, and does nothing with them."""
    if decode == "cpu":
        return lambda: sum(1 for _ in Sources(files).frames(DECODED_AT_A_TIME, detector.context.memory))
    decoder, data = detector.context.create_decoder(), [path.read_bytes() for path in files]
    begins = range(0, len(data), DECODED_AT_A_TIME)
    return lambda: [decoder.decode(data[begin : begin + DECODED_AT_A_TIME]) and None for begin in begins]
