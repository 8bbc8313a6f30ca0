"""TLS: what clients of both protocols get, and which files are refused before a server listens."""

import json
import shutil
import socket
import ssl
import urllib.request

import pytest

from pytrtplugins.errors import UsageError
from pytrtplugins.serving import Access, Limits
from pytrtplugins.serving.access.tls import Tls
from tests.serving.conftest import spec
from tests.serving.running import running, triton_row


@pytest.fixture(scope="module")
def server(certificates):
    access = Access(tls_cert=certificates["server.crt"], tls_key=certificates["server.key"])
    with running([spec("double", "Double")], Limits(head_seconds=0.3), access, grpc=True) as made:
        yield made


def trusting(certificates):
    return ssl.create_default_context(cafile=certificates["server.crt"])


def test_tritonclient_infers_over_https(server, certificates):
    library = pytest.importorskip("tritonclient.http", reason="pip install 'tritonclient[http]'")
    options = {"ssl": True, "ssl_context_factory": lambda: trusting(certificates)}
    with library.InferenceServerClient(f"localhost:{server.port}", **options) as client:
        assert client.infer("double", [triton_row(library)]).as_numpy("y").tolist() == [[2, 4]]


def test_tritonclient_infers_over_grpc_with_tls(server, certificates):
    pytest.importorskip("grpc", reason="pip install grpcio")
    library = pytest.importorskip("tritonclient.grpc")
    options = {"ssl": True, "root_certificates": certificates["server.crt"]}
    with library.InferenceServerClient(f"localhost:{server.grpc_port}", **options) as client:
        assert client.infer("double", [triton_row(library)]).as_numpy("y").tolist() == [[2, 4]]


def test_what_is_not_tls_is_cut_off(server):
    assert b"200" not in server.sent(b"GET /v2 HTTP/1.1\r\n\r\n")


def test_a_handshake_that_does_not_end_is_cut_off(server):
    assert server.sent(b"\x16\x03\x01") == b""


def test_old_versions_of_tls_are_refused(server, certificates):
    context = trusting(certificates)
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection(("127.0.0.1", server.port), 20) as sock, pytest.raises((ssl.SSLError, OSError)):
        context.wrap_socket(sock, server_hostname="localhost")


def test_with_an_authority_clients_must_show_a_certificate(certificates):
    names = {"tls_cert": "server.crt", "tls_key": "server.key", "tls_ca": "server.crt"}
    access = Access(**{name: certificates[file] for name, file in names.items()})
    with running([spec("double", "Double")], Limits(), access) as server:
        url, context = f"https://localhost:{server.port}/v2", trusting(certificates)
        with pytest.raises(OSError):
            urllib.request.urlopen(url, context=context, timeout=20)
        context.load_cert_chain(certificates["server.crt"], certificates["server.key"])
        with urllib.request.urlopen(url, context=context, timeout=20) as answer:
            assert json.loads(answer.read())["name"] == "pytrtplugins"


@pytest.mark.parametrize(
    ("cert", "key", "ca", "text"),
    [
        ("server.crt", None, None, "TLS needs a certificate and its key"),
        (None, None, "server.crt", "TLS needs a certificate and its key"),
        ("none.crt", "server.key", None, "none.crt: no such file"),
        ("server.crt", "other.key", None, "other.key does not belong to the certificate in .*server.crt"),
        ("server.crt", "locked.key", None, "locked.key: the key is encrypted"),
        ("server.key", "server.key", None, "server.key and .*server.key cannot be used"),
        ("old.csr", "server.key", None, "cannot be used"),
        ("server.crt", "server.key", "server.key", "server.key cannot be used"),
        ("/dev/zero", "server.key", None, "/dev/zero"),
        (__file__, "server.key", None, "expected PEM form"),
    ],
)
def test_files_that_do_not_serve_are_refused_in_one_line(certificates, cert, key, ca, text):
    names = [None if name is None else certificates[name] for name in (cert, key, ca)]
    with pytest.raises(UsageError, match=text) as caught:
        Tls.of(Access(*names))
    assert "\n" not in str(caught.value).partition("\nDo: ")[0]


def test_a_certificate_that_has_expired_is_a_warning(certificates, caplog):
    Tls(Access(certificates["server.crt"], certificates["server.key"])).warn()
    assert not caplog.records
    Tls(Access(certificates["old.crt"], certificates["server.key"])).warn()
    assert "old.crt has expired" in caplog.text


def test_files_are_read_anew_and_wrong_ones_leave_what_was_read(certificates, tmp_path):
    cert, key = tmp_path / "a.crt", tmp_path / "a.key"
    shutil.copy(certificates["server.crt"], cert)
    shutil.copy(certificates["server.key"], key)
    tls = Tls(Access(str(cert), str(key)))
    shutil.copy(certificates["old.crt"], cert)
    tls.reload()
    before = tls._contents
    key.write_bytes(b"nothing")
    with pytest.raises(UsageError, match="expected PEM form"):
        tls.reload()
    assert tls._contents is before
    assert before[0] == cert.read_bytes()
