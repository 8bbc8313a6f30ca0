"""Models that this project publishes, and ``pytrt download``."""

import json
import socket
from pathlib import Path

import pytest

from pytrtplugins.errors import UsageError
from pytrtplugins.models import DownloadError, fetch_model, find_model, published_models
from pytrtplugins.utils.files import sha256_hex
from tests.loopback import serving

SHIPPED = Path(__file__).parents[2] / "samples" / "models"


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PYTRT_MODELS_URL", raising=False)


@pytest.fixture(scope="module")
def server():
    with serving({f"/m/{path.name}": path.read_bytes() for path in SHIPPED.glob("yolov2-animals.*")}) as found:
        yield found


def test_the_list_is_what_the_checkout_ships():
    (model,) = published_models().values()
    assert model.name == "yolov2-animals"
    for file in model.files:
        assert ((SHIPPED / file.name).stat().st_size, sha256_hex(SHIPPED / file.name)) == (file.bytes, file.sha256)


def test_a_model_is_fetched_once_found_by_its_name_and_run(pytrt, server, monkeypatch, tmp_path):
    monkeypatch.setenv("PYTRT_MODELS_URL", f"{server.url}/m/")
    code, _, err = pytrt("inspect", "yolov2-animals")
    assert code == 2
    assert "model 'yolov2-animals' was not fetched yet.\nDo: pytrt download yolov2-animals" in err
    code, out, err = pytrt("download", "yolov2-animals")
    assert code == 0, err
    folder = tmp_path / "cache" / "pytrtplugins" / "models"
    assert f"{folder / 'yolov2-animals.weights'}: 15,040,848 bytes" in out
    assert out.endswith("Do: pytrt run yolov2-animals IMAGE\n")
    assert find_model("yolov2-animals") == folder / "yolov2-animals.cfg" == find_model("yolov2-animals", folder)
    names = (folder / "yolov2-animals.names").rename(folder / "names")
    assert find_model("yolov2-animals") is None
    names.rename(folder / "yolov2-animals.names")
    seen = len(server.seen)
    assert json.loads(pytrt("download", "yolov2-animals", "--json")[1])["result"]["name"] == "yolov2-animals"
    assert len(server.seen) == seen
    code, out, _ = pytrt("inspect", "yolov2-animals")
    assert (code, "31  region" in out) == (0, True)
    (offered,) = json.loads(pytrt("download", "--json")[1])["result"]["models"]
    assert offered["file"] == str(folder / "yolov2-animals.cfg")
    assert offered["model"]["licence"] == "Apache-2.0"


def test_a_checkout_is_a_mirror_and_a_folder_may_be_named(pytrt):
    code, out, err = pytrt("download", "yolov2-animals", "--url", SHIPPED.as_uri(), "--output", "here")
    assert code == 0, err
    assert out.endswith(f"Do: pytrt run {Path('here') / 'yolov2-animals.cfg'} IMAGE\n")
    assert find_model("yolov2-animals") is None


def test_the_list_names_size_and_licence(pytrt):
    code, out, _ = pytrt("download")
    assert code == 0
    assert all(words in out for words in ("yolov2-animals", "Apache-2.0", "15.0 MB"))


def test_without_a_release_or_a_server_it_says_what_to_do(tmp_path):
    with pytest.raises(DownloadError, match=r"no release has it yet[\s\S]*Do: take it from a checkout: pytrt download"):
        fetch_model("yolov2-animals")
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(DownloadError, match="Connection refused") as caught:
        fetch_model("yolov2-animals", tmp_path / "here", url=nobody)
    assert f"put it at {tmp_path / 'here' / 'yolov2-animals.cfg'}" in str(caught.value)
    assert list((tmp_path / "here").iterdir()) == []


def test_an_unknown_name_is_answered_with_the_list(pytrt):
    for call in (find_model, fetch_model):
        with pytest.raises(UsageError, match="It has: yolov2-animals"):
            call("yolov9")
    assert pytrt("download", "yolov9")[0] == 2
