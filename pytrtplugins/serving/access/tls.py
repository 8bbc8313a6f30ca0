"""A server's certificate and key, checked before it listens, and reloaded when the files change."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ...utils.files import read_regular
from ...utils.optional import require
from .access import Access

__all__ = ["Tls"]

_log = logging.getLogger(__name__)
_MOST_BYTES = 1 << 20  # of a file; chains of certificates have a few thousand
_DATES = {9: "is not valid yet", 10: "has expired"}  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED


class Tls:
    """A server's certificate and key.

    Args:
        access: Names the files.

    Attributes:
        context: For connections over HTTP; new connections use what `reload` read.

    Raises:
        UsageError: a file is missing, or is not what it should be, or the key belongs to another certificate.
    """

    def __init__(self, access: Access) -> None:
        if access.tls_cert is None or access.tls_key is None:
            raise UsageError(
                "TLS needs a certificate and its key, and --tls-ca needs both.\n"
                "Do: pytrt serve ... --tls-cert server.crt --tls-key server.key"
            )
        self.files = (access.tls_cert, access.tls_key, *([access.tls_ca] if access.tls_ca else []))
        self._cert, self._key, self._ca = access.tls_cert, access.tls_key, access.tls_ca
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # TLS 1.2 and later
        self.context.set_alpn_protocols(["http/1.1"])
        self.reload()

    @classmethod
    def of(cls, access: Access) -> Tls | None:
        """The certificate and key of these files; None if no files are given."""
        return cls(access) if access.tls_cert or access.tls_key or access.tls_ca else None

    def reload(self) -> None:
        """Read the files anew, for connections from now on.

        Raises:
            UsageError: as for the constructor; what was read before stays.
        """
        contents = [_read(path) for path in self.files]
        self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        self._load(self.context)
        self._contents = contents

    def warn(self) -> None:
        """Log a warning where the certificate has expired, or is not valid yet."""
        problem = _dates_problem(self._cert, self._key)
        if problem:
            _log.warning("the certificate in %s %s: clients refuse it", self._cert, problem)

    def grpc_credentials(self) -> Any:
        """Credentials for a grpcio server, which reload like those of HTTP."""
        grpc = require("grpc", extra="grpc", package="grpcio", feature="--grpc-port")
        current: list[list[bytes]] = []

        def changed() -> Any:
            """The new configuration if the files changed, else None; gRPC calls this before each handshake."""
            contents = self._contents
            if current and current[-1] is contents:
                return None
            current[:] = [contents]
            cert, key, *ca = contents
            return grpc.ssl_server_certificate_configuration([(key, cert)], ca[0] if ca else None)

        return grpc.dynamic_ssl_server_credentials(changed(), changed, self._ca is not None)

    def _load(self, context: ssl.SSLContext) -> None:
        try:
            context.load_cert_chain(self._cert, self._key, password=_no_password)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise UsageError(f"the key in {self._key} does not belong to the certificate in {self._cert}") from None
            raise UsageError(f"{self._cert} and {self._key} cannot be used: {error}") from None
        if self._ca is not None:
            try:
                context.load_verify_locations(self._ca)
            except ssl.SSLError as error:
                raise UsageError(f"{self._ca} cannot be used: {error}") from None
            context.verify_mode = ssl.CERT_REQUIRED


def _read(path: str) -> bytes:
    """Read a PEM file."""
    try:
        data = read_regular(path, _MOST_BYTES, error=UsageError)
    except OSError as error:
        raise UsageError(f"{path}: {(error.strerror or str(error)).lower()}", path=Path(path)) from None
    if b"ENCRYPTED PRIVATE KEY" in data or b"Proc-Type: 4,ENCRYPTED" in data:
        raise UsageError(
            f"{path}: the key is encrypted; a server that starts by itself cannot ask for its password.\n"
            f"Do: openssl pkey -in {path} -out plain.key",
            path=Path(path),
        )
    if b"-----BEGIN " not in data:
        raise UsageError(f"{path}: expected PEM form (-----BEGIN ...), found something else", path=Path(path))
    return data


def _no_password() -> bytes:
    return b""  # else OpenSSL asks on the terminal


def _dates_problem(cert: str, key: str) -> str:
    """The problem with a certificate's dates, found by a handshake in memory with a client that trusts it; empty if there is none."""
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.load_cert_chain(cert, key)
    client.check_hostname = False
    client.load_verify_locations(cert)
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)
    for end in 2 * ends:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLCertVerificationError as error:
            return _DATES.get(error.verify_code, "")
    return ""
