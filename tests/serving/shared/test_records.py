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
