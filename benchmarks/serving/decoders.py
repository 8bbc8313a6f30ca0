"""Average precision through the server with each decoder of JPEG files: ``python -m benchmarks.serving.decoders --data FOLDER``.

The files of the images are sent to ``/v1/detect`` as they are. The model is the shipped detector; labels, thresholds and rules are those
of ``pytrt evaluate``. For a GPU: ``--engine cuda --precision fp16 --decoder simplejpeg gpu``.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from darknet2caffe import read_network, to_onnx
from pytrtplugins import build
from pytrtplugins.models import describe, evaluate, read_names
from pytrtplugins.models.dataset import YoloData
from pytrtplugins.utils.numbers import IntRange
from pytrtplugins.vision import Detection
from pytrtplugins.vision.image import MAX_FILE_BYTES

from .load import Exchange
from .photos import SHIPPED
from .servers import Command, Server

_CODE = """
import functools, sys
from pytrtplugins.cli import main
from pytrtplugins.vision import jpeg
jpeg._decoder = lambda: {}
sys.exit(main())
"""
_DECODERS = {
    "simplejpeg": "functools.partial(jpeg._by_simplejpeg, __import__('simplejpeg'))",
    "opencv": "functools.partial(jpeg._by_opencv, __import__('cv2'))",
    "pillow": "None",
    "gpu": "None",
}
_LOWEST = 0.005  # score that is reported, as in `evaluate`
_CLASSES = 6


class Files(YoloData):
    """Labelled images, which keep the file of each until it is sent."""

    def __init__(self, path: list[Path]) -> None:
        super().__init__(path)
        self.sent: dict[int, bytes] = {}

    def image(self, name: str) -> npt.NDArray[np.uint8]:
        """The image."""
        found = super().image(name)
        self.sent[id(found)] = self.files.read(name, MAX_FILE_BYTES)
        return found


class Served:
    """A detector behind a server."""

    def __init__(self, port: int, files: Files) -> None:
        self.names, self._files = read_names(SHIPPED.with_suffix(".names"), _CLASSES), files
        self._connection = http.client.HTTPConnection("127.0.0.1", port)

    def __call__(self, source: npt.NDArray[np.uint8], **thresholds: float) -> list[Detection]:
        """Ask the server."""
        self._connection.request("POST", "/v1/detect", self._files.sent.pop(id(source)))
        answer = self._connection.getresponse()
        said: dict[str, Any] = json.loads(answer.read())
        if answer.status != 200 or (said["height"], said["width"]) != source.shape[:2]:
            raise SystemExit(f"{answer.status}: {said}, expected boxes on an image of {source.shape}")
        return [Detection(each["label"], each["class_id"], each["score"], each["box"]) for each in said["detections"]]

    def counts(self) -> str:
        """Images that the CPU has decoded, and the GPU."""
        self._connection.request("GET", "/metrics")
        text = self._connection.getresponse().read().decode()
        return " + ".join(re.findall(r"^pytrt_images_total\{.*\} (\d+)", text, re.MULTILINE))


def main() -> int:
    """Evaluate with each decoder, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving.decoders", description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="labelled images in the YOLO layout")
    parser.add_argument("--engine", default="cpu", help="(default: %(default)s)")
    parser.add_argument("--precision", default="int8", help="(default: %(default)s)")
    parser.add_argument("--limit", type=IntRange(1, 1 << 30), help="only the first images")
    parser.add_argument("--decoder", nargs="+", choices=list(_DECODERS), default=["simplejpeg", "opencv", "pillow"])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "animals.engine"
        _build(file, given.engine, given.precision)
        print("| decoder | mAP50 | mAP50:95 | images | decoded by CPU + GPU |\n|---|---|---|---|---|")
        for decoder in given.decoder:
            with Server(
                _command(file, decoder), Exchange(b"GET /v2/health/ready HTTP/1.1\r\nHost: a\r\n\r\n")
            ) as server:
                files = Files(given.data)
                detector = Served(server.port, files)
                found = evaluate(detector, files, limit=given.limit, progress=False)
                row = decoder, f"{found.map50:.4f}", f"{found.map:.4f}", str(found.images), detector.counts()
            print(f"| {' | '.join(row)} |", flush=True)
    return 0


def _build(file: Path, engine: str, precision: str) -> None:
    """The shipped detector, which reports low scores too."""
    model = to_onnx(read_network(SHIPPED.with_suffix(".cfg"), SHIPPED.with_suffix(".weights")))
    describe(model, names=SHIPPED.with_suffix(".names"), score_threshold=_LOWEST)
    table = SHIPPED.with_suffix(".cache") if precision == "int8" else None
    build(model, engine=engine, precision=precision, calibration=table, progress=False).save(file)


def _command(file: Path, decoder: str) -> Command:
    start = [sys.executable, "-c", _CODE.format(_DECODERS[decoder]), "serve", str(file), "--local"]
    start += ["--decode", "gpu" if decoder == "gpu" else "cpu"]
    return Command(decoder, lambda port: [*start, "--port", str(port)])


if __name__ == "__main__":
    sys.exit(main())
