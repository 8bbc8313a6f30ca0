"""Checkpoints whose folders are damaged, older, foreign or hostile: what is used, replaced, kept and said."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest

from pytrtplugins.errors import FormatError
from pytrtplugins.utils.files import sha256_hex
from tests.samples.needs_torch import WITHOUT_RANKS, torch
from tests.samples.training.toy import STEPS, advance, difference, make, state
from training.checkpoint import Checkpoints, _cause, complete
from training.loop import Loop
from training.ranks import Ranks

ALONE = Ranks(0, 1, torch.device("cpu"), False)
pytestmark = WITHOUT_RANKS


def place(folder: Path, said: list[str] | None = None) -> Checkpoints:
    return Checkpoints(folder, ALONE, warn=(said if said is not None else []).append)


def write(folder: Path, *steps: int) -> Loop:
    """A run with checkpoints of these steps."""
    checkpoints, loop = place(folder), make()
    for step in steps:
        advance(loop, step - loop.step)
        loop.save(checkpoints, {})
    assert checkpoints.wait()
    return loop


def damage(folder: Path) -> None:
    (folder / "__0_0.distcp").write_bytes(b"junk")


def resume(folder: Path, said: list[str] | None = None) -> tuple[Loop, Checkpoints]:
    loop, checkpoints = make(), place(folder, said)
    loop.resume(checkpoints, *checkpoints.newest())
    return loop, checkpoints


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("left", ["damaged", "older run", "no facts"])
def test_what_lies_under_the_name_of_a_new_checkpoint_is_replaced(tmp_path, left):
    run, target = tmp_path / "run", tmp_path / "run/step-000000006"
    whole = write(run, 3, STEPS)
    match left:
        case "damaged":
            damage(target)
        case "older run":
            (target / "facts.json").write_text((run / "step-000000003/facts.json").read_text())
        case "no facts":
            (target / "facts.json").unlink()
    loop, checkpoints = resume(run)
    assert loop.step == 3
    advance(loop, STEPS - 3)
    loop.save(checkpoints, {})
    assert checkpoints.wait()
    again, _ = resume(run)
    assert again.step == STEPS
    assert difference(state(again), state(whole)) == 0
    assert names(run) == ["step-000000003", "step-000000006"]


def test_what_a_run_wrote_or_read_is_not_written_again(tmp_path):
    write(tmp_path, 3)
    loop, checkpoints = resume(tmp_path)
    before = (tmp_path / "step-000000003").stat().st_ino
    loop.save(checkpoints, {})
    assert checkpoints.wait()
    assert (tmp_path / "step-000000003").stat().st_ino == before
    advance(loop, 1)
    for _ in range(2):
        loop.save(checkpoints, {})
        assert checkpoints.wait()
        inode = (tmp_path / "step-000000004").stat().st_ino
    assert (tmp_path / "step-000000004").stat().st_ino == inode


def test_damaged_newer_checkpoints_take_no_place_of_good_ones(tmp_path):
    """Two good ones are kept beside them; they go when the run has passed them."""
    write(tmp_path, 2, 4)
    (tmp_path / "step-000000004").rename(tmp_path / "kept")
    write(tmp_path, 5, 6)
    (tmp_path / "kept").rename(tmp_path / "step-000000004")
    for step in (5, 6):
        damage(tmp_path / f"step-00000000{step}")
    said: list[str] = []
    loop, checkpoints = resume(tmp_path, said)
    assert loop.step == 4
    assert [text.split(": ")[0] for text in said] == [
        str(tmp_path / "step-000000006/__0_0.distcp"),
        str(tmp_path / "step-000000005/__0_0.distcp"),
    ]
    assert all(text.endswith("the run continues from step-000000004") for text in said)
    kept = {5: ["4", "5", "6"], 6: ["5", "6"]}
    for step, expected in kept.items():
        advance(loop, 1)
        loop.save(checkpoints, {})
        assert checkpoints.wait()
        assert [name[-1] for name in names(tmp_path)] == expected, step
    assert resume(tmp_path)[0].step == 6


def test_checkpoints_are_ordered_by_their_steps_and_other_names_are_none(tmp_path):
    others = ["step-12", "step-x", "step-\N{SUPERSCRIPT TWO}", "step-0000000012"]
    for name in ("step-999999999", "step-1000000000", *others):
        (tmp_path / name).mkdir()
        (tmp_path / name / "facts.json").touch()
    assert [path.name for path in complete(tmp_path)] == ["step-1000000000", "step-999999999"]


def forge(folder: Path, **files: object) -> None:
    """Change files of a checkpoint, with sizes and digests that fit."""
    for name, content in files.items():
        path = next(folder.glob(f"{name}*"))
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    facts = json.loads((folder / "facts.json").read_text())
    facts["files"] = {
        path.name: [path.stat().st_size, sha256_hex(path)] for path in folder.iterdir() if path.name != "facts.json"
    }
    (folder / "facts.json").write_text(json.dumps(facts))


@pytest.mark.parametrize(
    "facts",
    [
        [],
        3,
        {},
        {"version": 1},
        {"version": 2},
        {"version": 2, "step": 6, "facts": {}},
        {"version": 2, "step": 6, "facts": {}, "files": {}},
        {"version": 2, "step": 6, "facts": [], "files": {"index.json": [1, ""]}},
        {"version": 2, "step": 6, "facts": {}, "files": {"index.json": 1}},
        {"version": 2, "step": 6, "facts": {}, "files": {"index.json": ["1", 2]}},
        {"version": 2, "step": 6, "facts": {}, "files": ["index.json"]},
        {"version": 2, "step": 5, "facts": {}, "files": {"index.json": [1, ""]}},
    ],
)
def test_facts_without_what_belongs_there_are_damage(tmp_path, facts):
    write(tmp_path, 3, 6)
    (tmp_path / "step-000000006/facts.json").write_text(json.dumps(facts))
    said: list[str] = []
    path, _ = place(tmp_path, said).newest()
    assert path.name == "step-000000003"
    assert f"{tmp_path}/step-000000006/facts.json: " in said[0]


def test_facts_that_the_caller_refuses_are_damage(tmp_path):
    write(tmp_path, 3, 6)

    def check(facts):
        if facts["step"] == 6:
            raise FormatError("it lacks 'rows'")

    said: list[str] = []
    path, facts = place(tmp_path, said).newest(check)
    assert (path.name, facts["step"]) == ("step-000000003", 3)
    assert said == [f"{tmp_path}/step-000000006/facts.json: it lacks 'rows'; the run continues from step-000000003"]


def test_facts_hold_the_log_of_a_long_run(tmp_path):
    rows = [{"step": step, "loss": 0.5} for step in range(40_000)]  # more than a megabyte
    checkpoints = place(tmp_path)
    checkpoints.save(1, {"a": torch.zeros(1)}, {"rows": rows})
    assert checkpoints.wait()
    assert place(tmp_path).newest()[1]["rows"] == rows


@pytest.mark.parametrize("lack", ["world", "scaler"])
def test_a_run_needs_the_number_of_ranks_and_the_loss_scale(tmp_path, lack):
    write(tmp_path, 3)
    path = tmp_path / "step-000000003/facts.json"
    held = json.loads(path.read_text())
    del held["facts"][lack]
    path.write_text(json.dumps(held))
    with pytest.raises(FormatError, match=f"step-000000003/facts.json: .*{lack}"):
        resume(tmp_path)


@pytest.mark.parametrize("limit", [700, 5000, 9000])
def test_a_file_that_cannot_be_written_to_its_end_is_said_in_words(tmp_path, limit):
    """Behind some of these limits PyTorch says "unexpected pos 704 vs 598"."""
    said: list[str] = []
    checkpoints = place(tmp_path, said)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        checkpoints.save(1, {"a": torch.zeros(5000), "b": torch.zeros(30)}, {})
        assert not checkpoints.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert said == [
        "checkpoint step-000000001 could not be written: [Errno 27] File too large; there is none yet.\n"
        f"Do: make room at {tmp_path}; the next one is tried as usual"
    ]


def test_errors_of_other_ranks_come_without_what_was_behind_them():
    error = RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598")
    assert _cause(error) == "only a part of a file could be written"
