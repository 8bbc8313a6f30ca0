"""The programs of docs/how-to/cuda.md run as they stand."""

import re

import pytest

from pytrtplugins.cuda import gpu_reason
from pytrtplugins.errors import ConformanceError, KernelError
from tests.pages import Reader, texts

(CUDA,), (PYTHON,), (ERROR,) = (texts("docs/how-to/cuda.md", kind) for kind in ("cuda", "python", ""))


@pytest.fixture
def run(tmp_path):
    def run(cuda, program):
        (tmp_path / "layers").mkdir()
        (tmp_path / "layers" / "shuffle.cu").write_text(cuda)
        (tmp_path / "layers" / "layer.py").write_text(program)
        return Reader(tmp_path).shell("python layers/layer.py")

    return run


SHOW = 'print(ptp.check_plugin(ChannelShuffle, engines=["cpu"]).table())\n'


def test_a_layer_with_a_kernel_passes_its_check(host, run):
    assert re.search(r"^  enqueue +ok ", run(CUDA, PYTHON + SHOW), re.MULTILINE)


def test_a_kernel_that_computes_something_else_fails_the_check(host, run):
    with pytest.raises(ConformanceError, match="elements differ"):
        run(CUDA.replace("area + pixel];", "area + pixel] + T(1);"), PYTHON)


def test_a_compile_error_is_shown_as_the_guide_shows_it(host, run):
    with pytest.raises((ConformanceError, KernelError)) as failed:
        run(CUDA.replace("source) *", "sourc) *"), PYTHON)
    first, _, line = ERROR.splitlines()
    assert first.partition(" (")[0] in f"{failed.typename}: {failed.value}"
    assert re.search(r"shuffle.cu:8: .*sourc.*\n\s*" + re.escape(line.strip()), str(failed.value))


@pytest.mark.gpu
def test_the_check_runs_the_kernel_on_the_gpu(run):
    if reason := gpu_reason():
        pytest.skip(reason.partition("\n")[0])
    assert re.search(r"^  enqueue on the GPU +ok ", run(CUDA, PYTHON + SHOW), re.MULTILINE)
