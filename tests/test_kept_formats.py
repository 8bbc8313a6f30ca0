"""Files and digests of earlier releases stay valid: docs/reference/format.md, written here by hand, byte for byte.

A digest decides whether a calibration or a table is used again. Where a test fails, either the change is a mistake, or the format's
version has to rise and CHANGELOG.md has to say so.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zipfile
import zlib

import numpy as np
import numpy.typing as npt
import onnx.parser
import pytest

import pytrtplugins as ptp
from pytrtplugins.calibration import CalibrationTable, ImageBatches
from pytrtplugins.calibration.sidecar import Sidecar
from pytrtplugins.cli.shared.samples import ArrayFiles
from pytrtplugins.engines.calibrate import network_digest
from pytrtplugins.passes import LayerPrecision, Precisions

MODEL = """<ir_version: 8, opset_import: ["" : 13]> net (float[1,2] x) => (float[1,2] y)
    <float[2] k = {1, -2.5}> { t = Mul(x, k)  y = Gemm<alpha = 0.5, transB = 1>(t, w) }"""


def model():
    proto = onnx.parser.parse_model(MODEL.replace("{1, -2.5}>", "{1, -2.5}, float[2,2] w = {1, 2, 3, 4}>"))
    proto.producer_name = ""
    return proto


@ptp.plugin(namespace="test.kept", name="Every", version="7")
class Every(ptp.Plugin):
    """A field of each kind."""

    flag: bool
    number: int
    ratio: float
    word: str
    flags: tuple[bool, ...]
    numbers: tuple[int, ...]
    ratios: tuple[float, ...]
    words: tuple[str, ...]
    values: npt.NDArray[np.float16]

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x


def text(value):
    data = value.encode()
    return struct.pack("<I", len(data)) + data


def test_a_serialized_plugin():
    values = np.float16([[1, -2, 0.5]])
    fields = [
        ("flag", 1, b"\1"),
        ("number", 2, struct.pack("<q", -(2**40))),
        ("ratio", 3, struct.pack("<f", 0.1)),
        ("word", 4, text("größe")),
        ("flags", 17, struct.pack("<I2?", 2, True, False)),
        ("numbers", 18, struct.pack("<I2q", 2, 3, -4)),
        ("ratios", 19, struct.pack("<I1f", 1, 0.25)),
        ("words", 20, struct.pack("<I", 2) + text("a") + text("")),
        ("values", 33, text("float16") + struct.pack("<I2Q", 2, 1, 3) + values.tobytes()),
    ]
    payload = text("test.kept") + text("Every") + text("7") + struct.pack("<I", len(fields))
    payload += b"".join(text(name) + bytes([code]) + value for name, code, value in fields)
    data = b"PTRP" + struct.pack("<HHQ", 1, 0, len(payload)) + payload
    data += struct.pack("<I", zlib.crc32(data))
    plugin = Every(True, -(2**40), 0.1, "größe", (True, False), (3, -4), (0.25,), ("a", ""), values)
    assert plugin.serialize() == data
    assert ptp.Plugin.deserialize(data).fields()["numbers"] == (3, -4)


def test_an_engine_file(tmp_path):
    """Entries, their order and what the metadata say; a file with just that is loaded."""
    ptp.build(model(), engine="reference").save(tmp_path / "saved.engine")
    with zipfile.ZipFile(tmp_path / "saved.engine") as archive:
        entries = archive.infolist()
        assert [(entry.filename, entry.compress_type) for entry in entries] == [("metadata.json", 0), ("model.onnx", 0)]
        facts = json.loads(archive.read("metadata.json"))
    assert list(facts) == [
        "built_with", "computes", "created_by", "engine", "format", "model_sha256", "options", "requirements",
    ]  # fmt: skip
    proto = model().SerializeToString()
    options: dict[str, object] = {"device": None, "plugins": {}, "precision": "fp32", "settings": {}, "threads": None}
    kept = {
        "format": 1, "engine": "reference", "computes": "fp32", "built_with": "NumPy", "created_by": "pytrtplugins 0.1.0",
        "options": options, "requirements": {}, "model_sha256": hashlib.sha256(proto).hexdigest(),
    }  # fmt: skip
    with zipfile.ZipFile(tmp_path / "kept.engine", "w") as archive:
        archive.writestr("metadata.json", json.dumps(kept))
        archive.writestr("model.onnx", proto)
    x = np.float32([[3, 4]])
    with ptp.load_engine(tmp_path / "kept.engine").create_context() as context:
        assert context.run({"x": x})["y"].tolist() == [[(3 - 20) / 2, (9 - 40) / 2]]


def test_a_calibration_cache_and_what_lies_beside_it(tmp_path):
    cache = tmp_path / "x.cache"
    table = CalibrationTable({"x": 0.5, "größe: 2": 1e-3}, "MinMaxCalibration", version="8.6.1")
    data = "TRT-8601-MinMaxCalibration\nx: 3f000000\ngröße: 2: 3a83126f\n".encode()
    digest = hashlib.sha256(data).hexdigest()
    Sidecar("n", "d", "MinMaxCalibration", 2, digest, "us 1").write(cache, lambda: table.write(cache))
    assert cache.read_bytes() == data
    assert (tmp_path / "x.cache.json").read_text() == (
        '{\n  "format": "pytrtplugins calibration 1",\n  "network": "n",\n  "data": "d",\n'
        f'  "algorithm": "MinMaxCalibration",\n  "tensors": 2,\n  "table": "{digest}",\n  "created_by": "us 1"\n}}\n'
    )


def test_the_digest_of_a_network():
    assert network_digest(model()) == "7a152abba2cf291b4d65192a7f4e073c34d7dfce637ea91f7cc19c5eaee1e603"


@pytest.mark.parametrize(
    ("batches", "facts"),
    [
        (lambda folder: ImageBatches(folder, (8, 4)), "('stretch', (8, 4))"),
        (lambda folder: ImageBatches(folder, (8, 4), mode="letterbox", batch=2), "('letterbox', (8, 4))"),
    ],
)
def test_the_digest_of_calibration_images(tmp_path, batches, facts):
    """Of how they are fitted, and of their names and contents in their order."""
    for name in ("b.png", "in/a.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    lines = "".join(f"{name}\0{hashlib.sha256(name.encode()).hexdigest()}\n" for name in ("b.png", "in/a.jpg"))
    assert batches(tmp_path).digest() == hashlib.sha256((facts + lines).encode()).hexdigest()


def test_the_digest_of_calibration_arrays(tmp_path):
    for name in ("b.npz", "a.npz"):
        (tmp_path / name).write_bytes(name.encode())
    lines = "".join(f"{name}\0{hashlib.sha256(name.encode()).hexdigest()}\n" for name in ("a.npz", "b.npz"))
    assert ArrayFiles(tmp_path).digest() == hashlib.sha256(lines.encode()).hexdigest()


def test_a_precision_file(tmp_path):
    path, layers = tmp_path / "p.yaml", {"conv": LayerPrecision("fp32", "pin", "overflows", latency_us=2.5)}
    held = Precisions("int8", "ab", ("conv", "head"), layers, {"x": 0.5}, per_tensor=True, facts={"seed": 3})
    held.write(path)
    assert path.read_text().split("\n") == [
        "format: 1", "precision: int8", "network: ab", "names:", "- conv", "- head", "layers:", "  conv:", "    precision: fp32",
        "    strategy: pin", "    reason: overflows", "    latency_us: 2.5", "scales:", "  x: 0.5",
        "algorithm: EntropyCalibration2", "per_tensor: true", "facts:", "  seed: 3", "",
    ]  # fmt: skip
    assert Precisions.read(path) == held
