"""Limits of what a step may ask for: the largest value is taken, and the next one is refused with its name."""

import importlib

import pytest

from pytrtplugins.errors import PipelineError, UsageError
from pytrtplugins.mlops.pipeline import Resources, Retry, Step
from pytrtplugins.mlops.pipeline.run_function import main

LIMITS = {  # each value that is just taken, and the next that is not
    "cpu": (lambda value: {"resources": Resources(cpu=value)}, [(4096, 4096.001), (0.001, 0)]),
    "memory": (lambda value: {"resources": Resources(memory=value)}, [(2**63 - 1, 2**63), (1, 0)]),
    "gpu": (lambda value: {"resources": Resources(gpu=value)}, [(1024, 1025), (0, -1)]),
    "limit": (lambda value: {"retry": Retry(value)}, [(100, 101), (0, -1)]),
    "backoff": (lambda value: {"retry": Retry(1, value)}, [(86_400, 86_400.001), (0, -0.001)]),
    "time_limit": (lambda value: {"time_limit": value}, [(31_536_000, 31_536_000.5), (0.001, 0)]),
}
CASES = [(name, options, *pair) for name, (options, pairs) in LIMITS.items() for pair in pairs]


@pytest.mark.parametrize(("name", "options", "taken", "refused"), CASES)
def test_the_largest_and_the_smallest_value_of_each_limit(name, options, taken, refused):
    step = Step("a", command=("true",), **options(taken))
    assert step.command == ("true",)
    with pytest.raises(PipelineError, match=name.replace("_", ".")):
        Step("a", command=("true",), **options(refused))


CALL = '{"inputs": ["a", "b"], "outputs": ["c"], "parameters": {"size": 3}}'


def test_a_function_is_called_with_what_the_step_has(tmp_path, monkeypatch):
    (tmp_path / "of_a_step.py").write_text("calls, number = [], 7\ndef call(**given): calls.append(given)\n")
    monkeypatch.syspath_prepend(tmp_path)
    main(["of_a_step:call", CALL])
    assert importlib.import_module("of_a_step").calls == [{"inputs": ("a", "b"), "outputs": ("c",), "size": 3}]
    for name in ("number", "absent"):
        with pytest.raises(UsageError, match=f"of_a_step has no function {name}"):
            main([f"of_a_step:{name}", CALL])
