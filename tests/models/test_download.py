import socket
import sys
from types import SimpleNamespace

import pytest

from pytrtplugins.errors import CfgError, FormatError, UsageError, WeightsError
from pytrtplugins.models import DownloadError, download
from pytrtplugins.models.download import _check_contents
from tests.darknet2caffe.networks import sections
from tests.loopback import serving

CFG = sections("""[net] width=32 height=32 channels=3
[convolutional] filters=7 size=1 stride=1 activation=linear
[region] anchors=1,1 classes=2 num=1
""").encode()
PARAMETERS = 7 + 7 * 3
WEIGHTS = (0).to_bytes(4, "little") + (2).to_bytes(4, "little") + bytes(4) + bytes(8) + bytes(4 * PARAMETERS)
FILES = {"/cfg/yolov2-voc.cfg": CFG, "/data/voc.names": b"cat\ndog\n", "/files/yolov2-voc.weights": WEIGHTS}


@pytest.fixture
def server():
    """A server on loopback; `.files` may be changed, `.seen` lists what was asked for."""
    with serving(FILES) as found:
        yield found


def fetch(server, folder, name="yolov2-voc"):
    return download(name, folder, weights_url=f"{server.url}/files", source_url=server.url)


def test_the_three_files_arrive_as_they_are(server, tmp_path):
    files = fetch(server, tmp_path / "new" / "folder")
    assert (files.cfg.read_bytes(), files.weights.read_bytes(), files.names.read_bytes()) == (
        CFG,
        WEIGHTS,
        b"cat\ndog\n",
    )


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("yolov2-voc", "voc.names"),
        ("yolov2-tiny-voc", "voc.names"),
        ("yolov2", "coco.names"),
        ("yolov2-tiny", "coco.names"),
        ("yolov3-tiny", "coco.names"),
    ],
)
def test_each_network_has_the_classes_of_what_it_was_trained_with(server, tmp_path, name, names):
    server.files.update({f"/cfg/{name}.cfg": CFG, f"/data/{names}": b"cat\ndog\n", f"/files/{name}.weights": WEIGHTS})
    assert fetch(server, tmp_path, name).names.name == names


def test_a_bar_shows_on_a_terminal_how_much_has_come(server, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    fetch(server, tmp_path)
    shown = capsys.readouterr().err
    assert "yolov2-voc.weights" in shown
    assert f"{len(WEIGHTS)}/{len(WEIGHTS)} bytes" in shown


def test_what_is_there_is_not_fetched_again(server, tmp_path):
    fetch(server, tmp_path)
    server.seen.clear()
    fetch(server, tmp_path)
    assert server.seen == []


@pytest.mark.parametrize("weights", [WEIGHTS[:-4], WEIGHTS + bytes(4), WEIGHTS[:10]])
def test_weights_of_another_size_are_refused_and_not_kept(server, tmp_path, weights):
    server.files["/files/yolov2-voc.weights"] = weights
    with pytest.raises(WeightsError, match=r"yolov2-voc\.weights: what http.* cannot be used"):
        fetch(server, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["voc.names", "yolov2-voc.cfg"]


@pytest.mark.parametrize(
    ("file", "content", "error", "message"),
    [
        ("/files/yolov2-voc.weights", b"<!DOCTYPE html><html>please log in</html>", FormatError, "web page"),
        ("/cfg/yolov2-voc.cfg", b"[nonsense]\n", CfgError, r"yolov2-voc\.cfg"),
    ],
)
def test_what_is_another_file_is_refused(server, tmp_path, file, content, error, message):
    server.files[file] = content
    with pytest.raises(error, match=message):
        fetch(server, tmp_path)


def test_a_file_that_moved_says_so(server, tmp_path):
    del server.files["/files/yolov2-voc.weights"]
    with pytest.raises(DownloadError, match="the server says 404") as caught:
        fetch(server, tmp_path)
    assert caught.value.url.endswith("/files/yolov2-voc.weights")


def test_a_transfer_that_breaks_off_is_refused_and_not_kept(server, tmp_path):
    server.missing_bytes = 100
    with pytest.raises(DownloadError):
        fetch(server, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_network_it_says_where_to_put_the_file(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(DownloadError, match="no network") as caught:
        download("yolov2-voc", tmp_path, weights_url=nobody, source_url=nobody)
    assert str(tmp_path / "voc.names") in str(caught.value)


def test_an_unknown_name_is_refused(tmp_path):
    with pytest.raises(UsageError, match="Known: yolov2-voc"):
        download("yolov9", tmp_path)


def test_a_folder_that_cannot_be_made_is_an_error_of_ours(server, monkeypatch):
    monkeypatch.setenv("HOME", "/proc/nowhere")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    with pytest.raises(DownloadError, match=r"cannot be made[\s\S]*Do: give a folder") as caught:
        fetch(server, None)
    assert str(caught.value.folder).startswith("/proc/nowhere")
    assert not server.seen


@pytest.mark.parametrize(("size", "taken"), [(0, False), (1, True), ((1 << 20) - 1, True), (1 << 20, False)])
def test_a_list_of_names_has_less_than_a_mebibyte(tmp_path, size, taken):
    part, files = tmp_path / "part", SimpleNamespace(names=tmp_path / "voc.names")
    part.write_bytes(b"a" * size)
    if taken:
        _check_contents(part, files.names, "http://x", files)
        return
    with pytest.raises(FormatError, match=f"gave no list of names \\({size:,} bytes\\)"):
        _check_contents(part, files.names, "http://x", files)
