"""Files from the network, from a server on loopback."""

import hashlib
import sys
import urllib.request

import pytest

from pytrtplugins.errors import FormatError, UsageError
from pytrtplugins.utils.fetch import DownloadError, fetch
from tests.loopback import serving

DATA = bytes(range(256)) * 1024
DIGEST = hashlib.sha256(DATA).hexdigest()


@pytest.fixture(scope="module")
def servers():
    with serving({}) as found:
        yield found


@pytest.fixture
def server(servers):
    servers.files, servers.missing_bytes, servers.most, servers.knows_ranges = {"/a": DATA}, 0, None, True
    servers.seen.clear()
    return servers


def get(server, folder, **options):
    fetch(f"{server.url}/a", folder / "a", **{"max_bytes": len(DATA), "sha256": DIGEST, **options})
    return (folder / "a").read_bytes()


def test_what_breaks_off_goes_on_where_it_stopped(server, tmp_path):
    server.most = 100_000
    assert get(server, tmp_path) == DATA
    assert server.seen == ["/a", ("/a", "bytes=100000-"), ("/a", "bytes=200000-")]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_part_of_an_earlier_attempt_is_kept_and_used(server, tmp_path):
    server.most = 20_000  # more attempts than one call makes
    with pytest.raises(
        DownloadError, match=r"broke off 62,144 bytes before its end[\s\S]*Do: run it again, which continues"
    ):
        get(server, tmp_path)
    assert (tmp_path / "a.part").read_bytes() == DATA[:200_000]
    server.most = None
    server.seen.clear()
    assert get(server, tmp_path) == DATA
    assert server.seen == [("/a", "bytes=200000-")]


def test_a_part_that_is_whole_or_a_server_without_ranges_are_no_trouble(server, tmp_path):
    (tmp_path / "a.part").write_bytes(DATA)
    assert get(server, tmp_path) == DATA
    (tmp_path / "a").unlink()
    (tmp_path / "a.part").write_bytes(b"from elsewhere")
    server.knows_ranges = False
    assert get(server, tmp_path) == DATA


def test_other_contents_are_refused_and_not_kept(server, tmp_path):
    server.files["/a"] = DATA[:-1] + b"x"
    with pytest.raises(FormatError, match=f"gave another file: expected SHA-256 {DIGEST}, found "):
        get(server, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("missing", [1, -1000])  # the server says so; it does not
def test_more_than_is_expected_is_not_read(server, tmp_path, missing):
    server.missing_bytes = missing
    with pytest.raises(
        FormatError, match=r"at most 1,000 bytes|longer than it may be" if missing > 0 else "at most 1,000"
    ):
        get(server, tmp_path, max_bytes=1000)
    assert list(tmp_path.iterdir()) == []


def test_a_check_sees_the_file_before_it_has_its_name(server, tmp_path):
    seen = []

    def refuse(part):
        seen.append((part.read_bytes(), (tmp_path / "a").exists()))
        raise FormatError("no")

    with pytest.raises(FormatError, match="no"):
        get(server, tmp_path, check=refuse)
    assert seen == [(DATA, False)]
    assert list(tmp_path.iterdir()) == []


def test_files_are_fetched_from_folders_too_and_other_schemes_are_refused(server, tmp_path):
    (tmp_path / "there").write_bytes(DATA)
    fetch((tmp_path / "there").as_uri(), tmp_path / "here", max_bytes=len(DATA), sha256=DIGEST)
    assert (tmp_path / "here").read_bytes() == DATA
    with pytest.raises(DownloadError, match="No such file"):
        fetch((tmp_path / "nowhere").as_uri(), tmp_path / "b", max_bytes=1, sha256=DIGEST)
    with pytest.raises(UsageError, match="expected a URL that begins with https:, http:, file:"):
        fetch("ftp://example.org/a", tmp_path / "b", max_bytes=1)
    assert not (tmp_path / "b.part").exists()


def test_https_that_leads_to_http_is_refused(server, tmp_path, monkeypatch):
    unencrypted = urllib.request.urlopen(f"{server.url}/a")
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: unencrypted)
    with pytest.raises(FormatError, match="which is not encrypted"):
        fetch("https://example.org/a", tmp_path / "a", max_bytes=len(DATA))
    assert unencrypted.closed


@pytest.mark.parametrize(("options", "shown"), [({}, True), ({"progress": False}, False)])
def test_the_progress_is_shown_unless_it_is_not_wanted(server, tmp_path, monkeypatch, capsys, options, shown):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert get(server, tmp_path, **options) == DATA
    assert ("262.1/262.1 kB" in capsys.readouterr().err) == shown
