"""What a process that tries cases leaves behind when it ends."""

from pytrtplugins.check.steps import _Note


def test_the_note_of_a_case_has_room_for_long_fields():
    note, case = _Note(), [1, 2, "x" * 1_000_000]
    note.write(case)
    assert note.read() == case
    note.write(None)
    assert note.read() is None
