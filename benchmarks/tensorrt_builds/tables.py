"""The tables of docs/tensorrt_builds.md."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from ..node_tests import CRASHED, FAILED, HUNG, PASSED, REFUSED, Outcome
from .build import Build
from .reasons import general_reason, refused_by
from .subjects import Subject

__all__ = ["faults", "missing_table", "network_table", "node_table", "reason_table", "summary"]

Results = Sequence[tuple[Subject, Outcome]]
_NONE = "–"


def summary(results: Mapping[str, Results]) -> str:
    """How many models of each group are built, as Markdown."""
    lines = [
        "| models | builds | built | refused by the parser | by the builder | by this package | other errors | crashed or hung | "
        "warnings that we cause |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for group, rows in results.items():
        kinds = Counter(outcome.kind for _, outcome in rows)
        parts = Counter(refused_by(outcome.reason) for _, outcome in rows if outcome.kind == REFUSED)
        warnings = sum(len(outcome.values.warnings) for _, outcome in rows if outcome.kind == PASSED)
        refused = [parts[part] for part in ("TensorRT's parser", "TensorRT's builder", "this package")]
        cells = (len(rows), kinds[PASSED], *refused, kinds[FAILED], kinds[CRASHED] + kinds[HUNG], warnings)
        lines.append(f"| {group} | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def reason_table(results: Results, label: str = "operators") -> str:
    """Why models are refused: part, reason, number of builds, operators or networks; as Markdown."""
    rows: dict[tuple[str, str], list[str]] = defaultdict(list)
    for subject, outcome in results:
        if outcome.kind == REFUSED:
            rows[refused_by(outcome.reason), general_reason(outcome.reason)].append(_label(subject))
    lines = [f"| refused by | reason | builds | {label} |", "|---|---|---:|---|"]
    for (part, reason), labels in sorted(rows.items(), key=lambda row: (row[0][0], -len(row[1]), row[0][1])):
        lines.append(f"| {part} | {reason} | {len(labels)} | {', '.join(sorted(set(labels)))} |")
    return "\n".join(lines)


def node_table(results: Results) -> str:
    """Which operators' node tests are built, as Markdown; operators of which all tests are built share a line."""
    by_operator: dict[str, Counter[str]] = defaultdict(Counter)
    for subject, outcome in results:
        by_operator[_label(subject)][outcome.kind] += 1
    whole = [f"{name} ({counts[PASSED]})" for name, counts in sorted(by_operator.items()) if set(counts) == {PASSED}]
    some = [
        f"{name} ({counts[PASSED]} of {counts.total()})"
        for name, counts in sorted(by_operator.items())
        if counts[PASSED] and set(counts) != {PASSED}
    ]
    none = [f"{name} ({counts.total()})" for name, counts in sorted(by_operator.items()) if not counts[PASSED]]
    rows = [("all", whole), ("some", some), ("none", none)]
    return "\n".join(
        ["| built | operators (tests) |", "|---|---|", *(f"| {word} | {', '.join(names)} |" for word, names in rows)]
    )


def network_table(results: Results) -> str:
    """Plan sizes, and products in the low type, of each network; as Markdown."""
    precisions = list(dict.fromkeys(subject.precision for subject, _ in results))
    by_network: dict[str, dict[str, Outcome]] = defaultdict(dict)
    for subject, outcome in results:
        by_network[subject.name][subject.precision] = outcome
    lines = [
        f"| network | {' | '.join(precision.upper() for precision in precisions)} |",
        "|---|" + "---:|" * len(precisions),
    ]
    for name, outcomes in by_network.items():
        cells = [_cell(outcomes[precision]) if precision in outcomes else _NONE for precision in precisions]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def missing_table(results: Results) -> str:
    """Products that are to run in the low type, and that TensorRT computes in another; as Markdown, or a sentence where there are none."""
    lines = ["| network | precision | nodes |", "|---|---|---|"]
    for subject, outcome in results:
        products = outcome.values.products if outcome.kind == PASSED else None
        if products is not None and products.missing:
            nodes = ", ".join(f"`{name}`" for name in products.missing)
            lines.append(f"| {subject.name} | {subject.precision.upper()} | {nodes} |")
    return "\n".join(lines) if len(lines) > 2 else "There are none."


def faults(results: Results) -> list[str]:
    """What must not be: crashes, errors that are not this package's, warnings that it causes, products that miss the low type."""
    lines = []
    for subject, outcome in results:
        where = f"{subject.name} ({subject.precision})"
        if outcome.kind not in (PASSED, REFUSED):
            lines.append(f"{where}: {outcome.kind}: {outcome.reason}")
            continue
        build = outcome.values
        if isinstance(build, Build):
            lines += [f"{where}: warning: {text}" for text in build.warnings]
            if build.products is not None and build.products.missing:
                lines.append(f"{where}: not in the low type: {', '.join(build.products.missing)}")
    return lines


def _cell(outcome: Outcome) -> str:
    if outcome.kind != PASSED:
        return outcome.kind
    build: Build = outcome.values
    size = f"{build.plan_bytes / 1e6:.3g} MB"
    if build.products is None:
        return size
    products = build.products
    return f"{size}; {products.low} of {products.intended} ({products.all})"


def _label(subject: Subject) -> str:
    return subject.name if not hasattr(subject.source, "operator") else str(subject.source.operator)
