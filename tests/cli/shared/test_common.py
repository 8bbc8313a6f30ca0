"""How much commands say, and what a shell completes."""

import json
import logging

import pytest

from pytrtplugins import cli
from pytrtplugins.engines import auto_engine, names


def leaves(command, words=()):
    inner = getattr(command, "commands", None)
    if not inner:
        return {" ".join(words): command}
    return {key: value for name, each in inner.items() for key, value in leaves(each, (*words, name)).items()}


COMMANDS = leaves(cli.command())


def test_all_commands_are_here():
    some = "bench,build,check-plugin,devices,doctor,extract,precision search,profile,run"
    assert set(some.split(",")) <= set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_these_options_once(name):
    options = [option for parameter in COMMANDS[name].params for option in parameter.opts]
    for option in ("-q", "--quiet", "-v", "--verbose", "--json"):
        assert options.count(option) == 1


def test_a_quiet_command_names_what_does_not_hold(pytrt, tmp_path):
    (tmp_path / "quietly.py").write_text(
        "import pytrtplugins as ptp\n@ptp.plugin(namespace='clicommon')\nclass Wrong(ptp.Plugin):\n"
        "    def output_dims(self, x): return x\n    def compute(self, x): raise ValueError('wrong')\n"
    )
    code, out, err = pytrt("check-plugin", tmp_path / "quietly.py:Wrong", "-q")
    assert (code, out) == (1, "")
    assert err.startswith("Wrong(): dims: no input shape works")


def test_help_texts_name_no_file_of_a_checkout(pytrt):
    for name, command in COMMANDS.items():
        assert "docs/" not in command.help, name
        assert "samples/" not in command.help.replace("file:///checkout/samples/models", ""), name
    assert "samples/" not in pytrt("--help")[1]


def test_a_quiet_command_prints_errors_only(pytrt):
    assert pytrt("devices", "-q") == (0, "", "")
    for words in (("-q", "--json"), ("--json", "-q")):  # who asks for JSON gets it, and nothing else
        code, out, err = pytrt("devices", *words)
        assert (code, err, json.loads(out)["result"]["auto"]) == (0, "", auto_engine())
    code, out, err = pytrt("inspect", "missing.onnx", "--quiet")
    assert (code, out) == (2, "")
    assert "no such file" in err
    assert pytrt("devices")[1]  # the next command speaks again


@pytest.mark.parametrize(("option", "level"), [("-q", logging.ERROR), ("-v", logging.INFO), (None, logging.WARNING)])
def test_the_packages_messages_follow(pytrt, monkeypatch, option, level):
    from pytrtplugins.cli.shared import tables

    found = []
    monkeypatch.setattr(
        tables, "print_devices", lambda *_: found.append(logging.getLogger("pytrtplugins.x").getEffectiveLevel())
    )
    assert pytrt("devices", *filter(None, [option]))[0] == 0
    assert found == [level]
    assert logging.getLogger("pytrtplugins").level == logging.NOTSET, "the process that called the command has its own"


@pytest.mark.parametrize(
    ("words", "wanted"),
    [("pytrt ben", ["bench"]), ("pytrt bench --prec", ["--precision"]), ("pytrt build --engine a", ["auto"]),
     ("pytrt build --engine re", ["reference"]), ("pytrt precision se", ["search"]),
     ("pytrt export", ["export-plugin", "export-triton"])],
)  # fmt: skip
def test_a_shell_completes_commands_options_and_engines(pytrt, monkeypatch, words, wanted):
    monkeypatch.setenv("_PYTRT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    code, out, _ = pytrt()
    assert (code, out.split()) == (0, wanted)
    assert "reference" in names()


def test_the_help_says_how_a_shell_learns_it(pytrt):
    assert "--install-completion" in pytrt("--help")[1]
