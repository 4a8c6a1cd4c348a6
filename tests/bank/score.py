"""Scores the diagnosis on the bank: `cd tests && python -m bank.score [FAMILY ...] [--list-wrong]`; `--help` has the rest."""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import time
import traceback
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two processes share two cores
os.environ.setdefault("POLARS_MAX_THREADS", "1")
os.environ["RATIOSCOPE_WRITER"] = "thread"

from ratioscope import Collector, open_run
from ratioscope.errors import RatioscopeError
from ratioscope.ingest.analysis.diagnosis import diagnosis_of
from ratioscope.ingest.analysis.grades import verdict_of
from ratioscope.metrics.diagnosis.confidence import LEVELS, ground
from ratioscope.metrics.diagnosis.judged import judged

from .accepted import HEALTHY, truth
from .case import DATA, Case, families, read

PROCESSES = 2
RESULTS = Path(__file__).parent / "results.json"
"""The results of `make bank`; docs/diagnosis.md is made of them."""


@dataclass(frozen=True)
class Score:
    """The diagnosis of one case beside the truth."""

    name: str
    family: str
    fault: str
    side: str
    strength: str
    decided: bool
    tokens: int
    kl_k3: float
    """K3 of the diagnosis, nats/token."""
    severity: str
    """Grade of a healthy run in the light of its diagnosis; empty for a faulty one."""
    right: list[str]
    """Codes that name the fault."""
    named: list[tuple[str, str, float]] = field(default_factory=list)
    """(code, confidence, share of the gap) of each likely cause, in order."""
    first: list[str] = field(default_factory=list)
    """The first set: the first cause and those that the record does not tell from it."""
    cell: tuple[str, int] = ("", 0)
    """(ground of the first cause, number of doubts)."""
    answer: str = ""
    """The headline, or why there is no diagnosis."""
    seconds: float = 0.0

    @property
    def level(self) -> str:
        """Confidence of the first cause; empty if none is named."""
        return self.named[0][1] if self.named else ""

    @property
    def is_covered(self) -> bool:
        """True if the first set holds the truth."""
        return bool({*self.first} & {*self.right})

    @property
    def is_first(self) -> bool:
        return bool(self.named) and self.named[0][0] in self.right

    @property
    def is_calm(self) -> bool:
        """True if no cause is named and the grade is green."""
        return not self.named and self.severity == "healthy"


def scored(case: Case) -> Score:
    """The case, recorded, opened and diagnosed."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        record(case, Path(folder) / "run")
        blank = Score(
            case.name, case.family, case.fault, case.side, case.strength, case.decided, case.tokens, math.nan, "",
            sorted(truth(case.fault, decided=case.decided)),
        )  # fmt: skip
        run = open_run(Path(folder) / "run")
        try:
            found = diagnosis_of(run).diagnosis
        except RatioscopeError as error:
            return replace(blank, answer=f"{type(error).__name__}: {error}", severity=verdict_of(run).word)
        except Exception:  # a case that breaks the product is a finding, and the others are scored
            return replace(blank, answer=traceback.format_exc(limit=-2), severity="error")
        # the grade costs as much as a third of the diagnosis, and is asked of healthy runs
        severity = judged(verdict_of(run), found).word if case.fault == HEALTHY else ""
    likely = found.likely
    return replace(
        blank,
        kl_k3=float(found.gap),
        severity=severity,
        named=[(item.cause.code, item.confidence, round(item.of_whole, 4)) for item in likely],
        first=[likely[0].cause.code, *likely[0].instead] if likely else [],
        cell=("no trace" if likely[0].share is None else ground(likely[0].cause), len(likely[0].doubts))
        if likely
        else ("", 0),
        answer=found.answer,
        seconds=round(time.perf_counter() - begun, 2),
    )


def record(case: Case, folder: Path) -> None:
    """Writes the run of a case, with a Collector for each rank."""
    ranks = sorted({log.get("rank", 0) for log in case.logs})
    options: dict[str, Any] = {"attempt": 0, "strict": True, "when_full": "wait", **case.options}
    collectors = {rank: Collector(folder, trainer="bank", config=case.config, rank=rank, **options) for rank in ranks}
    events = sorted(case.events, key=lambda event: event[0])
    for at in range(-1, len(case.logs)):
        if at >= 0:
            arguments = {name: value for name, value in case.logs[at].items() if name != "rank"}
            collectors[case.logs[at].get("rank", 0)].log(**arguments)
        for after, kind, told in events:
            if after == at:
                collector = collectors[ranks[0]]
                if kind == "sync":
                    collector.sync(**told)
                else:
                    collector.event(**told)
    for collector in collectors.values():
        collector.close()


def interval(count: int, of: int) -> tuple[float, float]:
    """The 95% interval of a rate by Wilson (1927)."""
    if not of:
        return 0.0, 1.0
    z, p = 1.96, count / of
    middle, half = p + z * z / (2 * of), z * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    return max(0.0, (middle - half) / (1 + z * z / of)), min(1.0, (middle + half) / (1 + z * z / of))


def summary(scores: Sequence[Score]) -> dict[str, float]:
    """The figures of a family: counts and shares, 0 to 1; NaN where there is nothing to count."""
    faulty = [each for each in scores if each.fault != HEALTHY]
    healthy = [each for each in scores if each.fault == HEALTHY]
    named = [each for each in faulty if each.named]
    decided = [each for each in faulty if each.decided]
    figures: dict[str, float] = {
        "faulty": len(faulty),
        "coverage": _share(each.is_covered for each in faulty),
        "first": _share(each.is_first for each in faulty),
        "set size": _mean([len(each.first) for each in named]),
        "sets of one": _share(len(each.first) == 1 for each in named),
        "no cause": sum(not each.named for each in faulty),
    }
    for level in LEVELS:
        own = [each for each in named if each.level == level]
        figures[f"{level} right"] = sum(each.is_covered for each in own)
        figures[f"{level} wrong"] = sum(not each.is_covered for each in own)
    figures["decided"] = len(decided)
    figures["decided covered"] = _share(each.is_covered for each in decided)
    figures["decided high"] = _share(each.is_covered and each.level == "high" for each in decided)
    figures["healthy"] = len(healthy)
    figures["healthy named"] = sum(bool(each.named) for each in healthy)
    figures["healthy not calm"] = sum(not each.is_calm for each in healthy)
    return figures


def printed(scores: Sequence[Score]) -> Iterable[str]:
    """The scoreboard, a row for each family and one for all."""
    names = [*dict.fromkeys(each.family for each in scores)]
    yield (
        f"{'family':<12}{'faulty':>7}{'cover':>7}{'first':>7}{'set':>6}{'of 1':>6}{'none':>6}"
        f"{'high':>10}{'medium':>10}{'low':>10}{'decided':>9}{'cover':>7}{'high':>6}{'healthy named, not calm':>26}"
    )
    for name in [*names, "all"]:
        own = [each for each in scores if name in (each.family, "all")]
        f = summary(own)
        pairs = [f"{f[f'{level} right']:.0f}/{f[f'{level} wrong']:.0f}" for level in LEVELS]
        levels = "".join(f"{pair:>10}" for pair in pairs)
        low, high = interval(int(f["healthy not calm"]), int(f["healthy"]))
        calm = (
            f"{f['healthy named']:.0f}, {f['healthy not calm']:.0f} of {f['healthy']:.0f} ({low:.1%}-{high:.1%})"
            if f["healthy"]
            else "-"
        )
        yield (
            f"{name:<12}{f['faulty']:>7.0f}{f['coverage']:>7.0%}{f['first']:>7.0%}{f['set size']:>6.2f}"
            f"{f['sets of one']:>6.0%}{f['no cause']:>6.0f}{levels}{f['decided']:>9.0f}"
            f"{f['decided covered']:>7.0%}{f['decided high']:>6.0%}{calm:>26}"
        )
    yield "high, medium, low: right / wrong (right: the truth is in the first set). decided: faults that the record decides."


def wrong(scores: Sequence[Score]) -> Iterable[str]:
    """A line for each case with a wrong answer."""
    for each in scores:
        is_right = each.is_calm if each.fault == HEALTHY else each.is_covered
        if not is_right:
            said = ", ".join(f"{code} {level} {share:.0%}" for code, level, share in each.named) or "no cause"
            also = f" or {', '.join(each.first[1:])}" if each.first[1:] else ""
            mark = "" if each.decided or each.fault == HEALTHY else " (undecided)"
            yield f"{each.name}{mark}  K3 {each.kl_k3:.2g} {each.severity}: {said}{also}; right: {' '.join(each.right) or 'calm'}"
            if not each.named and each.answer[:5] != "The g" and each.answer[:8] != "No known":
                yield f"    {each.answer}"


def found_in(folder: Path) -> list[str]:
    """The families of a folder, and smollm2, whose runs lie in tests/data/faults."""
    return [*families(folder), *(["smollm2"] if (Path(__file__).parent / "smollm2.py").exists() else [])]


def cases_of(family: str, folder: Path, every: int = 1) -> list[Case]:
    """The cases of a family, one in so many."""
    if family == "smollm2":
        from .smollm2 import cases

        return list(cases(every))
    return read(family, folder, every)


def scored_all(cases: Sequence[Case], processes: int = PROCESSES) -> list[Score]:
    """The scores of these cases, in their order."""
    if processes == 1:
        return [scored(case) for case in cases]
    # a process that is forked beside the threads of polars may wait for ever
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        return list(pool.map(scored, cases, chunksize=4))


def kept(scores: Sequence[Score], path: Path) -> None:
    """Writes the results, one line for each case, without what differs from run to run."""
    lines = []
    for each in scores:
        entry = {name: value for name, value in asdict(each).items() if name not in ("seconds", "answer")}
        lines.append(json.dumps(entry | {"kl_k3": float(f"{each.kl_k3:.3g}")}))
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def results(path: Path) -> list[Score]:
    """The results that `kept` wrote."""
    entries = json.loads(path.read_text())
    return [Score(**e | {"named": [tuple(n) for n in e["named"]], "cell": tuple(e["cell"])}) for e in entries]


def _share(holds: Iterable[bool]) -> float:
    return _mean([float(each) for each in holds])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", help="all with a file in --data if none is given")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--only", default="", help="a word that the names of the cases have")
    parser.add_argument("--every", type=int, default=1, help="one case in so many")
    parser.add_argument("--list-wrong", action="store_true", help="a line for each wrong answer")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--keep", type=Path, help="write the results here")
    asked = parser.parse_args(arguments)
    begun = time.perf_counter()
    cases = [
        case
        for family in asked.families or found_in(asked.data)
        for case in cases_of(family, asked.data, asked.every)
        if asked.only in case.name
    ]
    scores = scored_all(cases, min(asked.processes, PROCESSES))
    if asked.list_wrong:
        print("\n".join(wrong(scores)))
    print("\n".join(printed(scores)))
    print(f"{len(scores)} cases, {sum(case.tokens for case in cases):,} tokens, {time.perf_counter() - begun:.0f} s")
    if asked.keep:
        kept(scores, asked.keep)


if __name__ == "__main__":
    main()
