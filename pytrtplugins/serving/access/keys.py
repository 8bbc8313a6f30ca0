"""API keys of clients and what each allows; the file has only their digests."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from ...errors import RequestError, UsageError
from ...utils.atomic import atomic_path, check_target
from ...utils.declared import check_fields, field_types, mismatch, nearest
from ...utils.files import locked_folder
from ...utils.numbers import FloatRange, IntRange
from ...utils.text_formats import shorten
from ...utils.toml_file import TomlFile
from ..shared.rate_limiter import MOST_KEYS, RateLimiter
from .roles import ADMIN

__all__ = ["Key", "Keyring", "add_key", "read_keys"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_INDEX = 16  # digits of a digest by which it is looked up, before all are compared
_SECRET_BYTES = 32
_PREFIX = "pytrt_"
_DEFAULT_BURST_S = 1.0


@dataclass(frozen=True)
class Key:
    """A key, and what it allows.

    Attributes:
        name: In logs.
        sha256: SHA-256 of the key, as 64 digits. A key has 256 random bits, so that nobody finds it by trying; a slow digest, such as
            scrypt, would cost each request what only passwords need.
        roles: ``infer``: inference, and what clients read for it; ``admin``: everything.
        rate: Requests a second; None: any.
        burst: Requests that may come at once; None: those of a second.
        concurrent: Requests at a time; None: any.
        models: Which it may use; empty: all.

    Raises:
        UsageError: a value has another type, or is outside of its limits.
    """

    name: str
    sha256: str
    roles: tuple[Literal["infer", "admin"], ...] = ("infer",)
    rate: Annotated[float | None, FloatRange(0.001, 1e6)] = None
    burst: Annotated[int | None, IntRange(1, 1_000_000)] = None
    concurrent: Annotated[int | None, IntRange(1, 1_000_000)] = None
    models: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        if not _NAME.fullmatch(self.name):
            raise UsageError(f"{shorten(self.name)}: a key's name has letters, digits, '_' and '-', 64 at most")
        if not _DIGEST.fullmatch(self.sha256):
            raise UsageError(f"{self.name}: sha256 has 64 digits (0-9, a-f), found {shorten(self.sha256)}")

    @property
    def most_at_once(self) -> int:
        """Requests that may come at once."""
        return self.burst or max(1, math.ceil((self.rate or 0) * _DEFAULT_BURST_S))


class Keyring:
    """The keys of a file, with their rate limits.

    Raises:
        FormatError: it is not what it should be.
    """

    def __init__(self, path: str, meter: RateLimiter | None = None) -> None:
        self.path, self.files = path, (path,)
        self._meter = meter or RateLimiter()
        self.reload()

    def reload(self) -> None:
        """Read the file again.

        Raises:
            UsageError: the file is missing; the keys that were read before stay.
            FormatError: it is not what it should be; as above.
        """
        keys = read_keys(self.path)
        keys_by_prefix: dict[str, list[Key]] = {}
        for key in keys:
            keys_by_prefix.setdefault(key.sha256[:_INDEX], []).append(key)
        self._keys = keys_by_prefix
        self._meter.name([key.name for key in keys])

    def find(self, headers: Mapping[str, str]) -> Key:
        """The key that a request has in ``Authorization: Bearer`` or ``X-API-Key``; digests are compared in constant time.

        Raises:
            RequestError: it has none, or an unknown one (401).
        """
        scheme, _, token = headers.get("authorization", "").partition(" ")
        text = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        if not text:
            raise RequestError("a key is needed: Authorization: Bearer KEY, or X-API-Key: KEY", status=401)
        digest = _digest(text)
        for key in self._keys.get(digest[:_INDEX], ()):
            if hmac.compare_digest(key.sha256, digest):
                return key
        raise RequestError("the key is not known", status=401)

    def take(self, key: Key, role: str) -> None:
        """Count a request of a key, which `give_back` ends.

        Raises:
            RequestError: the key does not have the role (403), or has too many requests (429).
        """
        if role not in key.roles and ADMIN not in key.roles:
            raise RequestError(f"key {key.name!r} does not have the role {role!r}", status=403)
        self._meter.take(key.name, key.rate, key.most_at_once, key.concurrent)

    def charge(self, key: Key) -> None:
        """Count a further request of one that was taken, such as in a stream.

        Raises:
            RequestError: the key has too many (429).
        """
        self._meter.charge(key.name, key.rate, key.most_at_once)

    def give_back(self, key: Key) -> None:
        """End a request."""
        self._meter.give_back(key.name)


def read_keys(path: str) -> list[Key]:
    """The keys of a file: a table ``[keys.NAME]`` for each, with the fields of `Key`.

    Raises:
        UsageError: there is no such file, or it cannot be read.
        FormatError: it is not TOML, or has an unknown field or a wrong value; ``.path`` and ``.line`` say where.
    """
    try:
        file = TomlFile.read(Path(path))
    except OSError as error:
        raise UsageError(
            f"{path}: {(error.strerror or str(error)).lower()}.\nDo: pytrt serve-key NAME --keys {path}", path=path
        ) from None
    for name in file.data:
        if name != "keys":
            raise file.error((name,), f"unknown table {name!r}; expected [keys.NAME]")
    tables = file.data.get("keys", {})
    if not isinstance(tables, dict) or not all(isinstance(item, dict) for item in tables.values()):
        raise file.error(("keys",), "expected tables [keys.NAME]")
    if len(tables) > MOST_KEYS:
        raise file.error(("keys",), f"expected at most {MOST_KEYS:,} keys, found {len(tables):,}")
    keys, field_names, types = [], [item.name for item in fields(Key) if item.name != "name"], field_types(Key)
    for name, table in tables.items():
        for field, value in table.items():
            place = ("keys", name, field)
            if field not in field_names:
                raise file.error(place, f"keys.{name} has no field {field!r}.{nearest(field, field_names)}")
            if (expected := mismatch(value, types[field])) is not None:
                raise file.error(place, f"keys.{name}, {field}: expected {expected}, found {shorten(value)}")
        if "sha256" not in table:
            raise file.error(("keys", name), f"keys.{name}: sha256 is missing")
        values: dict[str, Any] = {
            field: tuple(value) if isinstance(value, list) else value for field, value in table.items()
        }
        try:
            keys.append(Key(name, **values))
        except UsageError as error:
            raise file.error(("keys", name), f"keys.{error}") from None
    return keys


def add_key(path: str, name: str, **allowed: Any) -> str:
    """Make a key, and add its digest to a file, which is made where there is none; its owner alone may read it.

    Args:
        path: The file.
        name: Of the key.
        allowed: Fields of `Key`.

    Returns:
        The key: it is nowhere else.

    Raises:
        UsageError: the file has a key of that name, or a field is wrong.
        FormatError: the file is not what it should be.
    """
    text = _PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
    key = Key(name, _digest(text), **allowed)
    with locked_folder(check_target(path).absolute().parent):  # others may add a key at the same time
        _write(path, key)
    return text


def _write(path: str, key: Key) -> None:
    old = Path(path).read_bytes() if Path(path).exists() else b""
    if old and key.name in (item.name for item in read_keys(path)):
        raise UsageError(f"{path} has a key {key.name!r} already: remove its table first, or take another name")
    values = {item.name: getattr(key, item.name) for item in fields(Key) if item.name != "name"}
    lines = [f"{field} = {json.dumps(value)}" for field, value in values.items() if value not in (None, ())]
    table = "\n".join([*([""] if old else []), f"[keys.{key.name}]", *lines, ""])
    with atomic_path(path) as temporary:
        temporary.write_bytes(old + table.encode())
    Path(path).chmod(0o600)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
