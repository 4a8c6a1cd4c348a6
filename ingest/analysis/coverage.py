"""The coverage of a run's verdict: the share of the offered sequences that it rests on, or why nothing was measured."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING

import polars as pl

from ratioscope.inside import is_file, open_regular
from ratioscope.layout import REJECTED
from ratioscope.metrics.grading.coverage import Absence, Coverage, Known, Offered, coverage, steps_in_words
from ratioscope.metrics.metric import SAMPLED
from ratioscope.metrics.step_holes import holes, usual_distance

from .copies import COMPUTED_APART, EQUAL, copied_steps
from .feature_requirements import FEATURES, missing_of
from .no_gap import why_no_gap

if TYPE_CHECKING:
    from ..run import Run

_COUNTS = ("tokens", "sequences", "sequences_set_aside", "empty_sequences")
_MOST_LISTED = 16 << 20
"""Bytes that are read of the list of rejected rows: some 80,000 of them."""
_LOOKS = 6
"""Steps whose footers are read for the number of rows with the sampler's side: each may be one request to a store."""
_COPIED = "equal on both sides to the last bit"
_WHICH = (
    f"If each side was computed by itself, say so with Collector({COMPUTED_APART}=True); else pass the engine's own log-probs. "
    "`ratioscope rescore RUN` reads the tokens a third time, and tells which."
)


def coverage_of(run: "Run", least: float) -> Coverage:
    """The coverage of the gap between the sampler and the trainer, by all steps that are shown. least: see `coverage`."""
    copied = copied_steps(run)
    measured = _measured_by_gap(run, copied)
    if not any(len(rows) for rows in measured.values()):
        return _copy(run, copied) if any(gap in copied for gap in SAMPLED) else _nothing(run)
    found = Coverage(Known.MEASURED) if run.no_tokens else coverage(_offered(run, measured, copied), least)
    return _silent(run, found) or found


def thin_steps(run: "Run", least: float) -> frozenset[int]:
    """The steps of which a smaller share than the least was measured."""
    if run.no_tokens:
        return frozenset()
    copied = copied_steps(run)
    return frozenset(_offered(run, _measured_by_gap(run, copied), copied).thin_steps(least))


def _measured_by_gap(run: "Run", copied: Mapping[str, frozenset[int]]) -> dict[str, pl.DataFrame]:
    frame = run.metrics(by=("step",), names=None if run.no_tokens else _COUNTS)
    return {gap: _measured(frame, gap, copied.get(gap, frozenset())) for gap in SAMPLED}


def _measured(frame: pl.DataFrame, gap: str, copied: frozenset[int]) -> pl.DataFrame:
    """Columns step, tokens, sequences, empty: the steps at which the gap was measured, and is no copy."""
    tokens, sequences, set_aside, empty = (
        pl.col(f"{gap}/{name}") if f"{gap}/{name}" in frame.columns else pl.lit(None, pl.Float64) for name in _COUNTS
    )
    logged = [pl.col(name).is_not_null() for name in frame.columns if name.startswith(f"{gap}/")]
    known = (tokens.fill_null(0) + set_aside.fill_null(0) > 0) if f"{gap}/tokens" in frame.columns else pl.any_horizontal(
        *logged, pl.lit(False)
    )  # fmt: skip
    rows = frame.filter(known & ~pl.col("step").is_in(list(copied)))
    return rows.select(
        "step",
        tokens=tokens.fill_null(0),
        sequences=sequences.fill_null(0) + set_aside.fill_null(0),
        empty=empty.fill_null(0),
    )


def _silent(run: "Run", found: Coverage) -> Coverage | None:
    """The coverage if writers ended without closing, as those of a killed job: nobody counted what they had not written."""
    counts = run.conservation
    if not (ended := counts.gone + counts.silent):
        return None
    who = f"{ended} of {counts.writers} writers" if counts.writers > 1 else "The writer"
    last = f"The last step on record is {max(run.steps)}." if run.steps else ""
    why = f"{who} ended without closing: nobody counted what was taken and not written. {last}"
    remedy = "Look into the job's own log for its end; start it again into the same folder to go on."
    return Coverage(
        Known.SILENT if found.is_measured else found.known,
        found.share,
        f"{found.why} {why}".strip(),
        found.remedy or remedy,
    )


def _nothing(run: "Run") -> Coverage:
    """The coverage of a run without a gap between a sampler and a trainer: why, and the arguments that record one."""
    if run.no_tokens:
        why = f"Nothing in {run.no_tokens} is a graded number of the gap between sampler and trainer."
        do = "Import it again with --dialect TRAINER@VERSION, if its numbers depend on the version; else record log-probs."
        return Coverage(Known.NOT_MEASURED, None, why, do)
    if reason := why_no_gap(run):
        return Coverage(Known.NOT_MEASURED, 0.0, f"{reason[0].upper()}{reason[1:]}", _record("mismatch"))
    reason = dict(missing_of(run)).get("mismatch", "because no token has both sides of it")
    words = f"The gap between the sampler and the trainer was not measured, {reason.partition(';')[0]}."
    return Coverage(Known.NOT_MEASURED, 0.0, words, _record("mismatch"))


def _record(feature: str) -> str:
    arguments = next(each.record for each in FEATURES if each.name == feature)
    return f"Pass {arguments} to Collector.log."


def _copy(run: "Run", copied: Mapping[str, frozenset[int]]) -> Coverage:
    gap = next(gap for gap in SAMPLED if gap in copied)
    steps = steps_in_words(sorted(copied[gap]))
    whole = run.metrics(by=(), names=("log_ppl_rollout", "tokens"))
    if f"{gap}/log_ppl_rollout" in whole.columns and whole[f"{gap}/log_ppl_rollout"][0] == 0:
        why = f"Every log-prob of both sides of the {gap} is 0 at {steps}: a placeholder, not a measurement."
        return Coverage(Known.NOT_MEASURED, 0.0, why, "Record the log-probs that engine and trainer computed.")
    return Coverage(Known.COPY, 0.0, f"The {gap} of {steps} is 0: {EQUAL}", _WHICH)


def _offered(run: "Run", measured: Mapping[str, pl.DataFrame], copied: Mapping[str, frozenset[int]]) -> Offered:
    """The sequences that the sampled gaps were measured on, and all others, with the reason."""
    every = pl.concat(measured.values()).group_by("step").agg(pl.col("tokens", "sequences", "empty").max())
    known = {int(step): float(number) for step, number in zip(every["step"], every["sequences"], strict=True)}
    mean = sum(known.values()) / len(known) if known else 0.0
    absences = (
        *_dropped(run),
        *_gone(run),
        _by_step("masked at all of their tokens", every.select("step", "empty")),
        _one_sided(run, every),
        _copied(run, copied, known),
        *_missing(run, mean),
    )
    return Offered(known, float(every["tokens"].sum()), tuple(each for each in absences if each.sequences))


def _by_step(reason: str, rows: pl.DataFrame) -> Absence:
    return Absence(reason, {int(step): float(number) for step, number in rows.iter_rows() if number})


def _dropped(run: "Run") -> Iterator[Absence]:
    """The dropped sequences by reason, but for those of steps that a later attempt recorded again."""
    drops = run.drops
    if drops.is_empty():
        return
    attempt_of, begun = _attempts(run), run.attempts
    for (reason,), rows in drops.group_by("reason", maintain_order=True):
        by_step: dict[int, float] = {}
        unplaced, tokens = 0.0, 0
        for step, sequences, own, writer in rows.select("step", "sequences", "tokens", "writer").iter_rows():
            attempt = attempt_of.get(writer, 0)
            if step is not None and any(first <= step for later, first in begun.items() if later > attempt):
                continue
            tokens += own or 0
            if step is None:
                unplaced += sequences
            else:
                by_step[step] = by_step.get(step, 0) + sequences
        yield Absence(f"dropped ({reason})", by_step, unplaced, None if rows["tokens"].has_nulls() else tokens)


def _attempts(run: "Run") -> dict[str, int]:
    """writer -> its attempt."""
    return dict(run.writers.select("writer", "attempt").iter_rows())


def _gone(run: "Run") -> Iterator[Absence]:
    counts, attempt_of = run.conservation, _attempts(run)
    newest = max(attempt_of.values(), default=0)
    lost = sum(loss.sequences for loss in counts.losses if attempt_of.get(loss.writer, newest) == newest)
    yield Absence("not imported (import/rejected.jsonl)", {}, _rejected(run))
    yield Absence("lost when a writer ended without closing", {}, lost)  # a later attempt recorded its steps again
    yield Absence("set aside, because their files cannot be read", {}, counts.set_aside)


def _rejected(run: "Run") -> int:
    """Rows of the source that an import did not take, without those that it had already taken."""
    if run.is_remote or not is_file(run.path, REJECTED):
        return 0
    with suppress(OSError), open_regular(run.path, REJECTED) as listed:
        return sum(b'"field": "sequence_ids"' not in line for line in listed.read(_MOST_LISTED).splitlines())
    return 0


def _copied(run: "Run", copied: Mapping[str, frozenset[int]], known: Mapping[int, float]) -> Absence:
    """The sequences of the steps whose every sampled gap is a copy."""
    steps = frozenset().union(*(copied.get(gap, frozenset()) for gap in SAMPLED)) - known.keys()
    if not steps:
        return Absence(_COPIED, {})
    frame = run.metrics(by=("step",), names=_COUNTS).filter(pl.col("step").is_in(list(steps)))
    names = [f"{gap}/sequences" for gap in SAMPLED if f"{gap}/sequences" in frame.columns]
    return _by_step(_COPIED, frame.select("step", pl.max_horizontal(names)))


def _one_sided(run: "Run", every: pl.DataFrame) -> Absence:
    """The sequences with the sampler's log-probs and without the trainer's, estimated from a few steps.

    Rows that are slices of a sequence, with positions of their own, are not counted.
    """
    counted = {
        int(step): number for step, number in every.select("step", pl.col("sequences") + pl.col("empty")).iter_rows()
    }
    steps = run.steps_with_rows
    looked = steps[:: max(1, len(steps) // _LOOKS)][:_LOOKS]
    by_step: dict[int, float] = {}
    for step in looked:
        filled = run.filled(step)
        rows = 0 if filled.get("positions") else filled.get("rollout_logprobs", 0)
        if rows > counted.get(step, 0):
            by_step[step] = rows - counted.get(step, 0)
    elsewhere = sum(by_step.values()) / len(looked) * (len(steps) - len(looked)) if looked else 0.0
    return Absence("without the trainer's log-probs", by_step, elsewhere)


def _missing(run: "Run", mean: float) -> Iterator[Absence]:
    """The sequences of the steps that are missing between others, at the mean number of a step."""
    steps = run.steps
    usual = int(usual_distance([after - before for before, after in pairwise(steps)]))
    dropped = set(run.drops["step"].drop_nulls()) - set(steps)
    for at in holes(steps).tolist():
        before, after = steps[at], steps[at + 1]
        missing = (after - before) // usual - 1 - sum(before < step < after for step in dropped)
        if missing > 0:
            reason = f"of {missing:,} missing step{'' if missing == 1 else 's'} between {before} and {after}"
            yield Absence(reason, {}, missing * mean)
