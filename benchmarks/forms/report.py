"""Tables of what became of forms."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from ..node_tests import CRASHED, FAILED, HUNG, PASSED, REFUSED, WRONG, Outcome
from ..pages.machine import version_text, versions
from .contrib import qualified_name
from .exclusions import OPERATORS, excluded
from .form import Form, items_of, schemas
from .oracles import REWRITTEN
from .runners import DOCUMENTED
from .verdicts import VERDICTS

__all__ = ["coverage_table", "dispute_table", "operator_table", "packages", "summary"]

Outcomes = Mapping[str, Mapping[str, Outcome]]


def packages() -> str:
    """The versions that results depend on."""
    return version_text({"versions": versions(("onnx", "onnxruntime", "openvino", "numpy"))})


def _counts(forms: Sequence[Form], outcomes: Mapping[str, Outcome], by_onnxruntime: Mapping[str, Outcome]) -> list[int]:
    counts: Counter[str] = Counter()
    for form in forms:
        if form.name not in outcomes:
            continue
        outcome = outcomes[form.name]
        kind = outcome.kind
        if kind == PASSED:
            kind = "no oracle" if form.expected is None else "other library" if outcome.reason else PASSED
        elif kind == REFUSED and outcome.values == "unnamed":
            kind = "unnamed"
        elif (
            kind == REFUSED
            and form.expected is not None
            and "onnxruntime" in form.source
            and REWRITTEN not in form.notes
        ):
            kind = "refused, onnxruntime runs it"
        counts[kind] += 1
    refusals = (REFUSED, "refused, onnxruntime runs it", "unnamed")
    order = (PASSED, "other library", "no oracle", *refusals, DOCUMENTED, WRONG, FAILED)
    return [*(counts[kind] for kind in order), counts[CRASHED] + counts[HUNG]]


def summary(forms: Sequence[Form], outcomes: Outcomes) -> str:
    """How many forms each runner computes, as Markdown."""
    lines = [
        "| run by | right | right, by another library | runs, no oracle | refused by name | refused by name, onnxruntime runs it "
        "| refused without a name | wrong as documented | wrong | foreign errors | crashed or hung |",
        "|---|" + "---:|" * 10,
    ]
    for runner, found in outcomes.items():
        cells = _counts(forms, found, outcomes.get("onnxruntime", {}))
        lines.append(f"| {runner} | " + " | ".join(f"{cell:,}" for cell in cells) + " |")
    return "\n".join(lines)


def operator_table(forms: Sequence[Form], outcomes: Outcomes) -> str:
    """Right and refused forms of each operator on each runner, as Markdown."""
    by_operator: dict[str, list[Form]] = defaultdict(list)
    for form in forms:
        by_operator[form.operator].append(form)
    lines = [
        "| operator | versions | forms | " + " | ".join(outcomes) + " |",
        "|---|---|---:|" + "---|" * len(outcomes),
    ]
    for operator, members in sorted(by_operator.items()):
        cells = []
        for found in outcomes.values():
            counts = Counter(found[form.name].kind for form in members if form.name in found)
            words = [f"{counts[kind]} {word}" for kind, word in _WORDS.items() if counts[kind]]
            cells.append("all" if counts[PASSED] == counts.total() > 0 else ", ".join([str(counts[PASSED]), *words]))
        versions = ", ".join(str(v) for v in sorted({form.version for form in members}))
        lines.append(f"| {operator} | {versions} | {len(members)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


_WORDS = {REFUSED: "refused", DOCUMENTED: "documented", WRONG: "wrong", FAILED: "error", CRASHED: "crash", HUNG: "hang"}


def coverage_table(forms: Sequence[Form]) -> str:
    """How much of ONNX's schemas the forms use, and what they leave out with the reason, as Markdown."""
    used: dict[tuple[str, int], set[tuple[str, str, str]]] = defaultdict(set)
    for form in forms:
        used[form.operator, form.version] |= form.items
    total, reached, rows = 0, 0, defaultdict[str, list[str]](list)
    for schema in schemas():
        items = items_of(schema)
        kept = {item for item in items if not excluded(schema, item)}
        total += len(kept)
        operator = qualified_name(schema)
        reached += len(kept & used[operator, schema.since_version])
        for item in sorted(items - used[operator, schema.since_version]):
            reason = excluded(schema, item) or "no builder draws it"
            rows[reason].append(f"{operator} {item[1]}" if operator not in OPERATORS else operator)
    share = 100 * reached / max(1, total)
    lines = [
        f"Forms use {reached:,} of {total:,} parts of schemas that are to be used ({share:.1f} %): each attribute set and left out, "
        "each input given and left out, each element type of each type variable, in each version. What no form uses:",
        "",
        "| reason | parts | operators |",
        "|---|---:|---|",
    ]
    for reason, parts in sorted(rows.items(), key=lambda row: -len(row[1])):
        names = sorted(set(parts))
        shown = ", ".join(names[:40]) + (f" and {len(names) - 40} more" if len(names) > 40 else "")
        lines.append(f"| {reason} | {len(parts):,} | {shown} |")
    return "\n".join(lines)


def dispute_table(forms: Sequence[Form]) -> str:
    """Who is right where oracles differ, and forms for which none says what is right, as Markdown."""
    lines = ["| operators | right | why | forms |", "|---|---|---|---:|"]
    for row in VERDICTS:
        count = sum(form.operator in row.operators and row.applies(form) for form in forms)
        lines.append(f"| {', '.join(row.operators)} | {row.right} | {row.why} | {count} |")
    reasons = Counter(_general(form.source) for form in forms if form.expected is None)
    lines += ["", "| forms without an oracle | forms |", "|---|---:|"]
    lines += [f"| {reason} | {count} |" for reason, count in reasons.most_common(12)]
    return "\n".join(lines)


def _general(text: str) -> str:
    return re.sub(r"[-\d.e+]*\d|\([^)]*\)", "n", text.partition(";")[0])[:90].replace("|", "/")
