"""Servers' tables, of made-up records."""

from benchmarks.pages import serving
from benchmarks.serving.rows import Row

OPEN = {
    "share": 0.5,
    "planned": 100.0,
    "rate": 99.0,
    "fell_behind": False,
    "p50_ms": 1.0,
    "p99_ms": 2.0,
    "wrong": 0,
    "lost": 0,
}


def said(*rows):
    record = {
        "subject": "serving",
        "processor": "a CPU",
        "python": "3",
        "versions": {},
        "date": "",
        "command": "",
        "note": "",
    }
    blocks = serving.servers("here", {**record, "rows": [row.plain() for row in rows]})
    return "\n\n".join(block for block in blocks if isinstance(block, str))


def test_rows_are_fastest_first_and_those_without_a_measurement_say_why():
    slow, fast = Row("slow", "64 bytes", "1", rate=10.0, open=[OPEN]), Row("fast", "64 bytes", "2", rate=20.0)
    fast.open = [OPEN, {**OPEN, "fell_behind": True, "lost": 3}]
    text = said(slow, fast, Row("absent", "64 bytes", reason="it is not installed"))
    assert text.index("| fast |") < text.index("| slow |")
    assert "2.0 / 2.0 (3 failed) (fell behind)" in text
    assert "- Not measured: absent: it is not installed" in text


def test_the_part_of_engine_processes_in_the_cpu_time_is_said_where_it_is_known():
    text = said(Row("a", "photos", cpu_us=2185.4, engine_us=1040.0), Row("b", "photos", cpu_us=7.0, p50_ms=None))
    assert "| 2,185 (1,040 in engine processes) |" in text
    assert "| b |  | 0 | – | – | 7 |" in text
