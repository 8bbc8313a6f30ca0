"""Who may connect to a server, and what is recorded of requests."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Access"]


@dataclass(frozen=True)
class Access:
    """Who may connect to a server, and what is recorded of requests. By default everybody who can reach it, and nothing.

    Attributes:
        tls_cert: File of the server's certificate, with those between it and its authority, in PEM form; None: no TLS.
        tls_key: File of its private key, in PEM form, not encrypted.
        tls_ca: File of authorities, in PEM form; clients must show a certificate that one of them signed. None: they need none.
    """

    tls_cert: str | None = None
    tls_key: str | None = None
    tls_ca: str | None = None
