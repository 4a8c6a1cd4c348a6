"""The coverage of a run's verdict: the share of the offered sequences that it rests on, or why nothing was measured.

Mean length of the sequences that are on record and not measured, from the rows of few steps.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow.compute as pc

from ratioscope.arrays import Booleans, Integers
from ratioscope.inside import is_file, open_regular
from ratioscope.layout import REJECTED
from ratioscope.metrics.engines.arrow_columns import gap_rows
from ratioscope.metrics.grading.coverage import Absence, Coverage, Known, Offered, coverage, steps_in_words
from ratioscope.metrics.grading.signals import SIGNALS
from ratioscope.metrics.metric import SAMPLED
from ratioscope.metrics.step_holes import holes, usual_distance

from ..commits.liveness import SILENT_SECONDS
from ..rows.token_frame import token_counts
from .copies import COMPUTED_APART, EQUAL, copied_steps, is_placeholder
from .feature_requirements import MISMATCH, columns_on_record, missing_of, why_no_gap
from .step_rows import columns_of
from .ties import ties

if TYPE_CHECKING:
    from ..run import Run

_COUNTS = ("tokens", "non_finite", "zero_weight_tokens", "sequences", "sequences_set_aside", "empty_sequences")
_MOST_LISTED = 16 << 20
"""Bytes that are read of the list of rejected rows: some 80,000 of them."""
_LOOKS, _LOOKS_AFAR = 96, 6
"""Steps whose footers are read for the number of rows with each side; of a run on a store, where each is a request."""
_COPIED = "equal on both sides to the last bit"
_TIED = f"{_COPIED}, counted by tokens (a copy, or an aligned stack?)"
_ZERO = "exactly 0 on both sides, counted by tokens (placeholders, or tokens without a choice?)"
_MASK = "Leave the tokens that nobody scored out with mask=, and those that a grammar forced."
_WHICH = (
    f"If each side was computed by itself, say so with Collector({COMPUTED_APART}=True); else pass the engine's own log-probs. "
    "`ratioscope rescore RUN` reads the tokens a third time, and tells which."
)
_OF_LOG = "Import it again with --dialect TRAINER@VERSION, if its numbers depend on the version; else record log-probs."

_LENGTH_LOOKS, _LENGTH_LOOKS_AFAR = 4, 1
"""Steps whose rows are read; of a run on a store, where each is a request."""


@dataclass(frozen=True)
class Covered:
    """The coverage of a run, and the steps of which too little is known to call them healthy."""

    whole: Coverage
    """The coverage of all steps together."""
    unknown_steps: frozenset[int] = frozenset()
    """The steps of which too little is known."""


def coverage_of(run: "Run", least: float) -> Coverage:
    """The coverage of the gap between the sampler and the trainer, by all steps that are shown. least: see `coverage`."""
    return covered(run, least).whole


def covered(run: "Run", least: float) -> Covered:
    """`coverage_of` with the unknown steps, made once for all faces until the run grows, or a writer ends or falls silent."""
    return run.once(_covered, least, run.conservation.unheard)


def _covered(run: "Run", least: float, unheard: tuple[int, int]) -> Covered:
    if run.no_tokens:
        return Covered(_of_numbers(run, least))
    copied, counted = copied_steps(run), _counted(run)
    of_copies = [(pl.col("gap") == gap) & pl.col("step").is_in(list(steps)) for gap, steps in copied.items()]
    measured = counted.filter((pl.col("sequences") > 0) & ~pl.any_horizontal(pl.lit(False), *of_copies))
    if measured.is_empty():
        return Covered(_copy(run, copied) if any(gap in copied for gap in SAMPLED) else _nothing(run))
    offered = _offered(run, measured, counted)
    found = coverage(offered, least)
    return Covered(_silent(run, found, unheard) or found, offered.unknown_steps(least))


def _counted(run: "Run") -> pl.DataFrame:
    """Columns step, gap, tokens, usable, sequences, empty, tied, zero, for each step and sampled gap.

    usable, tied, zero: shares of the tokens. Equal log-probs are a measurement if their writer computed them apart.
    """
    frame = run.metrics(by=("step",), names=_COUNTS)
    parts = []
    for gap in SAMPLED:
        tokens, set_aside, zero, sequences, broken, empty = (
            pl.col(f"{gap}/{name}").fill_null(0) if f"{gap}/{name}" in frame.columns else pl.lit(0.0)
            for name in _COUNTS
        )
        every = tokens + set_aside
        usable = pl.when(every > 0).then((tokens - zero) / every).otherwise(1.0)
        parts.append(
            frame.select(
                "step", gap=pl.lit(gap), tokens=tokens, usable=usable, sequences=sequences + broken, empty=empty
            )
        )
    counted = pl.concat(parts).filter(pl.col("sequences") + pl.col("empty") > 0)
    tied = pl.col("tied").fill_null(0) * (run.info.get(COMPUTED_APART) is not True)
    return counted.join(ties(run), on=("step", "gap"), how="left").with_columns(
        tied=tied, zero=pl.col("zero").fill_null(0)
    )


def _of_numbers(run: "Run", least: float) -> Coverage:
    """The coverage of a scalar log: the share of its steps with a finite number of a sampled gap, at their usual distance.

    A trainer's own numbers measure the gap in part: no check that reads tokens can be made of them.
    """
    frame = run.metrics(by=("step",))
    names = [name for name in frame.columns if name.partition("/")[0] in SAMPLED and frame[name].dtype.is_numeric()]
    known = (
        frame.filter(pl.any_horizontal(pl.lit(False), *(pl.col(name).is_finite() for name in names)))["step"]
        .sort()
        .to_list()
    )
    if not known:
        why = "The log has no number of the gap between sampler and trainer."
        return Coverage(Known.NOT_MEASURED, None, why, _OF_LOG)
    if not {name.partition("/")[2] for name in names} & {signal.reads for signal in SIGNALS}:
        why = "This run was imported from a scalar log, and no signal grades the numbers that it has of the gap."
        return Coverage(Known.NOT_MEASURED, None, why, _OF_LOG)
    usual = int(usual_distance([after - before for before, after in pairwise(known)])) if len(known) > 1 else 1
    wanted = (max(run.steps) - min(run.steps)) // usual + 1
    share = min(1.0, len(known) / wanted)
    if share >= least:
        why = "A scalar log has the trainer's own numbers of the gap, and no check that reads tokens was made."
        return Coverage(
            Known.PARTLY, share, why, "Record the log-probs of sampler and trainer, which every signal reads."
        )
    why = f"{len(known):,} of about {wanted:,} steps of the log have a number of the gap, the last of them is step {known[-1]}."
    return Coverage(Known.PARTLY, share, why, "Find out why the trainer logs the gap at these steps alone.")


def _silent(run: "Run", found: Coverage, unheard: tuple[int, int]) -> Coverage | None:
    """The coverage if writers ended without closing, as those of a killed job, or are silent: nobody counted what they had not
    written."""
    ended, quiet = unheard
    if not (ended or quiet):
        return None
    writers = run.conservation.writers
    who = f"{ended or quiet} of {writers} writers" if writers > 1 else "The writer"
    last = f"The last step on record is {max(run.steps)}." if run.steps else ""
    fate = (
        "ended without closing"
        if ended
        else f"wrote nothing for over {SILENT_SECONDS / 60:g} minutes and did not close"
    )
    why = f"{who} {fate}: nobody counted what was taken and not written. {last}"
    remedy = (
        "Look into the job's own log for its end; start it again into the same folder to go on."
        if ended
        else "Look whether the job still runs: its process cannot be seen from this machine."
    )
    return Coverage(
        Known.SILENT if found.is_measured else found.known,
        found.share,
        f"{found.why} {why}".strip(),
        found.remedy or remedy,
    )


def _nothing(run: "Run") -> Coverage:
    """The coverage of a run without a gap between a sampler and a trainer: why, and the arguments that record one."""
    if reason := why_no_gap(run):
        return Coverage(Known.NOT_MEASURED, 0.0, f"{reason[0].upper()}{reason[1:]}", _record(run))
    reason = dict(missing_of(run)).get("mismatch", "because no token has both sides of it")
    words = f"The gap between the sampler and the trainer was not measured, {reason.partition(';')[0]}."
    return Coverage(Known.NOT_MEASURED, 0.0, words, _record(run))


def _record(run: "Run") -> str:
    """The arguments of the mismatch that the run lacks, or those whose rows do not meet."""
    wanted = [f"{argument}=" for argument in MISMATCH.lacking(columns_on_record(run)).values()]
    if not wanted:
        return "Log rollout_logprobs= and old_logprobs= under the same step and the same sequence_ids."
    return f"Pass {' and '.join(wanted)} to Collector.log."


def _copy(run: "Run", copied: Mapping[str, frozenset[int]]) -> Coverage:
    gap = next(gap for gap in SAMPLED if gap in copied)
    steps = steps_in_words(sorted(copied[gap]))
    if is_placeholder(run, gap):
        why = f"Every log-prob of both sides of the {gap} is 0 at {steps}: a placeholder, not a measurement."
        return Coverage(Known.NOT_MEASURED, 0.0, why, "Record the log-probs that engine and trainer computed.")
    return Coverage(Known.COPY, 0.0, f"The {gap} of {steps} is 0: {EQUAL}", _WHICH)


def _offered(run: "Run", measured: pl.DataFrame, counted: pl.DataFrame) -> Offered:
    """The sequences that a sampled gap was measured on, and all others, with the reason.

    measured: rows of _counted that are no copy. counted: all of its rows.
    """
    usable = pl.col("sequences") * pl.col("usable")
    every = measured.group_by("step").agg(
        pl.col("tokens").max(),
        known=(usable * (1 - pl.col("tied") - pl.col("zero"))).max(),
        broken=(pl.col("sequences") * (1 - pl.col("usable"))).min(),
        **{name: (usable * pl.col(name)).min() for name in ("tied", "zero")},
    )
    known = {int(step): float(number) for step, number in every.select("step", "known").iter_rows()}
    copies = counted.filter(~pl.col("step").is_in(every["step"].to_list()))
    masked = counted.group_by("step").agg(pl.col("empty").min(), most=pl.col("sequences").max())
    whole = counted.group_by("step").agg((pl.col("sequences") + pl.col("empty")).max())
    heavy = pl.col("empty") > pl.col("most")  # a few empty responses or overlong ones are no step that is lost
    without = masked.filter(pl.col("empty") > 0).select("step", "empty")
    no_token = replace(
        _by_step("without a token that is sampled and not masked", masked.filter(heavy).select("step", "empty")),
        unplaced=float(masked.filter(~heavy)["empty"].sum()),
    )
    length = mean_length(run, dict(without.iter_rows()), masked=True)
    absences = (
        *_dropped(run),
        *_gone(run),
        _by_step("without two finite log-probs", every.select("step", "broken")),
        replace(_by_step(_TIED, every.select("step", "tied")), is_possible=True, remedy=_WHICH),
        replace(_by_step(_ZERO, every.select("step", "zero")), placeholder=True, remedy=_MASK),
        _measured(no_token, length),
        _one_sided(run, counted),
        *_gone_rows(run, dict(whole.iter_rows())),
        _by_step(_COPIED, copies.group_by("step").agg(pl.col("sequences").max())),
        *_missing(run, sum(known.values()) / len(known) if known else 0.0),
    )
    return Offered(
        known, _tokens_of(run, known, float(every["tokens"].sum())), tuple(each for each in absences if each.sequences)
    )


def _tokens_of(run: "Run", known: Mapping[int, float], sampled: float) -> float:
    """Tokens of the measured sequences, masked ones included: those of missing sequences were counted so, too.

    sampled: those that are not masked, which is all that is known if a budget left rows out.
    """
    whole, size = sum(known.values()), run.size
    return sampled if not size.rows or run.conservation.left_out else whole * size.tokens / size.rows


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
        unplaced, tokens, told = 0.0, 0, 0
        for step, sequences, own, writer in rows.select("step", "sequences", "tokens", "writer").iter_rows():
            attempt = attempt_of.get(writer, 0)
            if step is not None and any(first <= step for later, first in begun.items() if later > attempt):
                continue
            tokens, told = tokens + (own or 0), told + (sequences if own else 0)
            if step is None:
                unplaced += sequences
            else:
                by_step[step] = by_step.get(step, 0) + sequences
        yield _measured(Absence(f"dropped ({reason})", by_step, unplaced), tokens / told if told else None)


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
    """Rows of the source that an import did not take."""
    if run.is_remote or not is_file(run.path, REJECTED):
        return 0
    with suppress(OSError), open_regular(run.path, REJECTED) as listed:
        return len(listed.read(_MOST_LISTED).splitlines())
    return 0


def _one_sided(run: "Run", counted: pl.DataFrame) -> Absence:
    """The sequences with the log-probs of one side alone, estimated from some steps if there are many.

    Rows that are slices of a sequence, with positions of their own, are not counted.
    """
    whole = counted.group_by("step").agg((pl.col("sequences") + pl.col("empty")).max())
    of_step, left_out = dict(whole.iter_rows()), run.rows_left_out
    steps = run.steps_with_rows
    most = _LOOKS_AFAR if run.is_remote else _LOOKS
    looked = (
        sorted({steps[at * (len(steps) - 1) // max(1, most - 1)] for at in range(most)}) if len(steps) > most else steps
    )
    by_step = {
        step: float(rows - of_step.get(step, 0))
        for step in looked
        if step not in left_out and (rows := _rows(run, step)) > of_step.get(step, 0)
    }
    elsewhere = sum(by_step.values()) / len(looked) * (len(steps) - len(looked)) if looked else 0.0
    found = Absence("with the log-probs of one side alone", by_step, elsewhere)
    return _measured(found, mean_length(run, by_step, masked=False))


def _gone_rows(run: "Run", measured: Mapping[int, float]) -> Iterator[Absence]:
    """The sequences that no statistics measured and whose rows a budget left out or `prune` deleted.

    measured: step -> its sequences with both sides. The log has the number of rows, and not the sides in them: a sequence has
    as many rows as at the step with the fewest of them. Minibatches vary that number, so that nothing is known.
    """
    for logged, fate in ((run.rows_left_out, "left out by the budget"), (run.pruned_rows, "pruned")):
        each = max(1.0, min((n // measured[step] for step, n in logged.items() if measured.get(step)), default=1.0))
        missing = {step: rows - each * measured.get(step, 0.0) for step, rows in logged.items()}
        by_step = {step: number for step, number in missing.items() if number > 0}
        if each == 1 or "current" not in run.policies:
            yield _measured(Absence(f"without both log-probs in the statistics, their rows {fate}", by_step), None)


def _measured(absence: Absence, length: float | None) -> Absence:
    """The absence with its tokens. length: mean tokens of its sequences; None if nobody knows it."""
    if length is None:
        return replace(absence, reason=f"{absence.reason}, of unknown length")
    return replace(absence, tokens=round(length * absence.sequences))


def _rows(run: "Run", step: int) -> int:
    """The rows of a step of which a side is known. Rows of minibatches repeat a sequence: there current is no side to count."""
    filled = run.filled(step)
    sides = ("rollout", "old") if filled.get("minibatch") else ("rollout", "old", "current")
    return 0 if filled.get("positions") else max(filled.get(f"{side}_logprobs", 0) for side in sides)


def _missing(run: "Run", mean: float) -> Iterator[Absence]:
    """The sequences of the steps that are missing between others, at the mean number of a step."""
    steps = run.steps
    usual = int(usual_distance([after - before for before, after in pairwise(steps)]))
    dropped = set(run.drops["step"].drop_nulls()) - set(steps)
    for at in holes(steps).tolist():
        before, after = steps[at], steps[at + 1]
        missing = (after - before) // usual - 1 - sum(before < step < after for step in dropped)
        if missing > 0:
            reason = f"in {missing:,} missing step{'' if missing == 1 else 's'} between {before} and {after}"
            yield Absence(reason, {}, missing * mean)


def mean_length(run: "Run", by_step: Mapping[int, float], *, masked: bool) -> float | None:
    """Mean tokens of the sequences without a sampled token, or of those with one side alone; None if no row of them has a token.

    by_step: step -> their number. masked: True for the first kind.
    """
    kept = [step for step in by_step if step in run.row_digests()]
    worst = sorted(kept, key=lambda step: -by_step[step])[: _LENGTH_LOOKS_AFAR if run.is_remote else _LENGTH_LOOKS]
    lengths = np.concatenate([np.zeros(0), *(_of_step(run, step, masked) for step in worst)])
    return float(lengths.mean()) if len(lengths) else None


def _of_step(run: "Run", step: int, masked: bool) -> Integers:
    records = columns_of(run, step, ("mask",))
    measured, empty = np.zeros(len(records), np.bool_), np.zeros(len(records), np.bool_)
    for gap in SAMPLED:
        rows = gap_rows(records, gap)
        sampled = np.bincount(np.repeat(np.arange(len(rows.rows)), rows.lengths), rows.mask, len(rows.rows)) > 0
        measured[rows.rows[sampled]], empty[rows.rows[~sampled]] = True, True
    ids = records["sequence_id"]
    known = np.asarray(pc.is_in(ids, value_set=ids.filter(measured | empty).combine_chunks()))
    chosen: Booleans = empty & ~measured if masked else ~known
    lengths: Integers = token_counts(records)[chosen]
    return lengths[lengths > 0]  # the collector cuts a padded row off behind the last true value of its mask
