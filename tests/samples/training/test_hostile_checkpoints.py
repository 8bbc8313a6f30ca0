"""Folders of checkpoints in which a file is a link, a FIFO, a socket or a device: each is refused by name, and nothing outside changes."""

import shutil
import sys

import pytest

from tests.samples.needs_torch import WITHOUT_RANKS

if sys.platform == "win32":
    pytest.skip("Windows has no FIFOs", allow_module_level=True)

from tests.hostile_folders import KINDS, assert_refused, put
from tests.samples.training.test_loop import place
from tests.samples.training.toy import make
from training.checkpoint import complete

pytestmark = WITHOUT_RANKS
STEP = "step-000000001"
FILES = ("facts.json", "index.json", "__0_0.distcp")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints")
    checkpoints, loop = place(folder), make()
    loop.advance()
    loop.save(checkpoints, {})
    assert checkpoints.wait()
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "checkpoints")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [STEP, ".step-000000002.part", *(f"{STEP}/{file}" for file in FILES)])
def test_a_run_that_begins_there_is_refused(folder, tmp_path, kind, name):
    put(kind, folder / name, tmp_path / "outside")
    assert_refused(lambda: place(folder), folder / name, tmp_path / "outside")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_exchanged_later_is_not_read(folder, tmp_path, kind, name):
    checkpoints = place(folder)
    put(kind, folder / STEP / name, tmp_path / "outside")
    assert_refused(checkpoints.newest, folder / STEP / name, tmp_path / "outside")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FILES[1:])
def test_a_file_that_is_exchanged_after_it_was_compared_is_not_read(folder, tmp_path, kind, name):
    checkpoints, loop = place(folder), make()
    path, facts = checkpoints.newest()
    put(kind, folder / STEP / name, tmp_path / "outside")
    assert_refused(lambda: loop.resume(checkpoints, path, facts), folder / STEP / name, tmp_path / "outside")


def test_what_no_checkpoint_is_stays_the_users(folder, tmp_path):
    (folder / "notes").symlink_to(tmp_path)
    place(folder)
    assert [path.name for path in complete(folder)] == [STEP]
