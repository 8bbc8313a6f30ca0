"""A registry is whole whenever a process that changes it is killed, and what is not whole is found."""

import os
import signal
import sys

import pytest

from pytrtplugins.errors import ModelRegistryError
from pytrtplugins.mlops.registry import ModelRegistry

MOST_STEPS = 200
EVENTS = ("os.rename", "os.remove", "os.mkdir", "os.chmod")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


def killed_at(step, work):
    """Whether a child that does some work was killed, before this step of what it changes in the file system."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    left = step

    def count(event, given):
        nonlocal left
        if event in EVENTS or (event == "open" and given[2] & (os.O_WRONLY | os.O_RDWR)):
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        sys.addaudithook(count)
        work()
        os._exit(0)
    except BaseException:
        os._exit(1)


def kill_everywhere(registry, work, before, after):
    """Kill some work at each of its steps: it has been done or it has not, and a repair leaves nothing over."""
    for step in range(1, MOST_STEPS):
        killed = killed_at(step, work)
        assert registry.check().whole
        found = state(registry)
        assert found in (before, after)
        registry.check(repair=True)
        assert not registry.check().problems
        assert state(registry) == found
        if found == after:
            return step
        assert killed
    raise AssertionError("it was never done")


def state(registry):
    """What the registry says."""
    if not (registry.folder.path / "registry.json").exists():
        return {}
    return {
        (name, version.version): (registry.history(name).stage_of(version.version), registry.file(version).read_bytes())
        for name in registry.names()
        for version in registry.versions(name)
    }


def test_a_killed_addition_is_done_or_it_is_not(registry, engine_file):
    first, second = engine_file("scale1", b"1"), engine_file("scale2", b"2")
    registry.add(first, name="scale")
    before = state(registry)
    after = {**before, ("scale", 2): (None, second.read_bytes())}
    steps = kill_everywhere(registry, lambda: registry.add(second, name="scale"), before, after)
    assert steps > 5


def test_a_killed_first_addition_leaves_a_folder_that_can_be_used(registry, engine_file):
    path = engine_file()
    for step in range(1, MOST_STEPS):
        new = ModelRegistry(registry.folder.path / str(step))
        killed = killed_at(step, lambda new=new: new.add(path, name="scale"))
        marked = (new.folder.path / "registry.json").exists()  # from here on it is as any addition
        assert new.add(path, name="scale").version == 1
        assert new.check(repair=True).whole
        assert not new.check().problems
        if not killed or marked:
            return
    raise AssertionError("it was never done")


def test_a_killed_promotion_is_done_or_it_is_not(filled):
    filled.promote("scale", 1)
    before = state(filled)
    after = {
        **before,
        ("scale", 1): ("archived", before["scale", 1][1]),
        ("scale", 2): ("production", before["scale", 2][1]),
    }
    kill_everywhere(filled, lambda: filled.promote("scale", 2), before, after)


def test_a_killed_removal_is_done_or_it_is_not(filled):
    before = state(filled)
    after = {key: value for key, value in before.items() if key != ("scale", 2)}
    kill_everywhere(filled, lambda: filled.remove("scale", 2), before, after)
    assert not filled.folder.object(filled.folder.path.name).exists()
    assert len(list(filled.folder.objects.glob("*/*"))) == 2


def test_what_is_left_over_is_removed_and_nothing_else(filled):
    orphan = filled.folder.object("a" * 64)
    orphan.parent.mkdir(exist_ok=True)
    orphan.write_bytes(b"nobody's")
    part = filled.folder.models / "scale/.1.json.1-00000000.part.json"
    part.touch()
    found = filled.check()
    assert (found.whole, {problem.path for problem in found.problems}) == (True, {str(orphan), str(part)})
    found = filled.check(repair=True)
    assert (len(found.removed), found.problems, found.versions) == (2, (), 3)
    assert not orphan.exists()


def damage_object(registry):
    path = registry.file(registry.get("scale", 2))
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    return path, "damaged: its contents do not have the digest"


def lose_object(registry):
    path = registry.file(registry.get("scale", 2))
    path.unlink()
    return path, "missing; scale:2 (scale2.engine) needs it"


def damage_manifest(registry):
    path = registry.folder.models / "scale/2.json"
    path.write_bytes(path.read_bytes().replace(b"reference", b"refarence"))
    return path, "do not have the digest that it names"


def swap_manifests(registry):
    path = registry.folder.models / "scale/2.json"
    path.write_bytes((registry.folder.models / "scale/1.json").read_bytes())
    return path, "it is the manifest of scale:1"


def lose_manifest(registry):
    registry.promote("scale", 2)
    (registry.folder.models / "scale/2.json").unlink()
    return registry.folder.history_path("scale"), "it has version 2, whose manifest is missing"


def damage_history(registry):
    registry.promote("scale", 2)
    path = registry.folder.history_path("scale")
    path.write_bytes(path.read_bytes().replace(b"promote", b"rollback"))
    return path, "do not have the digest"


def put_something_else(registry):
    path = registry.folder.models / "scale/notes.txt"
    path.touch()
    return path, "it does not belong here"


@pytest.mark.parametrize(
    "damage",
    [damage_object, lose_object, damage_manifest, swap_manifests, lose_manifest, damage_history, put_something_else],
)
def test_damage_is_found_and_a_repair_does_not_touch_it(filled, damage):
    path, words = damage(filled)
    files = set(filled.folder.files())
    found = filled.check(repair=True)
    assert not found.whole
    assert [problem.path for problem in found.problems if words in problem.text] == [str(path)]
    assert set(filled.folder.files()) == files


def test_a_folder_that_is_no_registry_says_what_to_do(tmp_path):
    with pytest.raises(ModelRegistryError, match=r"there is no registry of models.*\nDo: pytrt models add"):
        ModelRegistry(tmp_path).check()
