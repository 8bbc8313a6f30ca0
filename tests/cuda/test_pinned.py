"""Page-locked memory that is not to be had."""

from types import SimpleNamespace

import numpy as np
import pytest

from pytrtplugins.cuda import pinned, pinned_empty
from pytrtplugins.errors import UnavailableError


class CudaError(RuntimeError):
    def __init__(self, status):
        super().__init__(f"error {status}")
        self.status = status


@pytest.fixture
def failing(monkeypatch):
    """A CuPy whose page-locked memory fails with a status of CUDA's."""

    def install(status):
        def empty_pinned(shape, dtype):
            raise CudaError(status)

        modules = {
            "cupy": SimpleNamespace(cuda=SimpleNamespace(runtime=SimpleNamespace(CUDARuntimeError=CudaError))),
            "cupyx": SimpleNamespace(empty_pinned=empty_pinned),
        }
        monkeypatch.setattr(pinned, "require", lambda name, **_: modules[name])

    return install


@pytest.mark.parametrize("shape", [(1024, 1024), 1 << 20])
def test_where_memory_does_not_suffice_the_message_says_how_much_was_asked_and_what_to_do(failing, shape):
    failing(2)
    with pytest.raises(UnavailableError, match=r"float32\[.*\], 4 MiB, cannot be allocated: error 2\.\nDo: ") as caught:
        pinned_empty(shape, np.float32)
    assert caught.value.needed == 4 << 20


def test_other_errors_of_cudas_stay_what_they_are(failing):
    failing(100)
    with pytest.raises(CudaError, match="error 100"):
        pinned_empty(4)
