"""Every option of every command that takes a number refuses nonsense, with its name, what was given, and what it takes."""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pytest

from pytrtplugins.utils.numbers import Real, Several, Whole

pytest.importorskip("onnx")
typer = pytest.importorskip("typer")

from darknet2caffe import cli as darknet2caffe_cli  # noqa: E402
from pytrtplugins import cli  # noqa: E402
from pytrtplugins.cli.app import app  # noqa: E402
from pytrtplugins.cli.number import limits_of  # noqa: E402
from pytrtplugins.models import options as sample_options  # noqa: E402

ROOT = Path(__file__).parents[2]
dict(cli.command().commands)  # all files that add commands are imported from here on
TRAINING = {
    "hold-back": (0.0, 0.99),
    "evaluations": (1, 10**6),
    "seconds": (0.0, 31_536_000.0),
    "save-every": (1.0, 31_536_000.0),
    "gpus": (1, 1024),
    "restarts": (0, 1000),
    "workers": (0, 1024),
    "ray-cores": (1, 1024),
    "readers": (1, 1024),
    "decoders": (0, 1024),
    "accumulate": (1, 1024),
    "steps": (1, 10**8),
    "batch": (1, 65_536),
    "weight-decay": (0.0, 100.0),
    "ema": (0.0, 1.0),
    "smoothing": (0.0, 1.0),
    "seed": (0, 2**32 - 1),
}
"""What all training programs have."""
MAINS = {"pytrt": cli.main, "darknet2caffe": darknet2caffe_cli.main}
APPS = {"pytrt": app, "darknet2caffe": darknet2caffe_cli.app}
IMAGES, PIXELS, FILTERS, THREADS = (1, 10**9), (1, 16_384), (1, 8192), (1, 4096)
COMMANDS = {
    "pytrt bench --threads": THREADS,
    "pytrt bench --batch": (1, 65_536),
    "pytrt bench --rounds": (1, 1000),
    "pytrt bench --seconds": (0.001, 3600.0),
    "pytrt bench --slots": (1, 256),
    "pytrt build --threads": THREADS,
    "pytrt build --threshold": (0.0, 1.0),
    "pytrt build --batch": (1, 65_536),
    "pytrt models add --version": (1, 10**9 - 1),
    "pytrt models add --parent": (1, 10**9 - 1),
    "pytrt run --threads": THREADS,
    "pytrt run --batch": (1, 65_536),
    "pytrt run --camera": (0, 1000),
    "pytrt run --threshold": (0.0, 1.0),
    "pytrt run --nms": (0.0, 1.0),
    "pytrt run --input-limit": (1, 2**20),
    "pytrt run --repeat": (1, 10**7),
    "pytrt run --slots": (1, 256),
    "pytrt serve --port": (0, 65_535),
    "pytrt serve --grpc-port": (1, 65_535),
    "pytrt serve --workers": (0, 256),
    "pytrt serve --gpu": (0, 256),
    "pytrt serve --max-batch": (1, 4096),
    "pytrt serve --queue": (1, 10**6),
    "pytrt serve --body-limit": (1, 4096),
    "pytrt serve-export --cpus": (0.1, 1024.0),
    "pytrt serve-export --gpus": (0.0, 64.0),
    "pytrt serve-key --rate": (0.001, 1e6),
    "pytrt serve-key --burst": (1, 10**6),
    "pytrt serve-key --concurrent": (1, 10**6),
    "pytrt serve-top --interval": (0.1, 3600.0),
    "pytrt calibrate --batch": (1, 4096),
    "pytrt calibrate --limit": IMAGES,
    "pytrt calibrate --threads": THREADS,
    "pytrt check-plugin --time-limit": (0.1, 86_400.0),
    "pytrt evaluate --threads": THREADS,
    "pytrt evaluate --threshold": (0.0, 1.0),
    "pytrt evaluate --nms": (0.0, 1.0),
    "pytrt evaluate --limit": IMAGES,
    "pytrt quantize --limit": IMAGES,
    "pytrt quantize --threads": THREADS,
    "pytrt convert --limit": IMAGES,
    "pytrt equalize --limit": IMAGES,
    "pytrt equalize --threads": THREADS,
    "pytrt export-plugin --architecture": (50, 999),
    "pytrt export-triton --version": (1, 2**63 - 1),
    "pytrt export-triton --max-batch": (1, 2**31 - 1),
    "pytrt export-triton --instances": (1, 1024),
    "pytrt export-triton --queue-delay": (0, 3_600_000_000),
    "pytrt profile --batch": (1, 65_536),
    "pytrt precision search --threads": THREADS,
    "pytrt precision search --images": IMAGES,
    "pytrt precision search --limit": IMAGES,
    "pytrt precision search --seed": (0, 2**32 - 1),
    "pytrt precision search --calibration": IMAGES,
    "pytrt precision search --max-latency-ratio": (1.0, 1e6),
    "pytrt precision search --max-runs": (1, 10**6),
    "pytrt compare --limit": IMAGES,
    "pytrt shards make --longest-side": (16, 16_384),
    "pytrt shards make --hold-back": (0.0, 0.99),
    "pytrt data compare --photos": (2, 100_000),
    "pytrt data compare --seed": (0, 2**32 - 1),
    "pytrt data compare --threads": THREADS,
    "pytrt shards make --workers": (1, 256),
    "pytrt shards check --workers": (1, 256),
    "pytrt table --limit": IMAGES,
    "pytrt table --threads": THREADS,
    "pytrt table --rounds": (1, 1000),
    "pytrt table --seconds": (0.001, 3600.0),
    "pytrt table --calibration-share": (0.01, 0.99),
    "pytrt compare --seed": (0, 2**32 - 1),
}
"""The smallest and the largest number that each option of the commands takes."""
PROGRAMS = {
    "pytrtplugins/models/options.py --threads": THREADS,
    "pytrtplugins/models/options.py --threshold": (0.0, 1.0),
    "pytrtplugins/models/options.py --nms": (0.0, 1.0),
    "samples/face.py --threshold": (-1.0, 1.0),
    "samples/face_story.py --samples": (1, 1_000_000),
    "samples/face_story.py --batches": (1, 4096),
    "samples/train_animals.py --seconds": (1.0, 1e6),
    "samples/train_animals.py --batch": (1, 4096),
    **{
        f"samples/train_{name}.py --{option}": limits
        for name in ("classifier", "yolov2")
        for option, limits in TRAINING.items()
    },
    "samples/train_classifier.py --size": (32, 1024),
    "samples/train_classifier.py --learning-rate": (1e-9, 100.0),
    "samples/train_classifier.py --mixup": (0.0, 10.0),
    "samples/train_classifier.py --smallest-crop": (0.01, 1.0),
    "samples/train_classifier.py --momentum": (0.0, 1.0),
    "samples/train_yolov2.py --boxes": (0, 10_000),
    "samples/train_yolov2.py --sizes": (32, 4096),
    "samples/train_yolov2.py --learning-rate": (1e-9, 10.0),
    **{
        f"samples/train_yolov2.py --{name}": (0.0, 1.0)
        for name in ("mosaic", "mixup", "close", "dropout", "balance", "balance-boxes")
    },
    "samples/train_yolov2.py --imitation": (0.0, 1e6),
    "samples/train_yolov2.py --negative": (0.0, 0.9),
    **{f"samples/train_yolov2.py --{name}": FILTERS for name in ("stages", "head", "passthrough")},
    "benchmarks/__main__.py --seconds": (0.0, 31_536_000.0),
    "benchmarks/accuracy.py --images": (1, 10**6),
    "benchmarks/accuracy.py --limit": (1, 10**6),
    "benchmarks/accuracy.py --half": (0, 10**6),
    "benchmarks/accuracy.py --processes": (1, 1024),
    "benchmarks/accuracy.py --threads": THREADS,
    "benchmarks/exporters.py --opsets": (7, 99),
    "benchmarks/exporters.py --processes": (1, 1024),
    "benchmarks/exporters.py --seconds": (1, 3600),
    "benchmarks/files.py --every": (1, 10**6),
    "benchmarks/files.py --processes": (1, 1024),
    "benchmarks/files.py --seconds": (1, 3600),
    "benchmarks/forms/__main__.py --every": (1, 10**6),
    "benchmarks/forms/__main__.py --processes": (1, 1024),
    "benchmarks/forms/__main__.py --seed": (0, 2**31),
    "benchmarks/gpu/onnx_file.py --batches": (1, 4096),
    "benchmarks/operators.py --processes": (1, 1024),
    "benchmarks/tensorrt_builds/__main__.py --processes": (1, 1024),
    "benchmarks/tensorrt_builds/__main__.py --seconds": (1, 36_000),
    "benchmarks/reorg_bandwidth.py --megabytes": (1, 65_536),
    "benchmarks/reorg_bandwidth.py --rounds": (1, 100_000),
    "benchmarks/resizes.py --photos": (0, 1000),
    "benchmarks/serving/__main__.py --load-seconds": (0.1, 3600.0),
    "benchmarks/serving/__main__.py --seconds": (0.0, 1e6),
    "benchmarks/serving/cost.py --connections": (1, 1000),
    "benchmarks/serving/cost.py --round": (1, 100_000),
    "benchmarks/serving/cost.py --rounds": (1, 1000),
    "benchmarks/serving/decoders.py --limit": (1, 1 << 30),
    "benchmarks/serving/gpu.py --clients": (1, 64),
    "benchmarks/serving/gpu.py --connections": (1, 64),
    "benchmarks/serving/gpu.py --cpu": (0, 256),
    "benchmarks/serving/gpu.py --engines": (1, 64),
    "benchmarks/serving/gpu.py --load-seconds": (0.1, 3600.0),
    "benchmarks/serving/gpu.py --seconds": (0.0, 1e6),
    "benchmarks/serving/gpu_decoding.py --batch": (1, 4096),
    "benchmarks/serving/gpu_decoding.py --seconds": (0.01, 60.0),
    "benchmarks/serving/hostile.py --cpu": (0, 256),
    "benchmarks/serving/hostile.py --rounds": (1, 100),
    "benchmarks/serving/hostile.py --seconds": (0.1, 3600.0),
    "benchmarks/serving/passing.py --rounds": (1, 10_000),
    "benchmarks/serving/passing.py --seconds": (0.1, 3600),
    "benchmarks/serving/soak.py --cpu": (1, 256),
    "benchmarks/serving/soak.py --gpu": (1, 256),
    "benchmarks/serving/soak.py --kill-every": (0.0, 1e5),
    "benchmarks/serving/soak.py --load": (0.0, 1000.0),
    "benchmarks/serving/soak.py --minutes": (0.0, 10_000.0),
    "benchmarks/serving/soak.py --seed": (0, 1 << 30),
    "benchmarks/serving/tiny.py --requests": (16, 1_000_000),
    "benchmarks/serving/tiny.py --rounds": (1, 10_000),
    "benchmarks/serving/tiny.py --seconds": (1.0, 3600.0),
    "benchmarks/serving/spread.py --cpu": (1, 256),
    "benchmarks/serving/spread.py --connections": (1, 256),
    "benchmarks/serving/spread.py --rounds": (1, 10_000),
    "benchmarks/serving/spread.py --seconds": (0.1, 3600.0),
    "benchmarks/training/loaders.py --ahead": (1, 1024),
    "benchmarks/training/loaders.py --batch": (1, 4096),
    "benchmarks/training/loaders.py --decoders": (0, 1024),
    "benchmarks/training/loaders.py --input": (32, 4096),
    "benchmarks/training/loaders.py --photos": (1, 10**7),
    "benchmarks/training/loaders.py --readers": (1, 1024),
    "benchmarks/training/loaders.py --seconds": (0.01, 3600.0),
    "benchmarks/training/loaders.py --side": (32, 4096),
    "benchmarks/training/loaders.py --until": (0.0, 1e6),
    "benchmarks/training/loaders.py --workers": (0, 256),
    **{
        f"benchmarks/training/{name}.py --{option}": limits
        for name in ("modes", "steps")
        for option, limits in {
            "batch": (1, 4096),
            "input": (32, 4096),
            "seconds": (0.01, 3600.0),
            "until": (0.0, 1e6),
        }.items()
    },
    "benchmarks/training/modes.py --longest": (1.0, 86_400.0),
    "benchmarks/training/steps.py --ahead": (0, 64),
    "benchmarks/training/steps.py --longest": (1.0, 86_400.0),
    "benchmarks/training/modes.py --gpus": (2, 64),
    "benchmarks/tensorrt_enqueue.py --calls": (1, 10**7),
    "benchmarks/tensorrt_enqueue.py --limit": (1e-6, 1e9),
}
"""The same for the samples and the benchmarks; options.py has the command line of samples/yolov2.py."""
NO_NUMBERS = {
    "benchmarks/conversion.py",
    "benchmarks/gpu/host_split.py",
    "benchmarks/serving/peers/__main__.py",
    "benchmarks/serving/triton_tests.py",
    "benchmarks/tensorrt_builds/placement.py",
}
TEXTS = {
    "darknet2caffe convert --batch": ("0", "-1", "nan", "inf", "1.5", "65537", str(10**12)),
    "darknet2caffe convert --input-size": ("0x416", "416x-1", "nanxnan", "416", "416x416x3", "16385x416", f"{10**12}x416"),
    "darknet2caffe inspect --input-size": ("0x416", "416x-1", "nanxnan", "416", "16385x416", f"{10**12}x416"),
    "pytrt compare --tolerance": ("atol=nan", "atol=inf", "rtol=-1", "atol=0,rtol=0", "cosine=1", "map50=0", "atol=1e12", "nan"),
    "pytrt precision search --tolerance": ("atol=nan", "cosine=nan", "cosine=2", "map50=nan", "map50=1", "map50=-1", "rtol=1e400"),
}  # fmt: skip
"""Options whose text holds numbers, and what they refuse."""
REST = {
    "pytrt compare --tolerance": ["a.onnx", "b.onnx"],
    "pytrt precision search --tolerance": ["a.onnx", "--data", "photos", "-o", "a.yaml"],
    "darknet2caffe convert --batch": ["a.cfg", "a.weights", "-o", "a.onnx"],
    "darknet2caffe convert --input-size": ["a.cfg", "a.weights", "-o", "a.onnx"],
    "darknet2caffe inspect --input-size": [str(ROOT / "samples" / "models" / "yolov2-animals.cfg")],
}


def walked(found: Any, words: str) -> Any:
    """Each command of a typer app: its words and its function."""
    for command in found.registered_commands:
        yield f"{words} {command.name or command.callback.__name__}", command.callback
    for group in found.registered_groups:
        yield from walked(group.typer_instance, f"{words} {group.name}")


def parts_of(hint: Any) -> Any:
    """A type, and the types within it."""
    yield hint
    for part in get_args(hint):
        yield from parts_of(part)


def command_options() -> dict[str, Any]:
    """Each option of the commands whose type is a number: its words and what typer was given for it."""
    found = {}
    for program, one in APPS.items():
        for words, function in walked(one, program):
            for name, hint in get_type_hints(function, include_extras=True).items():
                if get_origin(hint) is Union and get_origin(get_args(hint)[0]) is Annotated:
                    hint = get_args(hint)[0]
                base, *extras = get_args(hint) or (hint,)
                if extras and {int, float} & set(parts_of(base)):
                    (option,) = (extra for extra in extras if hasattr(extra, "param_decls"))
                    long = [text for text in option.param_decls or () if text.startswith("--")]
                    found[f"{words} {long[0] if long else '--' + name.replace('_', '-')}"] = option
    return found


def programs() -> list[str]:
    """Files of the samples and the benchmarks that have a command line, and the one that a sample takes from the package."""
    files = [path for folder in ("samples", "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))]
    found = [str(path.relative_to(ROOT)) for path in files if "ArgumentParser(" in path.read_text("utf-8")]
    return [str(Path(sample_options.__file__).relative_to(ROOT)), *found]


class Caught(Exception):
    """Carries the parser of a program."""


def parser_of(path: str, monkeypatch: pytest.MonkeyPatch) -> argparse.ArgumentParser:
    def caught(parser, *_):
        raise Caught(parser)

    with monkeypatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", caught)
        patch.syspath_prepend(str(ROOT / "samples"))
        if path.startswith("pytrtplugins/"):
            main = lambda: sample_options.parse_options("", "model")  # noqa: E731
        elif path.startswith("samples/"):
            pytest.importorskip("torch")
            main = importlib.import_module(Path(path).stem).main
        else:
            main = importlib.import_module(path.removesuffix(".py").replace("/", ".")).main
        with pytest.raises(Caught) as found:
            main()
    return found.value.args[0]


def is_number(option: argparse.Action) -> bool:
    """Whether an option takes numbers: by its type, or by what it has for a default."""
    default = option.default
    return isinstance(option.type, (Whole, Real, Several)) or option.type in (int, float) or (
        isinstance(default, (int, float, tuple)) and not isinstance(default, bool) and option.nargs != 0
    )  # fmt: skip


def nonsense(minimum: float, maximum: float) -> list[str]:
    """What an option from ``minimum`` to ``maximum`` must refuse."""
    below = [str(minimum - 1), "-1000000000000"]
    above = [
        str(maximum + 1) if isinstance(maximum, int) else str(maximum * 2),
        str(10**12 if maximum < 10**12 else 10**20),
        "9" * 5000,
    ]
    words = [
        "nan",
        "NaN",
        "inf",
        "-inf",
        "infinity",
        "1e400",
        "",
        " ",
        "x",
        "1,x",
        "0x10",
        "1;2",
        "٣" * 50,
        "\N{SUPERSCRIPT TWO}",
    ]
    return [*below, *above, *words, *(["1.5", "1e1", "3.0"] if isinstance(minimum, int) else [])]


def check_message(printed: str, name: str, text: str, minimum: float, maximum: float) -> None:
    """One line that names the option, what was given, and the limits."""
    (line,) = (line for line in printed.splitlines() if "expected" in line)
    shown = [f"{limit:,}" if isinstance(limit, int) else f"{limit:,.10g}" for limit in (minimum, maximum)]
    assert f"{name}: expected " in line
    assert f"from {shown[0]} to {shown[1]}" in line
    assert f"found {text!r}" in line if 0 < len(text) < 40 else "found '" in line
    assert len(line) < 250


def test_every_numeric_option_of_the_commands_has_its_limits():
    options = command_options()
    assert sorted(options) == sorted(COMMANDS)
    for name, option in options.items():
        limits = limits_of(option)
        assert limits is not None, f"{name} takes any number: make it with pytrtplugins.cli.number.number"
        assert (limits.minimum, limits.maximum) == COMMANDS[name], name
        assert isinstance(limits, Whole) == isinstance(COMMANDS[name][0], int), name


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_refuses_numbers_that_make_no_sense(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    *words, option = name.split()[1:]
    for text in nonsense(*COMMANDS[name]):
        with pytest.raises(SystemExit) as ended:
            cli.main([*words, f"{option}={text}"])
        printed = capsys.readouterr()
        assert ended.value.code == 2
        assert printed.out == ""
        assert "Traceback" not in printed.err
        check_message(printed.err, option, text, *COMMANDS[name])


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_takes_both_limits(name):
    limits = limits_of(command_options()[name])
    for number in COMMANDS[name]:
        assert limits.read(str(number)) == number
        assert type(limits.read(str(number))) is type(number)


def test_every_program_with_options_is_in_the_table():
    assert {path.partition(" ")[0] for path in PROGRAMS} | NO_NUMBERS == set(programs())


@pytest.mark.parametrize("path", programs())
def test_a_program_refuses_numbers_that_make_no_sense(path, capsys, monkeypatch):
    try:
        parser = parser_of(path, monkeypatch)
    except ModuleNotFoundError as error:
        pytest.skip(f"{path} needs the package {error.name!r}")
    numbers = {max(option.option_strings, key=len): option for option in parser._actions if is_number(option)}
    table = {name.partition(" ")[2]: limits for name, limits in PROGRAMS.items() if name.startswith(f"{path} ")}
    assert sorted(numbers) == sorted(table)
    for name, (minimum, maximum) in table.items():
        option = numbers[name]
        each = option.type.each if isinstance(option.type, Several) else option.type
        assert isinstance(each, (Whole, Real)), (
            f"{path} {name} takes any number: give it a type of pytrtplugins.utils.numbers"
        )
        assert (each.minimum, each.maximum) == (minimum, maximum), name
        for text in nonsense(minimum, maximum):
            with pytest.raises(SystemExit) as ended:
                parser.parse_args([f"{name}={text}"])
            assert ended.value.code == 2
            check_message(capsys.readouterr().err, name, text, minimum, maximum)


@pytest.mark.parametrize("name", TEXTS)
def test_numbers_within_a_text_are_held_against_limits(name, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    program, *words, option = name.split()
    for text in TEXTS[name]:
        with pytest.raises(SystemExit) as ended:
            MAINS[program]([*words, *REST[name], f"{option}={text}"])
        printed = capsys.readouterr().err
        assert ended.value.code == 2, text
        assert "Traceback" not in printed
        assert f"{option.lstrip('-')} " in printed
        assert text in printed
        assert re.search(r"from -?[\d.,]+ to ", printed), printed
    assert list(tmp_path.iterdir()) == []


def test_a_command_line_has_no_other_parser():
    """Typer's own limits name neither what was given nor both ends; so they are not used."""
    for module in {inspect.getmodule(function) for words, function in walked(app, "pytrt")} | {darknet2caffe_cli}:
        source = inspect.getsource(sys.modules[module.__name__])
        assert re.findall(r"typer\.Option\([^()]*\b(?:min|max)=", source) == [], module.__name__
