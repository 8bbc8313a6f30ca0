"""OpenVINO does not read a model with an operator that ONNX does not have: its reader ends the process where a Clip follows."""

import itertools
import json
import subprocess
import sys

import pytest

BUILD = """
import json, sys, onnx, pytrtplugins as ptp
texts = []
for text, engine in json.loads(sys.argv[1]):
    try:
        ptp.build(onnx.parser.parse_model(text), engine=engine, threads=1, progress=False)
    except ptp.errors.BuildError as error:
        texts.append(str(error))
print(json.dumps(texts))
"""
MODEL = '<ir_version: 8, opset_import: ["" : 17]> g (float[M] x) => (float[M] y) <float low = {0}> { %s }'
NODES = ["t = Foo (x) y = Clip (t, low)", "t = Foo (x) y = Clip (t)", "y = Foo (x)"]
CASES = [*itertools.product(NODES, ("cpu", "auto"))]


@pytest.fixture(scope="module")
def texts():
    """What the builds of all cases end with, in one process."""
    models = json.dumps([(MODEL % nodes, engine) for nodes, engine in CASES])
    child = subprocess.run([sys.executable, "-c", BUILD, models], capture_output=True, text=True, check=False)
    assert child.returncode == 0, child
    return dict(zip(CASES, json.loads(child.stdout), strict=True))


@pytest.mark.parametrize(("nodes", "engine"), CASES)
def test_an_operator_that_onnx_does_not_have_is_refused_by_name(nodes, engine, texts):
    assert "engine 'cpu' does not have the operator Foo (node" in texts[nodes, engine]
