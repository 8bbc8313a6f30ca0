"""Which engine ``"auto"`` takes."""

import sys

import pytest

import pytrtplugins as ptp
from pytrtplugins.engines import Availability, auto_engine, registry
from pytrtplugins.engines.cuda import CudaEngine
from pytrtplugins.errors import ModelError, PrecisionError, UnavailableError
from pytrtplugins.model import decompose
from pytrtplugins.model.proto import copy_of
from pytrtplugins.utils.progress import progress_bar
from tests.engines.networks import conv_net


@pytest.fixture
def on_gpu(monkeypatch):
    """A machine whose GPU engine cuda can use."""
    monkeypatch.setattr(registry, "check_driver", lambda: None)
    monkeypatch.setattr(CudaEngine, "availability", classmethod(lambda cls: Availability("cuda", "", "a GPU")))


@pytest.fixture
def without_gpu(monkeypatch):
    monkeypatch.setattr(registry, "check_driver", lambda: None)
    monkeypatch.setattr(CudaEngine, "availability", classmethod(lambda cls: Availability("cuda", "no GPU", "")))


@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize("precision", CudaEngine.precisions)
def test_where_there_is_a_gpu_auto_takes_it(precision):
    assert auto_engine(precision) == "cuda"


@pytest.mark.usefixtures("on_gpu")
def test_auto_takes_an_engine_that_has_the_precision():
    assert auto_engine("bf16") == "cpu"


@pytest.mark.usefixtures("without_gpu")
def test_without_a_gpu_auto_takes_the_cpu_which_says_what_it_cannot_do():
    assert auto_engine() == "cpu"
    with pytest.raises(PrecisionError, match="FP16 is for GPUs"):
        ptp.build(conv_net(), precision="fp16")


def test_without_the_driver_engine_cuda_is_not_even_imported(monkeypatch):
    def check_driver():
        raise UnavailableError("no driver")

    found = registry.engine_class
    monkeypatch.setattr(registry, "check_driver", check_driver)
    monkeypatch.setattr(registry, "engine_class", lambda name: pytest.fail(name) if name == "cuda" else found(name))
    assert auto_engine() == "cpu"
    assert registry.availability()[0] == Availability("cuda", "no driver", "")


@pytest.mark.usefixtures("on_gpu")
def test_calibration_stays_on_the_cpu(monkeypatch):
    from pytrtplugins.calibration import MinMaxCalibrator
    from tests.engines.networks import image

    monkeypatch.setattr(CudaEngine, "__init__", lambda *_, **__: pytest.fail("the GPU was asked"))
    assert ptp.engines.calibrate(conv_net(), MinMaxCalibrator([{"data": image()}]), progress=False)


def test_a_progress_bar_is_shown_on_a_terminal_alone(monkeypatch, capsys):
    for terminal, wanted in ((True, True), (True, False), (False, True)):
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal)
        with progress_bar("choosing kernels", 2, wanted) as advance:
            advance(1, "3x3 [image]")
            advance(1, "")
        assert ("choosing kernels" in capsys.readouterr().err) == (terminal and wanted)


def test_a_progress_bar_counts_bytes_and_starts_again(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress_bar("net.weights", None, in_bytes=True) as bar:
        bar(500)
        bar.begin(4000)
        bar(1000)
    assert "1.0/4.0 kB" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("total", "in_bytes", "texts"),
    [
        (4, False, ("photos", "━", "1/4", "-:--:--", "cat.jpg [1]")),
        (None, False, ("photos", "━", "1/?", "0:00:00", "cat.jpg [1]")),
        (4000, True, ("photos", "━", "0.0/4.0 kB", "-:--:--", "cat.jpg [1]")),
    ],
)
def test_a_progress_bar_shows_what_of_how_many_and_how_long(monkeypatch, capsys, total, in_bytes, texts):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    with progress_bar("photos", total, in_bytes=in_bytes) as bar:
        bar(1, "cat.jpg [1]")
    said = capsys.readouterr()
    assert ([text for text in texts if text not in said.err], said.out) == ([], "")


def test_a_build_looks_at_a_model_once_and_a_constructor_at_what_it_gets(monkeypatch):
    seen = []
    look = decompose.validated
    monkeypatch.setattr(decompose, "validated", lambda *given, **options: seen.append(given) or look(*given, **options))
    engine = ptp.build(conv_net(), engine="reference")
    assert not seen  # after it was prepared
    broken = copy_of(engine.model)
    broken.graph.node[0].input[0] = "nowhere"
    with pytest.raises(ModelError, match="nowhere"):
        type(engine)(broken, engine.options)
    assert len(seen) == 1
