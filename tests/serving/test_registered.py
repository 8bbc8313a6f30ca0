"""What clients, logs and `pytrt models lineage` are told of the version that a registry has."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from pytrtplugins.cli import main
from pytrtplugins.errors import UsageError
from pytrtplugins.serving import Limits
from pytrtplugins.serving.access.access import Access
from pytrtplugins.serving.config import choose_models
from pytrtplugins.serving.export.content import image_files
from pytrtplugins.serving.export.deployment import Deployment
from pytrtplugins.serving.model import registered as module
from pytrtplugins.serving.model.registered import is_registered
from pytrtplugins.serving.run import check, read_target
from pytrtplugins.utils.toml_file import TomlFile
from tests.serving.conftest import JSON, Client
from tests.serving.registered import PHOTOS, registered
from tests.serving.running import running, triton_row
from tests.serving.server_process import server_process

ROOT = Path(__file__).parents[2]
INFER = "/v2/models/scale/infer"


@pytest.fixture
def client(registry):
    with Client([registered(registry)]) as made:
        yield made


def swap(client, registry, version):
    registry.promote("scale", version)
    client.loop.run_until_complete(client.backend.load_version(0))


def test_an_answer_names_the_version_and_the_digest_that_computed_it(client, registry):
    for version in (1, 2):
        swap(client, registry, version)
        digest = registry.get("scale", version).digest
        answer = client.post(INFER, JSON)
        assert answer.json == {
            "model_name": "scale",
            "model_version": str(version),
            "parameters": {"digest": digest},
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [version, 2 * version]}],
        }
        assert (answer.headers["x-model-version"], answer.headers["x-model-digest"]) == (str(version), digest)


def test_the_same_request_again_gets_the_head_of_the_new_version(client, registry):
    body = json.dumps({**JSON, "parameters": {"binary_data_output": True}, "inputs": [{**JSON["inputs"][0]}]})
    head = json.loads(body)
    data = np.array([[1, 2]], np.float32).tobytes()
    head["inputs"][0] = {"name": "x", "shape": [1, 2], "datatype": "FP32", "parameters": {"binary_data_size": 8}}
    text = json.dumps(head).encode()
    for version in (1, 2, 1):
        if version != 1 or client.backend.services["scale"].version != "1":
            swap(client, registry, version)
        answer = client.post(INFER, text + data, headers={"Inference-Header-Content-Length": len(text)})
        length = int(answer.headers["inference-header-content-length"])
        assert json.loads(answer.body[:length])["model_version"] == str(version)
        assert np.frombuffer(answer.body[length:], np.float32).tolist() == [version, 2 * version]


def test_addresses_with_a_version_reach_the_one_that_is_loaded(client, registry):
    swap(client, registry, 3)
    assert client.get("/v2/models/scale").json["versions"] == ["3"]
    assert client.get("/v2/models/scale/versions/3").status == 200
    assert client.get("/v2/models/scale/versions/1").status == 404
    assert client.get("/v2/models/scale/stats").json["model_stats"][0]["version"] == "3"
    assert client.post("/v2/repository/index").json[0]["version"] == "3"
    digest = registry.get("scale", 3).digest
    assert 'registry_version="3"' in client.get("/metrics").body.decode()
    assert f'digest="{digest}"' in client.get("/metrics").body.decode()


def test_from_a_served_answer_the_photos_are_found(registry, tmp_path, capsys):
    """The whole way: answer → engine file → version → data and run."""
    log = tmp_path / "log"
    with running([registered(registry)], Limits(), Access(access_log=str(log))) as server:
        request = urllib.request.Request(f"http://127.0.0.1:{server.port}{INFER}", json.dumps(JSON).encode())
        with urllib.request.urlopen(request, timeout=20) as answer:
            digest = answer.headers["X-Model-Digest"]
            assert json.loads(answer.read())["model_version"] == "1"
    line = json.loads(log.read_text())
    assert (line["version"], line["digest"]) == ("1", digest)
    for asked in (digest, digest[:8], "scale:1"):
        with pytest.raises(SystemExit) as caught:
            main(["models", "lineage", asked, "--registry", str(registry.folder.path), "--json"])
        assert caught.value.code == 0
        (found,) = json.loads(capsys.readouterr().out)["result"]["found"]
        assert found["version"]["data"] == {"shards": PHOTOS}
        assert (found["version"]["run"], found["stage"]) == ("run 7", "production")
    with pytest.raises(SystemExit):
        main(["models", "lineage", PHOTOS, "--registry", str(registry.folder.path), "--json"])
    assert len(json.loads(capsys.readouterr().out)["result"]["found"]) == len(registry.versions("scale"))


def test_grpc_answers_name_them_too(registry):
    pytest.importorskip("grpc")
    library = pytest.importorskip("tritonclient.grpc")
    with (
        running([registered(registry)], Limits(), grpc=True) as server,
        library.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as asked,
    ):
        row = triton_row(library, 1, 1)
        found = asked.infer("scale", [row], client_timeout=20).get_response()
    assert found.model_version == "1"
    assert found.parameters["digest"].string_param == registry.get("scale", 1).digest


def test_open_loop_clients_over_http_lose_nothing_while_versions_change(registry, monkeypatch):
    """tritonclient's requests begin on a schedule, whether the ones before are answered or not."""
    library = pytest.importorskip("tritonclient.http.aio")
    monkeypatch.setattr("pytrtplugins.serving.backends.follow._EVERY_S", 0.01)

    async def ask(client, asked):
        row = triton_row(library, 1, 1)
        asked.append(0)
        at = len(asked) - 1
        found = await client.infer("scale", [row])
        asked[at] = int(found.get_response()["model_version"])
        assert found.as_numpy("y")[0, 0] == asked[at]

    async def work(port):
        async with library.InferenceServerClient(f"127.0.0.1:{port}", conn_limit=64) as client:
            asked: list[int] = []
            tasks, settled = [], []
            for version, change in ((2, "promote"), (3, "promote"), (2, "rollback"), (1, "rollback")):
                await asyncio.to_thread(getattr(registry, change), "scale", *([version] if change == "promote" else []))
                while (await client.get_model_metadata("scale"))["versions"] != [str(version)]:
                    tasks.append(asyncio.ensure_future(ask(client, asked)))
                    await asyncio.sleep(0.004)
                at = len(asked)
                tasks += [asyncio.ensure_future(ask(client, asked)) for _ in range(5)]
                settled.append((version, range(at, at + 5)))
                await asyncio.gather(*tasks[-5:])
            await asyncio.gather(*tasks)
            assert all({asked[at] for at in later} == {version} for version, later in settled)
            return asked

    with running([registered(registry)], Limits()) as server:
        versions = asyncio.run(asyncio.wait_for(work(server.port), 60))
    assert {*versions} == {1, 2, 3}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux (memfd)")
def test_processes_that_are_killed_while_versions_change_lose_nothing(registry):
    library = pytest.importorskip("tritonclient.http")
    with server_process([registered(registry)], cpu=1, engines=2) as server:
        address, ended = server.address.removeprefix("http://"), threading.Event()
        wrong: list[int] = []
        answered: list[int] = []

        def load():
            client = library.InferenceServerClient(address)
            row = triton_row(library, 1, 1)
            while not ended.is_set():
                found = client.infer("scale", [row])
                version = int(found.get_response()["model_version"])
                (answered if found.as_numpy("y")[0, 0] == version else wrong).append(version)
                time.sleep(0.005)

        threads = [threading.Thread(target=load) for _ in range(3)]
        for thread in threads:
            thread.start()
        asked = library.InferenceServerClient(address)
        for version in (2, 3, 1, 2):
            registry.promote("scale", version)
            until = time.monotonic() + 60
            os.kill(server.children()["engine"][0], signal.SIGKILL)
            while asked.get_model_metadata("scale")["versions"] != [str(version)] and time.monotonic() < until:
                time.sleep(0.05)
            assert asked.get_model_metadata("scale")["versions"] == [str(version)]
            while version not in answered and time.monotonic() < until:
                time.sleep(0.01)
        ended.set()
        for thread in threads:
            thread.join(60)
        counts = server.stop()["scale"]["1"]
    assert not wrong
    assert {1, 2, 3} == {*answered}
    assert (counts["failed"], counts["succeeded"]) == (0, len(answered))


@pytest.mark.parametrize(
    ("target", "yes"),
    [
        ("registry:scale@production", True),
        ("registry:scale:3", True),
        ("registry:Scale", False),
        ("scale.engine", False),
        ("a:B", False),
    ],
)
def test_a_target_of_a_registry_has_a_version_or_a_stage(target, yes):
    assert is_registered(target) == yes


def test_the_model_has_its_name_in_the_registry():
    assert read_target("registry:scale@production") == ("scale", "registry:scale@production")
    assert read_target("other=registry:scale:3") == ("other", "registry:scale:3")
    with pytest.raises(UsageError, match="expected one of the stages"):
        read_target("registry:scale@best")


def test_a_file_names_a_registry_beside_it(registry, tmp_path):
    (tmp_path / "serving.toml").write_text(
        '[models.scale]\ntarget = "registry:scale@production"\nregistry = "registry"\n'
    )
    (found,) = choose_models(None, TomlFile.read(tmp_path / "serving.toml"), {}, "")
    assert (found.target, Path(found.registry)) == ("registry:scale@production", registry.folder.path)
    check([found])


def test_an_image_gets_the_version_that_is_in_the_stage_now(registry):
    files = image_files(Deployment("scale", [registered(registry)]))
    assert files["models/scale-1.engine"] == registry.file(registry.get("scale", 1)).absolute()
    text = files["serving.toml"]
    assert 'target = "models/scale-1.engine"' in text
    assert "registry" not in text


def test_an_installation_that_lacks_the_readers_entry_point_says_so(monkeypatch):
    monkeypatch.setattr(module.importlib.metadata, "entry_points", lambda **wanted: [])
    module._reader.cache_clear()
    with pytest.raises(
        UsageError, match=r"'pytrtplugins\.model_sources', which this installation lacks\.\nDo: pip install"
    ):
        module.name_of("registry:scale:1")
