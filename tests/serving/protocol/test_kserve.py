"""KServe's own client, unchanged, against a server behind ports; and its messages beside NVIDIA's.

KServe needs other versions of some packages than are tested here, so it may live in an environment of its own:
``KSERVE_VENV=/path/to/environment``.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytrtplugins.serving import Limits
from tests.serving.conftest import spec
from tests.serving.protocol import messages
from tests.serving.running import running

CLIENT = Path(__file__).with_name("kserve_client.py")
FOLDER = os.environ.get("KSERVE_VENV")
PYTHON = f"{FOLDER}/bin/python" if FOLDER else sys.executable if importlib.util.find_spec("kserve") else ""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not PYTHON,
        reason="kserve is not installed. Do: python -m venv kserve && kserve/bin/pip install kserve && export KSERVE_VENV=kserve",
    ),
]


def run(*words):
    """What a Python that has KServe prints, as JSON."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([PYTHON, *words], capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_kserves_client_asks_over_rest_and_grpc():
    with running([spec("double", "Double"), spec("shout", "Shout")], Limits(), grpc=True) as server:
        found = run(CLIENT, f"http://127.0.0.1:{server.port}", f"127.0.0.1:{server.grpc_port}")
    rows = ["double", "seven", "y", "FP32", [2, 2], [2.0, 4.0, 6.0, 8.0]]
    for each in found.values():
        assert each["live"] is each["ready"] is each["model ready"] is True
        assert each["unknown ready"] is False
        assert each["JSON"] == each["bytes"] == rows
        assert each["strings"][2:] == ["loud", "BYTES", [2, 1], ["AB", "ä"]]
    assert found["rest"]["unknown model"] == "HTTPStatusError"
    assert found["grpc"]["unknown model"] == "AioRpcError"


def test_kserves_messages_are_nvidias_field_by_field_but_for_those_that_load_models():
    service_pb2 = pytest.importorskip("tritonclient.grpc.service_pb2")
    theirs, methods = run(messages.__file__, "kserve.protocol.grpc.grpc_predict_v2_pb2")
    ours = messages.fields(service_pb2)
    different = {
        message
        for message, fields in theirs.items()
        for name, field in fields.items()
        if ours.get(message, {}).get(name) != field
    }
    assert different == {
        f"inference.RepositoryModel{name}"
        for name in ("LoadRequest", "LoadResponse", "UnloadRequest", "UnloadResponse")
    }
    assert theirs["inference.RepositoryModelLoadRequest"] == {"model_name": [1, 9, False]}
    assert ours["inference.RepositoryModelLoadRequest"]["repository_name"] == [1, 9, False]  # where ours looks for it
    assert methods.items() <= messages.methods(service_pb2).items()
