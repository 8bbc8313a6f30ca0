"""The command ``pytrt serve-export``: what it reads from a file, and what it hands on."""

import json

import pytest

from pytrtplugins.serving import Limits, export
from pytrtplugins.utils.toml_file import TomlFile

MODEL = "from pytrtplugins.serving import Model\n\n\nclass Double(Model):\n    pass\n"


@pytest.fixture(autouse=True)
def model(tmp_path):
    (tmp_path / "double.py").write_text(MODEL)


def test_a_file_of_models_becomes_a_deployment(printed, tmp_path):
    (tmp_path / "serving.toml").write_text(
        '[serve]\nport = 9000\nmax-delay = "1ms"\ngpu = 2\n[scale]\nmax_replicas = 3\n'
        '[models.My_Double]\ntarget = "double.py:Double"\nqueue = 7\n'
    )
    words = ("k8s", "--config", "serving.toml", "--replicas", "2:4", "--cpus", "8", "-o", "out", "--json")
    files = json.loads(printed("serve-export", *words))["result"]["files"]
    assert "out/kubernetes/deployment.yaml" in files
    assert "name: my-double" in (tmp_path / "out/kubernetes/deployment.yaml").read_text()
    assert "maxReplicas: 4" in (tmp_path / "out/kubernetes/autoscaler.yaml").read_text()
    found = TomlFile.read(tmp_path / "out/serving.toml").data
    assert found["serve"] == {"host": "0.0.0.0", "port": 9000, "cpu": 4, "gpu": 2}
    assert found["models"]["My_Double"] == {"target": "models/double.py:Double", "max_delay_ms": 1.0, "queue": 7}


@pytest.mark.parametrize(("words", "size"), [("", Limits.body_bytes), ("body-limit = 3\n", 3 << 20)])
def test_the_limit_of_a_body_is_the_servers_own_or_that_of_the_file(printed, tmp_path, monkeypatch, words, size):
    deployments, real = [], export.export
    monkeypatch.setattr(
        export,
        "export",
        lambda given, deployment, *rest, **more: (
            deployments.append(deployment) or real(given, deployment, *rest, **more)
        ),
    )
    (tmp_path / "serving.toml").write_text(f'[serve]\n{words}[models.a]\ntarget = "double.py:Double"\n')
    printed("serve-export", "compose", "--config", "serving.toml", "-o", "out")
    assert deployments[0].limits.body_bytes == size


@pytest.mark.parametrize("kind", ["k8s", "kserve", "compose"])
def test_the_exported_file_is_one_that_the_server_takes(printed, kind, tmp_path, monkeypatch):
    printed("serve-export", kind, "double.py:Double", "-o", "out", "--cpus", "8")
    monkeypatch.chdir(tmp_path / "out")
    out = printed("serve", "--config", "serving.toml", "--check")
    assert "double, version 1: models/double.py:Double" in out


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ('tls-cert = "a.pem"', "tls-cert depends on the machine"),
        ("grpc-port = 8001", "grpc-port is not exported: the image has no gRPC"),
    ],
)
def test_an_option_that_exported_servers_cannot_have_is_refused(refused, tmp_path, option, text):
    (tmp_path / "serving.toml").write_text(f'[serve]\n{option}\n[models.a]\ntarget = "double.py:Double"\n')
    said = refused("serve-export", "compose", "--config", "serving.toml", "-o", "out")
    assert not (tmp_path / "out").exists()
    assert text in said
    assert "Do: leave it out of this file" in said


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["compose", "a=double.py:Double"], "--output is missing"),
        (["compose", "-o", "out"], "no model"),
        (["k8s", "a=double.py:Double", "-o", "out", "--gpus", "0.5"], "can only be had on Ray"),
        (["ray", "a=double.py:Double", "-o", "out", "--secret", "keys"], "has no place for it"),
    ],
)
def test_what_cannot_be_exported_is_refused(refused, words, problem, tmp_path):
    assert problem in refused("serve-export", *words)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("kind", "file", "command"),
    [
        ("ray", "ray.env", "set the variables in ray.env on each node before ray start; then serve deploy serve.yaml"),
        ("kserve", "Dockerfile", "docker build, docker push; then kubectl apply -f kserve/"),
        ("k8s", "Dockerfile", "docker build, docker push; then kubectl apply -f kubernetes/"),
        ("compose", "Dockerfile", "docker compose up --build --detach --wait"),
    ],
)
def test_what_comes_next_is_printed(printed, kind, file, command):
    out = printed("serve-export", kind, "a=double.py:Double", "-o", "out")
    assert f"out/{file}: " in out
    assert out.rstrip().endswith(f"Do: {command}")
