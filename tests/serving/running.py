"""A server in a thread, and certificates for it."""

import shutil
import socket
import subprocess
import threading
from contextlib import contextmanager

import numpy as np
import pytest

from pytrtplugins.serving.backends.local import LocalBackend
from pytrtplugins.serving.processes.server import BACKLOG, bind, run_server


class Running:
    """A server that runs: its ports."""

    def __init__(self, sock, grpc_port, servers):
        self.port, self.grpc_port, self._servers = sock.getsockname()[1], grpc_port, servers

    def end(self):
        """Begin to end it, as SIGTERM does."""
        for server in self._servers:
            server.should_exit = True

    def listens(self):
        """Whether it takes connections."""
        try:
            socket.create_connection(("127.0.0.1", self.port), 20).close()
        except ConnectionError:
            return False
        return True

    def sent(self, data, wait_s=20):
        """All that comes back until the server closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), wait_s) as sock:
            sock.sendall(data)
            return everything(sock)


def triton_row(library, first=1, second=2):
    """The input of one row, for NVIDIA's client."""
    row = library.InferInput("x", [1, 2], "FP32")
    row.set_data_from_numpy(np.float32([[first, second]]))
    return row


def everything(sock):
    """All that comes until the other end closes, or breaks, the connection."""
    found = b""
    try:
        while part := sock.recv(1 << 16):
            found += part
    except ConnectionError:
        pass
    return found


@contextmanager
def running(specs, limits, access=None, grpc=False, board=None):
    """Serve in a thread."""
    ready, servers, failures = threading.Event(), [], []
    with bind("127.0.0.1", 0) as free:
        grpc_port = free.getsockname()[1] if grpc else None
        sock = bind("127.0.0.1", 0)  # while that one is taken, so that it is another
    backend = LocalBackend(specs, limits)

    async def begin(server):
        sock.listen(BACKLOG)
        servers.append(server)
        ready.set()

    def serve():
        try:
            run_server(backend, limits, [sock], begin, f"127.0.0.1:{grpc_port}" if grpc else None, access, board)
        except Exception as error:
            failures.append(error)
            ready.set()

    thread = threading.Thread(target=serve)
    thread.start()
    assert ready.wait(20)
    try:
        if failures:
            raise failures[0]
        yield Running(sock, grpc_port, servers)
    finally:
        for server in servers:
            server.should_exit = True
        thread.join(20)
        sock.close()


class Certificates:
    """Certificates that openssl makes, by name: for localhost, one that has expired, and keys."""

    def __init__(self, folder):
        self.folder = folder
        if shutil.which("openssl") is None:
            pytest.skip("apt-get install openssl")
        self._openssl("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:prime256v1 -out other.key")
        self._openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout server.key -out server.crt -days 30 "
            "-subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1"
        )
        self._openssl("req -new -key server.key -subj /CN=localhost -out old.csr")
        self._openssl("x509 -req -in old.csr -signkey server.key -days -1 -out old.crt")
        self._openssl("pkey -in server.key -aes128 -passout pass:secret -out locked.key")

    def _openssl(self, words):
        subprocess.run(["openssl", *words.split()], cwd=self.folder, check=True, capture_output=True, timeout=60)

    def __getitem__(self, name):
        return str(self.folder / name)
