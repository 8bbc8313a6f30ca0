"""The command on a Ray cluster of its own, from its start to SIGTERM."""

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

SERVED = Path(__file__).parents[1] / "served.py"


@pytest.mark.slow
@pytest.mark.parametrize("cpu_replicas", [0, 1])
def test_the_command_serves_on_a_cluster_of_its_own(cpu_replicas, tmp_path):
    pytest.importorskip("ray.serve", reason='Ray is not installed: pip install "pytrtplugins[serve-ray]"')
    file = tmp_path / "serving.toml"
    file.write_text(
        f"[scale]\ncpus = 0.5\nmemory_mib = 256\ncpu_replicas = {cpu_replicas}\n"
        f"[models.double]\ntarget = {json.dumps(f'{SERVED}:Double')}\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "pytrtplugins",
        "serve",
        "--config",
        str(file),
        "--ray",
        "local",
        "--port",
        str(port),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            assert any("ready at" in line for line in server.stdout)
            url = f"http://127.0.0.1:{port}/v1/models/double:predict"
            with urllib.request.urlopen(url, b"1 2", timeout=20) as answer:
                assert json.load(answer)["rows"] == [[2.0, 4.0]]
            server.send_signal(signal.SIGTERM)
            assert server.wait(90) == 0
        finally:
            server.kill()
