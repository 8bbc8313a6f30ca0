"""The command line of the sample programs: what each option sets, what is taken without it, and what is refused."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from pytrtplugins.errors import PytrtpluginsError
from pytrtplugins.models import options as module
from pytrtplugins.models.options import parse_options


@pytest.fixture
def parse(tmp_path, monkeypatch):
    """Parse words in a folder with a network, beside samples with another one."""
    monkeypatch.chdir(tmp_path)
    for name in ("samples/models/net.cfg", "samples/models/net.weights", "samples/models/net.names", "samples/dog.jpg",
                 "own.cfg", "own.weights", "own.names", "own.cache", "bare.cfg", "a.mp4", "b.png"):  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")

    def parsed(*words):
        options = vars(parse_options("A sample.", "samples/models/net", words))
        return {name: str(value) if isinstance(value, Path) else value for name, value in options.items()}

    return parsed


def test_without_options_the_model_of_the_samples_is_used(parse):
    options = parse("dog.jpg")
    (source,) = options.pop("sources").found
    assert Path(source.address).relative_to(Path.cwd()) == Path("samples/dog.jpg")
    model = {name: f"samples/models/net.{name}" for name in ("cfg", "weights", "names", "cache")}
    assert options == model | {
        "precision": "fp32", "engine": "auto", "threads": None, "calibration": None, "threshold": 0.5, "nms": 0.45,
        "mode": "letterbox", "output": "predictions.png", "json": None,
    }  # fmt: skip


OWN = {name: f"own.{name}" for name in ("cfg", "weights", "names", "cache")}


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        ("--fp32", {}),
        ("--fp16", {"precision": "fp16"}),
        ("--int8 --calibration photos", {"precision": "int8", "calibration": "photos"}),
        ("--fp8 --calibration photos", {"precision": "fp8", "calibration": "photos"}),
        ("--int8 --cache own.cache", {"precision": "int8", "cache": "own.cache"}),
        ("--int8 --cfg own.cfg", {"precision": "int8", **OWN}),
        ("--engine cpu", {"engine": "cpu"}),
        ("--threads 3", {"threads": 3}),
        ("--cfg own.cfg", OWN),
        ("--cfg own.cfg --names b.names", {**OWN, "names": "b.names"}),
        ("--cfg bare.cfg --weights own.weights", {**OWN, "cfg": "bare.cfg", "names": None, "cache": "bare.cache"}),
        ("--weights own.weights", {"weights": "own.weights"}),
        ("--threshold 0.25", {"threshold": 0.25}),
        ("--nms 0.25", {"nms": 0.25}),
        ("--fit stretch", {"mode": "stretch"}),
        ("--mode stretch", {"mode": "stretch"}),
        ("--output c.png", {"output": "c.png"}),
        ("--save-json c.json", {"json": "c.json"}),
        ("--json c.json", {"json": "c.json"}),
    ],
)
def test_an_option_sets_its_value_and_no_other(parse, words, changed):
    expected = parse("dog.jpg") | changed
    assert {**parse("dog.jpg", *words.split()), "sources": 0} == {**expected, "sources": 0}


@pytest.mark.parametrize(
    ("sources", "output"),
    [("b.png dog.jpg", "predictions.png"), ("a.mp4", "predictions.mp4"), ("a.mp4 b.png", "predictions")],
)
def test_results_go_where_all_of_them_fit(parse, sources, output):
    assert parse(*sources.split())["output"] == output


@pytest.mark.parametrize(("names", "kept"), [("", "d.names"), ("--names own.names", "own.names")])
def test_a_downloaded_network_is_used_with_its_names(parse, monkeypatch, names, kept):
    files = SimpleNamespace(cfg=Path("own.cfg"), weights=Path("samples/models/net.weights"), names=Path("d.names"))
    monkeypatch.setattr(module, "download", {"yolov2-voc": files}.__getitem__)
    options = parse("dog.jpg", "--download", "yolov2-voc", *names.split())
    assert [options[name] for name in ("cfg", "weights", "names", "cache")] == [
        "own.cfg", "samples/models/net.weights", kept, "own.cache"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("none.jpg", r"none\.jpg"),
        ("dog.jpg --cfg none.cfg", r"--cfg none\.cfg: no such file\. Looked for: /"),
        ("dog.jpg --cfg bare.cfg", r"--weights bare\.weights: no such file"),
        ("dog.jpg --int8", r"--int8 needs [\s\S]*no calibration cache samples/models/net\.cache[\s\S]*--calibration"),
        ("dog.jpg --fp8", "--fp8 needs"),
        ("dog.jpg --download yolov2-voc --cfg own.cfg", "leave out --cfg and --weights"),
        ("dog.jpg --download yolov2-voc --weights own.weights", "leave out --cfg and --weights"),
        ("dog.jpg --save-json none/c.json", "--save-json"),
        ("a.mp4 --output c.png", r"c\.png"),
    ],
)
def test_what_cannot_be_run_is_refused(parse, words, message):
    with pytest.raises(PytrtpluginsError, match=message):
        parse(*words.split())


@pytest.mark.parametrize("words", ["", "dog.jpg --fp16 --int8", "dog.jpg --download yolov9", "dog.jpg --fit crop"])
def test_words_that_are_no_command_line_end_it(parse, words, capsys):
    with pytest.raises(SystemExit):
        parse(*words.split())
    assert "usage:" in capsys.readouterr().err


def test_the_help_has_the_samples_text_and_every_precision(parse, capsys):
    with pytest.raises(SystemExit):
        parse("--help")
    shown = capsys.readouterr().out
    assert all(words in shown for words in ("A sample.", "--fp16", "half precision", "--download NAME", "yolov2-voc"))
