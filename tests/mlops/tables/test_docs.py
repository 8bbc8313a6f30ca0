"""docs/how-to/table.md, followed as it stands."""

import numpy as np
import onnx

from tests.pages import Reader

from .people import network, photos


def test_the_program_of_the_page_prints_a_table(tmp_path, short_measurements):
    onnx.save(network(), tmp_path / "face.onnx")
    np.savez(tmp_path / "faces.npz", **photos())
    reader = Reader(tmp_path)
    reader.follow("docs/how-to/table.md", without=("pytrt table face.onnx", "pytrt inspect face.onnx --fused"))
