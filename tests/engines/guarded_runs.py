"""Run the networks of `run_dims` on arrays beside protected pages, in a process of its own: guarded_runs ENGINE THREADS FIRST STEP."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import pytrtplugins as ptp
from pytrtplugins.errors import EngineError
from tests.engines.operators import literal
from tests.engines.run_dims import CASES, case_of, names_part
from tests.guard_pages import guarded


def outcome(context, model, feeds, wanted, before):
    """What a run gives that it should not; empty where it gives the right numbers, or an error if there are none."""
    feeds = {name: guarded(array, before=before) for name, array in feeds.items()}
    names = [output.name for output in model.graph.output]
    outputs = dict(zip(names, (guarded(np.zeros_like(array), before=before) for array in wanted or ()), strict=False))
    try:
        results = context.run(feeds, outputs)
    except EngineError as error:
        return "" if wanted is None and names_part(error, model) else f"raised {error}"
    if wanted is None:
        return f"gave {results}"
    close = all(np.allclose(results[name], value, 1e-5, 1e-5) for name, value in zip(names, wanted, strict=True))
    return "" if close and all(results[name] is outputs[name] for name in names) else f"gave {results} for {wanted}"


def check(name, engine_name, threads):
    """Runs that fit and contradict, by turns, in two threads with a context each."""
    model, fitting, contradicting = case_of(name)
    wanted = literal(model, fitting)
    engine = ptp.build(model, engine=engine_name, threads=threads)
    runs = [(fitting, wanted), (contradicting, None), (fitting, wanted)]

    def work(before):
        with engine.create_context() as context:
            return [outcome(context, model, feeds, right, before) for feeds, right in runs]

    with ThreadPoolExecutor(2) as pool:
        return "; ".join(found for part in pool.map(work, (False, True)) for found in part if found)


if __name__ == "__main__":
    for case in [*CASES][int(sys.argv[3]) :: int(sys.argv[4])]:
        print(f"{case}: {check(case, sys.argv[1], int(sys.argv[2]))}".strip(), flush=True)
