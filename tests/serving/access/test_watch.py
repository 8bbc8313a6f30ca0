"""Files that are read anew when they change."""

import itertools
import os

from pytrtplugins.serving.access.watch import _state


def test_every_change_of_a_file_is_seen(tmp_path):
    """Also another file of the same size and time, as ``mv`` puts in its place."""
    path, other = tmp_path / "keys.toml", tmp_path / "new.toml"
    for file in (path, other):
        file.write_text("a = 1")
        os.utime(file, ns=(5, 5))
    states = [_state([str(path)])]
    other.replace(path)
    states.append(_state([str(path)]))
    path.write_text("a = 10")
    os.utime(path, ns=(5, 5))
    states.append(_state([str(path)]))
    os.utime(path, ns=(5, 6))
    states.append(_state([str(path)]))
    path.unlink()
    states.append(_state([str(path)]))
    assert states[-1] == [None]
    assert all(before != after for before, after in itertools.pairwise(states))
