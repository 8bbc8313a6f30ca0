"""Records on a stream."""

import pytest

from pytrtplugins.errors import FormatError
from pytrtplugins.serving.shared.records import Kind, Reader, Record, write_record

SENT = [
    (Record(Kind.REQUEST, 3, 0, 4095, 0xFFFFFFFF, 70_000, 4096, 21, 1.5), None),
    (Record(Kind.STATE, 1), {"signature": None, "reason": "ä"}),
    (Record(Kind.ANSWER, 3, 429, 7, 1, 12), None),
    (Record(Kind.LOAD, 0), None),
]
STREAM = b"".join(write_record(record, data) for record, data in SENT)


@pytest.mark.parametrize("size", [1, 7, 38, 1000])
def test_records_survive_however_the_stream_is_cut(size):
    reader, starts = Reader(), range(0, len(STREAM), size)
    found = [each for start in starts for each in reader.feed(STREAM[start : start + size])]
    assert [record._replace(length=0) for record, _ in found] == [record._replace(length=0) for record, _ in SENT]
    assert [data for _, data in found] == [data for _, data in SENT]


@pytest.mark.parametrize("damaged", [b"\x09" + STREAM[1:], write_record(Record(Kind.STATE, 0, length=1 << 31))])
def test_what_is_no_record_is_refused(damaged):
    with pytest.raises(FormatError):
        list(Reader().feed(damaged))


@pytest.mark.parametrize("length", [16 << 20, (16 << 20) + 1])
def test_the_json_of_a_record_has_at_most_16_mib(length):
    reader, head = Reader(), write_record(Record(Kind.STATE, 0, length=length))
    if length > 16 << 20:
        with pytest.raises(FormatError, match="JSON of 16,777,217 bytes"):
            list(reader.feed(head))
    else:
        assert list(reader.feed(head)) == []
        ((record, data),) = reader.feed(b"1" + b" " * (length - 1))
        assert (record.length, data) == (length, 1)


@pytest.mark.parametrize("kind", range(8))
def test_records_are_of_five_kinds(kind):
    data = write_record(Record(kind, 1), [1] if kind == Kind.STATE else None)
    if 1 <= kind <= 5:
        ((record, found),) = Reader().feed(data)
        assert (record.kind, record.model, found) == (kind, 1, [1] if kind == Kind.STATE else None)
    else:
        with pytest.raises(FormatError, match=f"kind {kind} is unknown"):
            list(Reader().feed(data))


def test_what_a_record_does_not_say_is_0():
    assert Record(Kind.LOAD, 7) == (4, 7, 0, 0, 0, 0, 0, 0, 0, 0)
