"""YAML → steps, and everything that is wrong with a file at once."""

import json

import pytest

from pytrtplugins.errors import FormatError, PipelineError, UsageError
from pytrtplugins.mlops.pipeline import Pipeline, Resources, Retry, Step
from pytrtplugins.mlops.pipeline.placeholders import as_recorded
from pytrtplugins.utils.yaml_scalars import WrittenFloat, WrittenInt

pytest.importorskip("yaml")

GOOD = """
name: demo
schedule: "0 3 * * *"
parameters:
  size: full
  photos: {by: size, full: 500, smoke: 16}
  strict: false
steps:
  evaluate:
    command: pytrt evaluate ${inputs} --json
    inputs: ["${steps.calibrate.outputs}"]
    stdout: build/m.json
    metrics: [build/m.json]
  calibrate:
    matrix: {algorithm: {by: size, full: [minmax, entropy], smoke: [minmax]}, bits: [8]}
    command: [pytrt, calibrate, net.onnx, --algorithm, "${algorithm}", "--cache=${outputs[0]}", "$${literally}"]
    inputs: [net.onnx, build/photos]
    outputs: ["build/${algorithm}-${bits}.cache"]
    time_limit: 5min
    resources: {cpu: 500m, memory: 2GiB, gpu: "${bits}"}
    retry: {limit: 2, backoff: 10s}
  photos:
    function: make.py:draw
    parameters: {number: "${photos}", title: "a ${size} set", strict: "${strict}"}
    outputs: [build/photos]
  train:
    when: {size: [full, huge]}
    command: python train.py --title "two words"
    outputs: [build/net]
    environment: [SEED]
    secrets: [TOKEN]
    approval: true
    stateful: true
on_exit:
  command: echo ${size}
"""


@pytest.fixture
def write(tmp_path):
    def written(text, name="pipeline.yaml"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return written


def test_a_file_says_what_its_steps_are(write):
    found = Pipeline.load(write(GOOD))
    steps = {step.name: step for step in found.steps}
    assert [step.name for step in found.steps] == [
        "photos",
        "calibrate-minmax-8",
        "calibrate-entropy-8",
        "evaluate",
        "train",
    ]
    entropy = steps["calibrate-entropy-8"]
    assert entropy.command[3:] == ("--algorithm", "entropy", "--cache=build/entropy-8.cache", "${literally}")
    assert (entropy.family, entropy.matrix) == ("calibrate", {"algorithm": "entropy", "bits": 8})
    assert (entropy.time_limit, entropy.retry) == (300.0, Retry(2, 10.0))
    assert entropy.resources == Resources(0.5, 2 << 30, 8)
    assert steps["evaluate"].command == ("pytrt", "evaluate", "build/minmax-8.cache", "build/entropy-8.cache", "--json")
    assert steps["evaluate"].outputs == ("build/m.json",)
    assert steps["photos"].inputs == ("make.py",)
    assert steps["photos"].parameters == {"number": 500, "title": "a full set", "strict": False}
    assert steps["train"].command[-1] == "two words"
    train = steps["train"]
    assert (train.environment, train.secrets) == (("SEED",), ("TOKEN",))
    assert (train.approval, train.stateful, steps["photos"].approval, steps["photos"].stateful) == (
        True,
        True,
        False,
        False,
    )
    assert found.on_exit.command == ("echo", "full")
    assert (found.schedule, found.parameters) == ("0 3 * * *", {"size": "full", "photos": 500, "strict": False})
    assert found.graph() == {
        "photos": (),
        "calibrate-minmax-8": ("photos",),
        "calibrate-entropy-8": ("photos",),
        "evaluate": ("calibrate-entropy-8", "calibrate-minmax-8"),
        "train": (),
    }


def test_values_of_a_user_choose_and_replace(write):
    found = Pipeline.load(write(GOOD), {"size": "smoke", "strict": "true"})
    assert [step.name for step in found.steps] == ["photos", "calibrate-minmax-8", "evaluate"]
    assert found.step("photos").parameters == {"number": 16, "title": "a smoke set", "strict": True}
    for text, value in (("7", 7), ("007", 7), ("+7", 7), ("-7.5", -7.5), ("1e3", 1000.0), ("7.50", 7.5)):
        given = Pipeline.load(write(GOOD.replace("echo ${size}", "echo ${photos}")), {"photos": text})
        photos = given.parameters["photos"]
        assert (photos, isinstance(photos, type(value))) == (value, True)
        assert given.on_exit.command == ("echo", text)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"sise": "smoke"}, "no such parameter.\nDo: write size"),
        ({"photos": "many"}, "expected a number, as 500 is, found 'many'"),
        ({"strict": "maybe"}, "expected true or false"),
        ({"photos": "nan"}, "expected a number"),
    ],
)
def test_values_that_do_not_fit_are_refused(write, values, problem):
    with pytest.raises(UsageError) as caught:
        Pipeline.load(write(GOOD), values)
    assert problem in str(caught.value)


def test_all_that_is_wrong_is_said_at_once_with_lines(write):
    path = write("""name: Demo
stepz: 1
parameters:
  photos: {by: sice, a: 1}
steps:
  a:
    comand: x
    inputs: [b.txt]
    outputs: [a.txt]
  b:
    command: cp ${nputs} b.txt
    inputs:
      - a.txt
      - 7
    outputs: [b.txt, ../x]
    time_limit: soon
    resources: {cpu: many, memory: 3 apples, gpu: -1}
    retry: {limit: -1, backof: 2}
  c:
    gate: x below
    inputs: [q.json]
  d: 5
  e:
    command: "it's"
    matrix: {k: 5}
    approval: yes please
    outputs: [/abs]
    when: {sice: 1}
""")
    with pytest.raises(PipelineError) as caught:
        Pipeline.load(path)
    found = {(line, what.partition(",")[0][:46]) for line, what in caught.value.problems}
    expected = {
        (1, "expected lower-case letters"),
        (2, "is not known. Write steps"),
        (4, "there is no parameter 'sice'. It has: ."),
        (6, "expected one of command"),
        (7, "is not known. Write command"),
        (11, "${nputs}: there is no nputs. Write inputs"),
        (14, "expected a text"),
        (15, "'../x': expected a path below the pipeline's fo"[:46]),
        (16, "expected seconds"),
        (17, "expected cores"),
        (17, "expected bytes"),
        (17, "gpu: expected a whole number from 0 to 1"),
        (18, "is not known. Write backoff"),
        (18, "limit: expected a whole number from 0 to 100"),
        (19, "a gate has one: a JSON file that says what it f"[:46]),
        (20, "expected a number or a figure at character 8"),
        (22, "expected the keys of a step"),
        (25, "expected a list of values"),
        (28, "there is no parameter 'sice'. It has: ."),
    }
    assert found == expected
    assert str(caught.value).endswith(f"Do: correct the file, then pytrt pipeline check {path}")
    assert f"{path}, line 11: steps.b.command:" in str(caught.value)


@pytest.mark.parametrize(
    ("steps", "line", "problem"),
    [
        ("a: {command: x, inputs: [c], outputs: [a]}\n  b: {command: x, inputs: [a], outputs: [b]}\n"
         "  c: {command: x, inputs: [b], outputs: [c]}",
         3, "the steps need each other in a circle: a needs c needs b needs a"),
        ("a: {command: x, outputs: [o]}\n  b: {command: x, outputs: [o]}", 4, "o is also made by step a"),
        ("a: {command: x, outputs: [o]}\n  b: {command: x, outputs: [o/p]}", 4, "o/p and o of step a are in one another"),
        ("a: {command: x, outputs: [o/p]}\n  b: {command: x, inputs: [o], outputs: [q]}", 4, "o holds o/p, which step a makes"),
        ("a: {command: x, inputs: [o], outputs: [o]}", 3, "o is also an input"),
        ("a: {command: x}", 3, "expected at least one"),
        ("a: {matrix: {k: [1, 2]}, command: x, outputs: [o]}", 3, "o is also made by step a-1"),
        ("a: {matrix: {k: [A b, a-B]}, command: x, outputs: ['o${k}']}", 3, "two steps have this name"),
        ("a: {command: x, outputs: [.pytrt/x]}", 3, ".pytrt is where pipelines keep their state"),
        ("a: {command: x, inputs: ['s3://b/x'], outputs: [x]}", 3, "expected a path on this machine"),
        ("a: {command: x, outputs: [x], environment: [A], secrets: [A, 'B C']}", 3, "A is also a secret"),
    ],
)  # fmt: skip
def test_steps_that_do_not_fit_together_are_named(write, steps, line, problem):
    with pytest.raises(PipelineError) as caught:
        Pipeline.load(write(f"name: demo\nsteps:\n  {steps}\n"))
    assert any((at, problem in what) == (line, True) for at, what in caught.value.problems), caught.value


@pytest.mark.parametrize("text", ["- 1", "name: [", "a: &b 1\nc: *b", "name: demo\nname: other"])
def test_what_is_no_such_yaml_is_a_format_error(write, text):
    with pytest.raises(FormatError):
        Pipeline.load(write(text))


def test_a_grid_of_too_many_steps_is_refused_before_they_are_made(write):
    axes = ", ".join(f"k{n}: [{', '.join(map(str, range(60)))}]" for n in range(5))
    with pytest.raises(PipelineError, match="expected at most 1,000 steps, found 777,600,000"):
        Pipeline.load(write(f"name: demo\nsteps:\n  a: {{matrix: {{{axes}}}, command: x, outputs: [x]}}"))


def test_python_makes_the_same_steps(tmp_path, monkeypatch, write):
    monkeypatch.chdir(tmp_path)
    write(
        "from pytrtplugins.mlops.pipeline import *\n"
        "def pipeline(size='full'):\n"
        "    return Pipeline('demo', (Step('b', command=('x', size), inputs=('o',), outputs=('p',)), Step('a', ('x',), outputs=('o',))))\n"
        "fixed = pipeline()\n"
        "other = 5\n",
        "demo_pipeline.py",
    )
    assert [step.name for step in Pipeline.load("demo_pipeline.py:fixed").steps] == ["a", "b"]
    assert Pipeline.load("demo_pipeline.py:pipeline", {"size": "smoke"}).step("b").command == ("x", "smoke")
    with pytest.raises(UsageError, match="takes no parameters"):
        Pipeline.load("demo_pipeline.py:fixed", {"size": "smoke"})
    with pytest.raises(UsageError, match="expected a Pipeline"):
        Pipeline.load("demo_pipeline.py:other")
    with pytest.raises(UsageError, match=r"expected a file \.yaml, or module:pipeline"):
        Pipeline.load("demo")
    with pytest.raises(PipelineError) as caught:
        Step("A", command=("x",), function="m:f", outputs=("o",), parameters={"k": [1]})  # type: ignore[dict-item]
    assert [where for where, _ in caught.value.problems] == ["name", "command", "parameters"]


TEXTS = (
    "010", "007", "3.10", "1.0", "-0", "1e3", "1E+3", "1e999", "0x1F", "0o17", "0b1", "1_000", "12:30:00", "1:30", ".5", "5.", "+5",
    "on", "off", "yes", "No", "y", "N", "true", "false", "True", "FALSE", "null", "Null", "~", "2026-01-31", "2026-01-31T12:00:00Z",
    ".inf", "-.INF", ".nan", "<<", "=", "123456789012345678901234567890", "0.30000000000000004", "1.7976931348623157e308",
)  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_values_go_into_commands_as_they_are_written(write, text):
    loaded = Pipeline.load(
        write(f"""name: demo
parameters:
  plain: {text}
  chosen: {{by: plain, {text}: {text}}}
steps:
  a:
    parameters: {{own: {text}, handed: "${{plain}}"}}
    command: [program, {text}, "${{plain}}", "${{chosen}}", "${{own}}", "${{handed}}", "x=${{plain}}"]
    outputs: ["out/${{plain}}"]
    when: {{plain: {text}}}
on_exit: {{command: "{text} ${{plain}}"}}
""")
    )
    (step,) = loaded.steps
    assert step.command == ("program", *[text] * 5, f"x={text}")
    assert step.outputs == (f"out/{text}",)
    assert loaded.on_exit is not None
    assert loaded.on_exit.command == (text, text)


@pytest.mark.parametrize("text", [text for text in TEXTS if any(map(str.isalnum, text))])
def test_so_do_values_of_a_matrix(write, text):
    loaded = Pipeline.load(write(
        f"name: demo\nsteps:\n  a: {{matrix: {{each: [{text}]}}, command: 'x ${{each}}', outputs: ['o${{each}}']}}"
    ))  # fmt: skip
    assert [(step.command, step.outputs) for step in loaded.steps] == [(("x", text), (f"o{text}",))]


def test_a_run_records_a_number_as_it_was_written():
    values = {
        "a": WrittenFloat("3.10"),
        "b": WrittenInt("7"),
        "c": True,
        "d": "3.10",
        "e": WrittenFloat("1e3"),
        "f": 2.5,
    }
    recorded = as_recorded(values)
    assert recorded == {"a": "3.10", "b": 7, "c": True, "d": "3.10", "e": "1e3", "f": 2.5}
    assert json.dumps(recorded) == '{"a": "3.10", "b": 7, "c": true, "d": "3.10", "e": "1e3", "f": 2.5}'


@pytest.mark.parametrize(
    ("text", "value"),
    [("7", 7), ("-7", -7), ("3.10", 3.1), ("1e-3", 0.001), ("true", True), ("false", False), ("010", "010"), ("0x1F", "0x1F"),
     ("12:30:00", "12:30:00"), ("1_000", "1_000"), ("2026-01-31", "2026-01-31"), ("'off'", "off"), ('"7"', "7"), ("'~'", "~")],
)  # fmt: skip
def test_a_function_gets_numbers_as_json_writes_them_truth_values_and_texts(write, text, value):
    loaded = Pipeline.load(write(
        f"name: demo\nparameters: {{x: {text}}}\nsteps:\n  a: {{function: 'm:f', parameters: {{x: '${{x}}', y: {text}}}, outputs: [o]}}"
    ))  # fmt: skip
    given = json.loads(loaded.step("a").argv()[-1])["parameters"]
    assert given == {"x": value, "y": value}
    assert [type(each) for each in given.values()] == [type(value)] * 2


@pytest.mark.parametrize("text", ["on", "Off", "yes", "NO", "True", "FALSE", "null", "~", "y"])
def test_a_function_that_would_get_a_text_for_a_truth_value_is_refused(write, text):
    with pytest.raises(PipelineError) as caught:
        Pipeline.load(write(
            f"name: demo\nparameters: {{x: {text}}}\nsteps:\n  a: {{function: 'm:f', parameters: {{strict: '${{x}}'}}, outputs: [o]}}"
        ))  # fmt: skip
    assert caught.value.problems == (
        (4, f"a function would get the text '{text}': write true, false, or the text in quotes"),
    )


def test_versions_that_are_equal_numbers_are_different_values(write):
    text = "name: demo\nparameters: {version: 3.10}\nsteps:\n  a: {command: x, outputs: [o], when: {version: VALUE}}\n"
    text += "  b: {command: x, outputs: [p]}"
    for value, names in (("3.1", ["b"]), ("3.10", ["a", "b"]), ("[3.1, '3.10']", ["a", "b"])):
        assert [step.name for step in Pipeline.load(write(text.replace("VALUE", value))).steps] == names


@pytest.mark.parametrize(
    "text", [">\n      program a\n      b\n", ">-\n      program\n      a b\n\n", "|\n      program a b\n", "|-\n\n      program a b",
             "program\n      a b", "'program a\n      b'"],
)  # fmt: skip
def test_a_command_over_several_lines_that_yaml_joins_is_one(write, text):
    loaded = Pipeline.load(write(f"name: demo\nsteps:\n  a:\n    outputs: [o]\n    command: {text}"))
    assert loaded.step("a").command == ("program", "a", "b")


def test_quotes_may_hold_lines(write):
    loaded = Pipeline.load(
        write("name: demo\nsteps:\n  a:\n    outputs: [o]\n    command: |\n      python -c 'a\n      b'\n")
    )
    assert loaded.step("a").command == ("python", "-c", "a\nb")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("|\n      program a\n      other b\n", "expected one line, found 2: no shell runs them one by one. Write `>`"),
        (">\n      program a\n\n      other b\n", "expected one line, found 2"),
        (">\n      program a\n        --more\n", "expected one line, found 2"),
        ("|\n      program \\\n        --more\n", "a backslash stands alone: leave it out"),
        (">\n      program \\\n      --more\n", "a backslash stands alone: leave it out"),
        ("|\n      program\\\n      --more\n", "a backslash stands alone: leave it out"),
        ("|\n      it's\n", "No closing quotation: quotes do not match"),
    ],
)
def test_lines_that_a_shell_would_have_to_run_are_named(write, text, problem):
    with pytest.raises(PipelineError) as caught:
        Pipeline.load(write(f"name: demo\nsteps:\n  a:\n    outputs: [o]\n    command: {text}"))
    assert [(line, problem in found) for line, found in caught.value.problems] == [(5, True)], caught.value
