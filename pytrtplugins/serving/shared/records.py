"""Messages on the stream between CPU and engine processes: records of fixed size, some followed by JSON."""

from __future__ import annotations

import enum
import json
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from ...errors import FormatError
from ...utils.text_formats import parse_json

__all__ = ["Kind", "Reader", "Record", "write_record"]

_FORM = struct.Struct("<BBHIIIIIdH")
_MOST_JSON = 16 << 20


class Kind(enum.IntEnum):
    """The kind of a record."""

    REQUEST = 1
    """Compute what lies in a slot."""
    ANSWER = 2
    """The outputs lie in the slot, or text that says why not."""
    STATE = 3
    """Of a model, from an engine process; JSON follows."""
    LOAD = 4
    """Load a model anew."""
    UNLOAD = 5
    """Release a model."""


class Record(NamedTuple):
    """A message.

    Attributes:
        kind: What it says.
        model: The model's number.
        status: Of an answer: 0, or HTTP's code of the error.
        slot: Its first unit.
        generation: Of the slot; of a change of a model, and of the state that follows it: its number.
        length: Bytes of inputs, outputs, text or JSON; of an answer with status 413 those that it would need.
        room: Of a request: bytes for the answer behind the inputs; of an answer: rows of its batch, for the first request of it.
        extra: Of a request: its priority, and whether it is computed alone; of an answer: microseconds that it waited.
        time: Of a request: its deadline (`time.monotonic`), 0 for none; of an answer: seconds that it was computed.
        load: Of an answer and of a state: which load of the model in the engine process it is of; the numbers come again.
    """

    kind: int
    model: int
    status: int = 0
    slot: int = 0
    generation: int = 0
    length: int = 0
    room: int = 0
    extra: int = 0
    time: float = 0.0
    load: int = 0


def write_record(record: Record, data: Any = None) -> bytes:
    """A record as bytes, followed by the JSON of ``data`` for `Kind.STATE`."""
    if data is None:
        return _FORM.pack(*record)
    text = json.dumps(data).encode()
    return _FORM.pack(*record._replace(length=len(text))) + text


class Reader:
    """Splits a stream of bytes into records."""

    def __init__(self) -> None:
        self._waiting = b""

    def feed(self, data: bytes) -> Iterator[tuple[Record, Any]]:
        """Yield the complete records with their JSON."""
        data = self._waiting + data if self._waiting else data
        at = 0
        while at + _FORM.size <= len(data):
            record = Record._make(_FORM.unpack_from(data, at))
            end = at + _FORM.size
            data_of_record = None
            if record.kind == Kind.STATE:
                if record.length > _MOST_JSON:
                    raise FormatError(f"record: JSON of {record.length:,} bytes")
                if end + record.length > len(data):
                    break
                data_of_record = parse_json(data[end : end + record.length].decode("utf-8", "replace"), "record")
                end += record.length
            elif record.kind not in (1, 2, 4, 5):
                raise FormatError(f"record: kind {record.kind} is unknown")
            at = end
            yield record, data_of_record
        self._waiting = data[at:]
