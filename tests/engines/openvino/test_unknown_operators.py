"""OpenVINO does not read a model with an operator that ONNX does not have: its reader ends the process where a Clip follows."""

from __future__ import annotations

import subprocess
import sys

import pytest

BUILD = """
import sys, onnx, pytrtplugins as ptp
try:
    ptp.build(onnx.parser.parse_model(sys.argv[1]), engine=sys.argv[2], threads=1, progress=False)
except ptp.errors.BuildError as error:
    print(error)
"""


@pytest.mark.parametrize("engine", ["cpu", "auto"])
@pytest.mark.parametrize("nodes", ["t = Foo (x) y = Clip (t, low)", "t = Foo (x) y = Clip (t)", "y = Foo (x)"])
def test_an_operator_that_onnx_does_not_have_is_refused_by_name(nodes, engine):
    model = f'<ir_version: 8, opset_import: ["" : 17]> g (float[M] x) => (float[M] y) <float low = {{0}}> {{ {nodes} }}'
    child = subprocess.run([sys.executable, "-c", BUILD, model, engine], capture_output=True, text=True, check=False)
    assert (child.returncode, "engine 'cpu' does not have the operator Foo (node" in child.stdout) == (0, True), child
