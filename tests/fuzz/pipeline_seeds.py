"""Seeds of the corpus for pipelines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from pytrtplugins.mlops.pipeline import RunRecord, StepRecord

__all__ = ["pipelines"]

_SAMPLE = Path(__file__).parents[2] / "samples/pipeline/pipeline.yaml"
_KEYS = """name: keys
folder: .
schedule: "0 3 * * *"
remote: store
parameters: {size: smoke, n: {by: size, full: 500, smoke: 16}, flag: true}
steps:
  a:
    matrix: {k: [1, b], m: {by: size, smoke: [2.5]}}
    function: steps.py:a
    parameters: {n: "${n}", text: "$${x} ${k}"}
    inputs: [in]
    outputs: ["a/${k}", "b/${k}-${m}.json"]
    metrics: ["b/${k}-${m}.json"]
    environment: [SEED]
    secrets: [TOKEN]
    resources: {cpu: 500m, memory: 4GiB, gpu: 0}
    retry: {limit: 2, backoff: 10s}
    time_limit: 15min
    when: {flag: [true]}
  b:
    command: ["pytrt", "x", "${inputs}", "${outputs[0]}"]
    inputs: ["${steps.a.outputs}"]
    stdout: c.json
    approval: true
    stateful: true
  c: {gate: "x within 1% of c and not (p99 below 20 ms)", inputs: [c.json], outputs: [d.json]}
on_exit: {command: echo ${size}}
"""
_CYCLE = """name: cycle
steps:
  a: {command: x, inputs: [c], outputs: [a]}
  b: {command: x, inputs: [a], outputs: [b]}
  c: {command: x, inputs: [b/x], outputs: [c]}
"""
_GRID = ", ".join(map(str, range(16)))
_LARGE = f"""name: large
steps:
  a: {{matrix: {{x: [{_GRID}], y: [{_GRID}]}}, command: x, outputs: ["a/${{x}}-${{y}}"]}}
  b: {{matrix: {{x: [{_GRID}]}}, command: x, inputs: ["${{steps.a.outputs}}"], outputs: ["b/${{x}}"]}}
"""


def pipelines() -> Iterator[tuple[str, bytes | str]]:
    """Files with every key, one with a cycle, one with many steps; gates of every form; a record of every state."""
    yield "pipeline/sample", _SAMPLE.read_text("utf-8")
    yield "pipeline/keys", _KEYS
    yield "pipeline/cycle", _CYCLE
    yield "pipeline/large", _LARGE
    yield "pipeline/types", "name: 3\nsteps: {a: [], b: {command: {}, inputs: x, matrix: [1]}}\nparameters: 7\n"
    yield "gate/within", "map50 within 0.005 of served and val.p99 below 20 ms"
    yield "gate/words", "not (int8.size_mib at most 3072 KiB or p99 is 12.5ms) or map50 above 1%"
    yield "gate/sums", "map50 - 2 * 1e-3 / served.map50 + 1 != -5"
    yield "gate/deep", "not " * 40 + "x < 1"
    yield "figures/nested", '{"a": {"b": 1, "c": [2.5, {"name": "x", "p99_ms": 3}]}, "t": true, "n": NaN}'
    yield "figures/command", '{"command": "a", "version": "1", "ok": true, "options": {}, "result": {"map50": 1}}'
    states = ("not run", "running", "done", "failed", "waiting for approval")
    steps = tuple(
        StepRecord(f"s{number}", state, begin=1.5 + number, end=3.0, figures={"p99_ms": 1e300}, message="<b>", after=("s0",))
        for number, state in enumerate(states)
    )  # fmt: skip
    record = RunRecord("20260131T120000.000Z-0a1b2c", "demo", "failed", 1.0, 9.0, steps, {"n": 3}, {"GPU": "none"})
    yield "run_record/whole", json.dumps({"format": 1, **asdict(record)})
    yield "run_record/newer", '{"format": 2}'
