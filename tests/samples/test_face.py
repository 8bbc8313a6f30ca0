"""The face sample, run as a user runs it, on a small network with PReLU and made-up people."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import onnx
import pytest

from pytrtplugins.vision import save_image
from tests.mlops.tables.people import network, photos

SAMPLE = Path(__file__).parents[2] / "samples" / "face.py"


@pytest.fixture
def sample(tmp_path, monkeypatch, capsys):
    """Run the sample beside a network and photos; gives exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    onnx.save(network(), tmp_path / "face.onnx")
    for name, image in photos().items():
        path = tmp_path / "people" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        save_image(image, path)

    def run(*words):
        argv = ["face.py", "--model", "face.onnx", "--engine", "reference", *map(str, words)]
        monkeypatch.setattr(sys, "argv", argv)
        code: object = 0
        try:
            runpy.run_path(str(SAMPLE), run_name="__main__")
        except SystemExit as end:
            code = end.code or 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_two_photos_are_the_same_person_or_not(sample):
    threshold = ("--threshold", "0.99")
    assert "the same person: cosine 1.000" in sample("people/s1/0.png", "people/s1/0.png", *threshold)[1]
    assert "different people: cosine" in sample("people/s1/0.png", "people/s2/0.png", *threshold)[1]


def test_an_enrolled_person_is_found_now_and_later(sample, tmp_path):
    code, out, _ = sample("--enroll", "people", "--index", "people.npz", "--find", "people/s3/1.png")
    assert code == 0
    assert "enrolled 6 people with 18 photos" in out
    assert "1. s3: cosine 1.000 with s3/1.png" in out
    code, out, _ = sample("--index", "people.npz", "--find", "people/s5/2.png")
    assert code == 0
    assert "1. s5: cosine 1.000 with s5/2.png" in out


def test_the_threshold_is_measured(sample):
    code, out, _ = sample("--measure", "people")
    assert code == 0
    assert "153 pairs, 18 of the same person" in out
    assert "true positives at 0.001 false positives: 1.0000, with --threshold" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "expected two photos, or --measure"),
        (("people/s1/0.png",), "expected two photos to compare, found 1"),
        (("--find", "people/s1/0.png"), "or --index FILE with --find"),
        (("--index", "people.npz"), "or --index FILE with --find"),
        (("--enroll", "people", "--measure", "people"), "expected two photos, or --measure"),
        (("--enroll", "people", "--precision", "int8"), "--precision int8 needs --cache"),
        (("--index", "nothing.npz", "--find", "people/s1/0.png"), "nothing.npz"),
        (("people/s1/0.png", "people/s2/0.png", "--detector", "yunet.onnx"), "no such file"),
    ],
)
def test_wrong_words_are_one_line_and_what_to_do(sample, words, said):
    code, _, err = sample(*words)
    assert code == 2
    assert said in err
    assert "Traceback" not in err
