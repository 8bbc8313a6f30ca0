"""The table of decoders of a GPU: what is asked for, what is refused, and what is missing, with a stand-in for nvImageCodec."""

import sys
from types import SimpleNamespace

import pytest

from benchmarks.serving import gpu_decoding
from pytrtplugins.engines.cuda.device.device import HostDevice
from pytrtplugins.utils import optional


class Image:
    @property
    def __cuda_array_interface__(self):
        return {"shape": (2, 2, 3), "data": (0, False)}


class Decoder:
    def __init__(self, seen, options="", backends=()):
        if "engines" in backends:
            raise RuntimeError("no JPEG engine | on this GPU")
        self.seen, self.refuses = seen, "hybrid" in backends and options.endswith("=0")
        seen.append((options, *backends))

    def decode(self, streams, images, params, cuda_stream):
        self.seen.append(len(streams))
        return [None if self.refuses else Image() for _ in streams]


@pytest.fixture
def seen(monkeypatch):
    found = list[object]()
    codec = SimpleNamespace(
        ColorSpec=SimpleNamespace(SRGB=1),
        CodeStream=bytes,
        DecodeParams=lambda **params: None,
        Decoder=lambda device_id, **settings: Decoder(found, **settings),
        Backend=str,
        BackendKind=SimpleNamespace(HW_GPU_ONLY="engines", HYBRID_CPU_GPU="hybrid"),
    )
    monkeypatch.setitem(sys.modules, "nvidia.nvimgcodec", codec)
    monkeypatch.setitem(optional._imported, "nvidia.nvimgcodec", codec)
    return found


@pytest.fixture
def device():
    made = HostDevice()
    stream = SimpleNamespace(ptr=1, synchronize=lambda: None)
    made.xp = SimpleNamespace(cuda=SimpleNamespace(Stream=lambda non_blocking: stream))
    return made


def test_each_decoder_has_its_rows_or_a_reason(seen, device):
    rows = list(gpu_decoding.decoding(device, [b"a", b"b"], (1, 3), 0.001))
    names = [row.split(" | ")[0] for row in rows]
    assert names[1:5] == ["all, first batch of 1"] * 2 + ["all, first batch of 128"] * 2
    for name, row in (("the server's", rows[0]), ("JPEG engines", rows[5])):
        assert row.startswith(f"{name} | | RuntimeError: no JPEG engine / on this GPU")
    assert [row.split(" | ")[1:3] for row in rows[6:8]] == [["1", "refuses 1 photos"], ["3", "refuses 3 photos"]]
    assert [row.split(" | ")[:2] for row in rows[8:]] == [["Huffman on the CPU", "1"], ["Huffman on the CPU", "3"]]
    assert all(row.count("|") == 4 for row in rows)
    begins = [at for at, each in enumerate(seen) if isinstance(each, tuple)]
    assert [seen[at + 1] for at in begins] == [1, 128, 1, 1]


def test_a_batch_counts_all_its_photos():
    calls = list[int]()
    rate, cpu, latency = gpu_decoding.timed(lambda: calls.append(1), 1000, 0.0).split(" | ")
    assert len(calls) == 4
    assert float(rate.replace(",", "")) > 1000
    assert float(cpu.replace(",", "")) >= 0
    assert latency.count("/") == 1


def test_without_a_gpu_the_table_says_why(monkeypatch, capfd, tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"jpeg")
    said = ["gpu_decoding", "--photos", str(tmp_path), "--no-network", "--wait-as-told"]
    monkeypatch.setattr(sys, "argv", said)
    monkeypatch.setenv("PYTRT_CUDA_WAIT", "block")

    def missing():
        raise OSError("no driver")

    monkeypatch.setattr(gpu_decoding, "CudaDevice", missing)
    assert gpu_decoding.main() == 0
    assert capfd.readouterr().out == "| block | all | | OSError: no driver | |  |\n"
