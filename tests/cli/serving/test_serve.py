"""The command ``pytrt serve``: what it hands on."""

import json
import re
from pathlib import Path

import pytest

from pytrtplugins.cli import main
from pytrtplugins.cli.serving import serve_options


@pytest.fixture
def served(monkeypatch):
    calls = []
    counts = dict.fromkeys(("succeeded", "failed", "refused", "late", "batches"), 3)

    def serve(specs, **options):
        calls.append((specs, options))
        return {each.name: {each.version: counts} for each in specs}

    monkeypatch.setattr("pytrtplugins.cli.serving.serve.serve", serve)

    def run(*words):
        with pytest.raises(SystemExit) as caught:
            main(["serve", *map(str, words)])
        return caught.value.code, calls

    return run


def test_models_and_limits_are_handed_on(served):
    words = ["a=x.engine", "y.onnx", "--max-batch", "8", "--max-delay", "500us", "--queue", "9", "--port", "0"]
    code, [(specs, options)] = served(*words, "--body-limit", "2")
    assert not code
    assert [(each.name, each.target, each.max_batch, each.max_delay_ms, each.queue) for each in specs] == [
        ("a", "x.engine", 8, 0.5, 9),
        ("y", "y.onnx", 8, 0.5, 9),
    ]
    assert (options["host"], options["port"], options["limits"].body_bytes) == ("127.0.0.1", 0, 2 << 20)


@pytest.mark.parametrize(
    ("words", "cpu", "engines"),
    [([], None, None), (["--local"], 0, None), (["--cpu", "0"], 0, None), (["--cpu", "12", "--gpu", "4"], 12, 4)],
)
def test_processes_are_handed_on(served, words, cpu, engines):
    _, [(_, options)] = served("x.engine", *words)
    assert (options["cpu"], options["engines"]) == (cpu, engines)


@pytest.mark.parametrize(("words", "shared"), [([], False), (["--shared-memory"], True)])
def test_memory_is_shared_with_clients_only_where_the_user_says_so(served, words, shared):
    _, [(_, options)] = served("x.engine", *words)
    assert bool(options["limits"].shared_memory_regions) is shared


def test_one_process_and_several_contradict_each_other(served, capsys):
    assert served("x.engine", "--local", "--cpu", "2") == (2, [])
    assert "leave one of them out" in capsys.readouterr().err


DELAYS = {"1us": 0.001, "250us": 0.25, "2.5ms": 2.5, "10000ms": 10_000, "0.5s": 500, "10s": 10_000}


@pytest.mark.parametrize(("delay", "expected"), DELAYS.items())
def test_a_delay_is_handed_on_in_milliseconds(served, delay, expected):
    _, [(specs, _)] = served("x.engine", "--max-delay", delay)
    assert specs[0].max_delay_ms == pytest.approx(expected)


def test_delays_of_all_units_are_tested():
    assert {re.sub(r"[0-9.]", "", delay) for delay in DELAYS} == set(serve_options._MILLISECONDS)


@pytest.mark.parametrize("delay", ["2", "11s", "10.000001s", "10000.001ms", "-1ms", "ms", "2 ms"])
def test_a_delay_without_a_unit_or_beyond_reason_is_refused(served, delay, capsys):
    code, calls = served("x.engine", f"--max-delay={delay}")
    assert (code, calls) == (2, [])
    assert "such as 500us, 2ms or 1s" in " ".join(capsys.readouterr().err.split())


def test_at_its_end_it_says_what_was_served(served, capsys):
    served("x.engine", "-q", "--json")
    assert json.loads(capsys.readouterr().out)["result"]["models"] == [
        {"name": "x", "version": "1", "succeeded": 3, "failed": 3, "refused": 3, "late": 3, "batches": 3}
    ]


FILE = """
[serve]
port = 8080
max-delay = "1ms"
queue = 5

[limits]
image_bytes = 1000

[models.double]
target = "tests.serving.served:Double"

[models.net]
target = "net.onnx"
queue = 6
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "serving.toml").write_text(FILE)
    return tmp_path / "serving.toml"


def test_a_file_says_what_is_served_and_the_command_line_wins(served, file):
    _, [(specs, options)] = served("--config", file, "--port", "8081", "--body-limit", "2")
    assert [(each.name, each.target, each.queue, each.max_delay_ms) for each in specs] == [
        ("double", "tests.serving.served:Double", 5, 1.0),
        ("net", str(file.parent / "net.onnx"), 6, 1.0),
    ]
    assert (options["port"], options["limits"].image_bytes, options["limits"].body_bytes) == (8081, 1000, 2 << 20)
    _, [_, (specs, options)] = served("--config", file, "x.engine")
    assert [(each.name, each.queue) for each in specs] == [("x", 5)]
    assert options["port"] == 8080


PAGE = (Path(__file__).parents[3] / "docs/how-to/serving_config.md").read_text("utf-8")


@pytest.mark.parametrize("text", re.findall(r"^```toml.*?\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
def test_each_file_on_the_page_is_taken(served, file, text, capsys):
    file.write_text(text)
    code, [(specs, _)] = served("--config", file)
    assert (code, capsys.readouterr().err) == (0, "")
    assert specs


def test_an_old_name_of_an_option_works_in_a_file(served, file):
    for name in ("cpu", "workers"):  # an old name
        file.write_text(FILE.replace("port = 8080", f"{name} = 3"))
        assert served("--config", file)[1][-1][1]["cpu"] == 3


def test_check_says_what_would_be_served_and_serves_nothing(served, file, capsys):
    (file.parent / "net.onnx").write_bytes(b"")
    rows = (("2", "share = 0.1"), ("3", "shadow = true"))
    versions = "".join(
        f"[[models.net.versions]]\nversion = '{number}'\ntarget = 'tests.serving.served:Double'\n{line}\n"
        for number, line in rows
    )
    file.write_text(FILE + versions)
    code, calls = served("--config", file, "--check")
    assert (code, calls) == (0, [])
    assert capsys.readouterr().out == (
        f"double, version 1: tests.serving.served:Double\nnet, version 1: {file.parent / 'net.onnx'}\n"
        "net, version 2: tests.serving.served:Double, for 10 % of the requests\n"
        "net, version 3: tests.serving.served:Double, a shadow\n"
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("", "net.onnx: no such file. Looked for:"),
        (
            "[models.a]\ntarget = 'tests/serving/served.py:Gone'",
            "module '{folder}/tests/serving/served.py': cannot be imported",
        ),
        ("[server]", "pytrt has no command 'server'.\nDo: write serve"),
        ("[modles.a]", "pytrt has no command 'modles'.\nDo: write models"),
        ("[models.net.limits]", "line 17: models.net has no key 'limits'."),
    ],
)
def test_check_finds_what_is_wrong(served, file, capsys, change, said):
    if change:
        (file.parent / "net.onnx").write_bytes(b"")
    file.write_text(f"{FILE}\n{change}\n")
    code, calls = served("--config", file, "--check")
    assert (code, calls) == (2, [])
    assert said.format(folder=file.parent) in capsys.readouterr().err


def test_without_a_model_the_error_says_where_they_come_from(served, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert served() == (2, [])
    assert "no model: name one, or a file with [models.NAME]" in capsys.readouterr().err


def test_ray_gets_the_models_and_the_replicas(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(
        "pytrtplugins.serving.ray.serve_on_ray", lambda *words, **options: calls.append((words, options))
    )
    file = tmp_path / "serving.toml"
    file.write_text('[scale]\ngpus = 0.5\nmax_replicas = 3\n[models.a]\ntarget = "a.engine"\n')
    with pytest.raises(SystemExit) as caught:
        main(["serve", "--config", str(file), "--ray", "auto", "--replicas", "1:8"])
    [((specs, address), options)] = calls
    assert (caught.value.code, [each.name for each in specs], address) == (0, ["a"], "auto")
    assert (options["scale"].gpus, options["scale"].max_replicas) == (0.5, 8)


@pytest.mark.parametrize(
    "words", [["--ray", "auto", "--grpc-port", "1"], ["--ray", "auto", "--cpu", "2"], ["--replicas", "2"]]
)
def test_options_that_ray_cannot_follow_are_refused(served, words, capsys):
    assert served("x.engine", *words) == (2, [])
    assert "leave one of them out" in (found := capsys.readouterr().err) or "--ray auto" in found
