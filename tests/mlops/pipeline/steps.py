"""Steps of shells, and what a run's record says of steps."""

from pytrtplugins.mlops.pipeline import Step


def shell(name, text, **fields):
    return Step(name, command=("sh", "-c", text), **fields)


def outcomes(record):
    return {step.name: "reused" if step.reused else step.state for step in record.steps}


def failure(record):
    (found,) = (step.message for step in record.steps if step.state == "failed")
    return found
