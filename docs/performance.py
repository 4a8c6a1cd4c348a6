"""Writes docs/develop/performance.md and its pictures from docs/performance.json, which `make bench` measures."""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median, quantiles
from typing import Any

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))

from loglog import Curve, last_slope, plot, slope  # noqa: E402

from benchmarks.performance.ratios import ratios  # noqa: E402

INTRODUCTION = """# Performance

{headline}

Every figure below was measured by `make bench` ({minutes}), and `make docs` wrote this page from it. Contenders take turns
within one run, so that other work on the machine meets all of them. Ratios travel between machines better than seconds do. Beside
the ratio of two medians stands its range in single rounds, without the tenth that lies farthest out.

{machine}
"""
QUICK = (
    "Some figures are of `python -m benchmarks.performance --quick`: small sizes and few rounds, for which fixed costs weigh "
    "most."
)
FEW = 20
"""Rounds below which no 99th percentile is stated."""


def main() -> None:
    for name, text in files(json.loads((DOCS / "performance.json").read_text())).items():
        (DOCS / name).write_text(text)


def files(measured: Mapping[str, Any]) -> dict[str, str]:
    """Path below docs -> the text that the figures give: the page, and a picture for each growth."""
    parts = [part for group in measured.values() for part in group["parts"] if part["kind"] == "Growth"]
    pictures = {_picture(part): plot(_curves(part), part["title"], part["along"], part["unit"]) for part in parts}
    return {"develop/performance.md": "\n".join(_page(measured)) + "\n", **pictures}


def _page(measured: Mapping[str, Any]) -> Iterator[str]:
    seconds = sum(part["seconds"] for part in measured.values())
    yield INTRODUCTION.format(
        headline=_headline(measured),
        minutes=f"{max(1, round(seconds / 60))} minutes",
        machine=_machine([part["machine"] for part in measured.values()]),
    ).rstrip()
    if any(part["is_quick"] for part in measured.values()):
        yield f"\n{QUICK}"
    for group in measured.values():
        for part in group["parts"]:
            yield f"\n## {part['title']}\n\n{part['text']}\n"
            yield from _table(part) if part["kind"] == "Table" else _growth(part)


def _headline(measured: Mapping[str, Any]) -> str:
    parts = {part["name"]: part for group in measured.values() for part in group["parts"]}
    rows = {name: {row["name"]: median(row["values"]) for row in part.get("rows", ())} for name, part in parts.items()}
    log, size = rows["log"], rows["size"]
    times = log["Collector.log"] / log[parts["log"]["against"]]
    verdict = next(line for line in parts["verdict"]["lines"] if line["name"] == "the verdict is known")
    tokens, seconds = verdict["sizes"][-2], median(verdict["values"][-2])
    return (
        f"A call of `log` takes {times:.1f} times a copy of the same bytes. Token ids and the log-probs of two policies take "
        f"{size['ratioscope']:.1f} bytes a token on disk. The verdict of a step of {tokens:,.0f} tokens is known {seconds:.1f} s "
        "after it was logged."
    )


def _machine(machines: list[Mapping[str, Any]]) -> str:
    one = machines[0]
    packages, contenders = (
        ", ".join(f"{name} {version}" for name, version in one[part].items()) for part in ("packages", "contenders")
    )
    load = max(machine["load"] for machine in machines)
    busy = (
        "" if load < one["cores"] + 1 else f" The machine had other work (load {load}), so that seconds are too high."
    )
    return (
        f"{one['cores']} cores of {one['processor']}, Python {one['python']}, {packages}; {one['date']}.{busy} "
        f"Contenders: {contenders or 'none could be installed'}."
    )


def _table(part: Mapping[str, Any]) -> Iterator[str]:
    unit, rows, against = part["unit"], sorted(part["rows"], key=lambda row: median(row["values"])), ratios(part)
    with_tail = all(len(row["values"]) >= FEW for row in rows)
    yield f"|  | median [{unit}] |{' p99 |' if with_tail else ''} against {part['against']} | in single rounds |"
    yield "| --- | ---: |" + (" ---: |" if with_tail else "") + " ---: | ---: |"
    for row in rows:
        values, ratio = row["values"], against[row["name"]]
        tail = f" {_digits(quantiles(values, n=100)[98])} |" if with_tail else ""
        rounds = f" {_digits(ratio.low)} to {_digits(ratio.high)}" if len(values) > 1 else " exact"
        yield (
            f"| {row['name']} | {_digits(median(values))} |{tail} {_digits(ratio.value)} |"
            f"{'' if row['name'] == part['against'] else rounds} |"
        )
    if part.get("missing"):
        yield "\n" + " ".join(part["missing"])


def _growth(part: Mapping[str, Any]) -> Iterator[str]:
    curves = _curves(part)
    yield f"![{part['title']}](../{_picture(part)})\n"
    sizes = curves[0].sizes
    yield f"|  | at {sizes[0]:,.0f} [{part['unit']}] | at {sizes[-1]:,.0f} | slope | slope between the two largest |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for curve in curves:
        found, error = slope(curve)
        first, last = curve.medians[0], curve.medians[-1]
        yield f"| {curve.name} | {_digits(first)} | {_digits(last)} | {found:.2f} ± {error:.2f} | {last_slope(curve):.2f} |"
    yield "\nA slope of 1 is linear, of 0 constant; its error is the standard error of the fit over all rounds."


def _curves(part: Mapping[str, Any]) -> list[Curve]:
    return [Curve(line["name"], line["sizes"], line["values"]) for line in part["lines"]]


def _picture(part: Mapping[str, Any]) -> str:
    return f"pictures/performance_{part['name']}.svg"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
