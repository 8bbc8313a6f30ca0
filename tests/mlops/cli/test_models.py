"""The commands ``pytrt models ...``."""

import json

import pytest

from pytrtplugins.engines.base.engine_file import write_engine_file
from pytrtplugins.mlops.registry import facts


@pytest.fixture
def run(pytrt, tmp_path, monkeypatch):
    monkeypatch.setattr(facts, "environment", lambda: ({"processor": "a CPU"}, {}))
    for number in (1, 2):
        metadata = {"engine": "reference", "options": {"precision": "fp32"}}
        write_engine_file(tmp_path / f"{number}.engine", metadata, b"model %d" % number)

    def run(words, code=0):
        ended, out, err = pytrt("models", *words.split())
        assert ended == code, out + err
        return err if code else out

    return run


def test_a_version_goes_from_a_file_to_production_and_back(run, tmp_path):
    (tmp_path / "figures.json").write_text('{"map50": 0.5}')
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/1.jpg").touch()
    run("add 1.engine --name scale --licence MIT --stage production")
    assert "scale:2:" in run(
        "add 2.engine --name scale --figures figures.json --dataset evaluation=photos --pipeline-run r7 --parent 1"
    )
    assert run("promote scale --stage staging") == "scale:2 is in staging\n"
    assert "is in production" in run("promote scale:2 --why better --who me")
    assert run("rollback scale --why worse") == "scale:1 is back in production\n"
    listed = json.loads(run("list --json"))["result"]["versions"]
    assert [(each["version"]["version"], each["stage"]) for each in listed] == [(1, "production"), (2, "archived")]
    head, _, first, *_ = run("list").strip().splitlines()
    assert head.split() == ["version", "stage", "engine", "size", "created", "digest", "licence", "note"]
    assert first.split()[:4] == ["scale:1", "production", "reference", "fp32"]
    assert first.split()[5] == "bytes"
    assert "MIT" in first
    shown = run("show scale:2 -o card.html")
    assert "map50" in shown
    assert "scale:1 is back in production" in shown
    assert "written: card.html" in shown
    assert "map50" in run("diff scale:1 scale:2")
    assert "evaluation" in run("lineage scale:2")
    assert "0 problems" not in run("check")
    assert run("remove scale:2") == "scale:2 was removed\n"
    assert "whole: 1 models, 1 versions, 1 files" in run("check --repair")


def test_what_is_in_production_stays_there_when_the_step_that_added_it_is_run_again(run):
    run("add 1.engine --name scale --stage staging")
    run("promote scale")
    assert "in production" in run("add 1.engine --name scale --stage staging")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("add 1.engine --name scale --data photos", "expected USE=PATH or USE=SHA256"),
        ("add 1.engine --name scale --data evaluation=nowhere", "expected a file, a folder, or 64 hex digits"),
        ("add 1.engine --name ../x", "a model's name has letters"),
        ("promote scale@production", "name the version by its number"),
        ("remove scale", "name the version, such as scale:1"),
        ("list", "Do: pytrt models add FILE.engine --name NAME"),
    ],
)
def test_a_wrong_word_is_an_error_and_no_traceback(run, words, said):
    assert said in " ".join(run(words, 2).split())


def test_a_damaged_file_is_exit_code_one(run, tmp_path):
    run("add 1.engine --name scale")
    path = next((tmp_path / ".pytrt/models/objects").glob("*/*"))
    path.chmod(0o644)
    path.write_bytes(b"?")
    run("check", 1)
