"""Settings of access: who may connect, and what is logged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Access"]


@dataclass(frozen=True)
class Access:
    """Who may connect to a server, and what is logged. By default anybody who can reach it may, and nothing is logged.

    Attributes:
        tls_cert: File of the server's certificate, with those between it and its authority, in PEM form; None: no TLS.
        tls_key: File of its private key, in PEM form, not encrypted.
        tls_ca: File of authorities, in PEM form; clients must show a certificate that one of them signed. None: they need none.
        keys: File of the keys of clients, as `pytrt serve-key` writes it; None: clients need none.
        allow_control: Whether clients of other machines may load and unload models without a key.
        cors: Origins, such as ``https://example.org``, whose pages may use the server from a browser; ``*``: all.
        access_log: File that gets a line for each request; ``-``: standard error. None: no log.
        access_log_form: Of a line: JSON, or for people.
        trace_endpoint: URL of a collector of OpenTelemetry (OTLP over HTTP); None: as its environment variables say, else no traces.
    """

    tls_cert: str | None = None
    tls_key: str | None = None
    tls_ca: str | None = None
    keys: str | None = None
    allow_control: bool = False
    cors: Sequence[str] = ()
    access_log: str | None = None
    access_log_form: Literal["json", "plain"] = "json"
    trace_endpoint: str | None = None

    @property
    def has_files(self) -> bool:
        """Whether files are read anew when they change: SIGHUP, by which people ask for that, must then not end the server."""
        return bool(self.tls_cert or self.keys)
