"""What this engine saves is what `pytrt export-triton` serves."""

from __future__ import annotations

from pytrtplugins.export.triton import export_triton
from tests.engines.networks import Affine, conv_net

from .builds import build


def test_a_saved_engine_is_served_by_its_plan(tensorrt, tmp_path):
    build(conv_net(Affine(3.0), batch="N"), settings={"batch": (1, 2, 4)}).save(tmp_path / "net.engine")
    library = tmp_path / "libaffine.so"
    library.write_bytes(b"\x7fELF")
    written = export_triton(tmp_path / "net.engine", tmp_path / "models", libraries=[library])
    assert (tmp_path / "models" / "net" / "1" / "model.plan").read_bytes() == b"plan"
    assert "max_batch_size: 4" in written.config
    assert written.needs == (f"TensorRT {tensorrt.version}", "a GPU of compute capability 9.0 (Test GPU)")
