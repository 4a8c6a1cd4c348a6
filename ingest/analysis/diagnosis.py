"""The diagnosis of a run: why its policies are apart, from the rows of few steps and the history of all."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import isclose, isnan, nan
from typing import Any

import polars as pl

from ratioscope.errors import SourceError
from ratioscope.metrics.diagnosis.causes.records import OF_FILLERS, fillers_of
from ratioscope.metrics.diagnosis.decomposition import diagnose
from ratioscope.metrics.diagnosis.diagnosis import CannotTell, Diagnosis, Likely, at_read
from ratioscope.metrics.diagnosis.evidence import CLIP
from ratioscope.metrics.diagnosis.marked import counted
from ratioscope.metrics.diagnosis.non_finite import AtSteps
from ratioscope.metrics.diagnosis.on_record import OnRecord
from ratioscope.metrics.diagnosis.proof import with_reproductions
from ratioscope.metrics.known.experiments import UNEXPLAINED, Experiment, next_experiment
from ratioscope.record import GAPS, gap_between, sides

from ..run import Run
from .comparability import scorers_of
from .copies import CopyFact, copy_facts, judged_first
from .drift import drift_of
from .evidence import Sampled, evidence_of
from .feature_requirements import why_no_gap, why_no_rows
from .gap_history import GapSize, gap_size
from .on_record import SYNC
from .third_reading import reproductions

SAMPLED = ("mismatch", "total")
"""Gaps whose earlier policy sampled the tokens, the best one first."""
SAME = 0.005
"""Two values that differ by a smaller part are one in three digits."""
ARGUMENTS: Mapping[str, str] = {
    "token": "token_ids",
    "entropy": "entropy",
    "lag": "rollout_versions and trainer_version",
    "replica": "replica",
    "group": "group_ids",
    "turn": "turns",
    "step": "step",
    "length": "mask",
    "cached": "cached_tokens",
    "kv_age": "kv_versions and rollout_versions",
    "media": "media",
    "pack": "pack_position",
    "router": "router_agreement",
    "other_id": "sampled_ids and token_ids",
}
"""Fact of the evidence -> arguments of Collector.log that record it."""
COLUMNS: Mapping[str, frozenset[str]] = {
    "rollout_versions": frozenset({"rollout_versions", "rollout_version_min"}),
    "group_ids": frozenset({"group_id"}),
    "turns": frozenset({"turn"}),
}
"""Argument -> the columns of the Record that hold it, of which one is enough; of any other argument, the column of its name."""


@dataclass(frozen=True)
class RunDiagnosis:
    """A diagnosis with the part of the run that it looked at."""

    diagnosis: Diagnosis
    gap: str
    steps: tuple[int, ...]
    """Steps whose rows were read, ascending."""
    left_out: int
    """Sequences of these steps that were not looked at, because there are too many."""
    without_number: int
    """Tokens that were left out because one of their log-probs is no finite number."""
    among: range | None = None
    """The steps that were asked about; None for all."""
    read_kl_k3: tuple[float, float] = (nan, 0.0)
    """(K3 over the tokens that were read, log-ratios above CLIP taken as CLIP, its error from their choice), nats/token."""
    kl_k3_of_steps: float = nan
    """K3 over all tokens of the steps that were read, as `metrics` has it, nats/token."""
    size: GapSize | None = None
    """The size of the gap over all steps that were asked about; None if it is not on record."""
    copies: tuple[CopyFact, ...] = ()
    """Every gap of the run of which one side is a copy of the other."""

    @property
    def untold(self) -> tuple[CopyFact, ...]:
        """The copies that the answer does not tell."""
        answer = self.diagnosis.told_first
        return tuple(each for each in self.copies if each.gap != self.gap and each.head not in answer)

    columns: frozenset[str] = frozenset()
    """Columns of the Record with a value in the rows that were read, or at the newest step."""
    record: OnRecord = field(default_factory=OnRecord)
    next: Experiment | None = None
    """The cheapest experiment for what stays open; None if nothing does."""
    fillers: tuple[tuple[str, float], ...] = ()
    """(side, constant) of each constant that was found in place of log-probs. side: sampler or trainer."""
    without: AtSteps | None = None
    """The tokens without two finite log-probs, of all steps; None if there are none."""

    def why(self, cause: CannotTell) -> str:
        """Why the record cannot tell a cause, and what to record, in words."""
        record = " and ".join(self.to_record(cause.missing))
        return f"{cause.because}; log {record}" if record else cause.because

    def to_record(self, facts: Collection[str]) -> list[str]:
        """The arguments of Collector.log that would record these facts, in the order of ARGUMENTS, less those on record."""
        names = [name for fact, all_names in ARGUMENTS.items() if fact in facts for name in all_names.split(" and ")]
        return [name for name in dict.fromkeys(names) if not self.columns & COLUMNS.get(name, {name})]

    @property
    def read(self) -> str:
        """The rows that were read, in one sentence."""
        few = f"; every further sequence was left out ({self.left_out})" if self.left_out else ""
        steps = (
            f"step {self.steps[0]}"
            if len(self.steps) == 1
            else f"{len(self.steps)} steps, {self.steps[0]} to {self.steps[-1]}"
        )
        tokens = f"{counted(self.diagnosis.tokens, 'token')} of {counted(self.diagnosis.sequences, 'sequence')}"
        return f"Read: {tokens} at {steps}{few}. {self._apart}The history of the gap is of all steps."

    @property
    def _apart(self) -> str:
        """The K3 of the tokens that were read beside that of all tokens, in one sentence; empty where they are one."""
        (own, error), whole = self.read_kl_k3, self.kl_k3_of_steps
        if isnan(own) or isclose(own, whole, rel_tol=SAME):
            return ""
        chosen = f" ± {error:.2g}" if error else ""
        clipped = f"a log-ratio above {CLIP:g} counted as {CLIP:g}"
        return f"Their K3, {clipped}, is {own:.3g}{chosen}; over all tokens of these steps K3 is {whole:.3g}. "


def diagnosis_of(run: Run, gap: str | None = None, steps: Sequence[int] | None = None) -> RunDiagnosis:
    """The diagnosis of a run. gap: None chooses as `diagnosed_gap` does. steps: the steps to look at; None: all.

    SourceError if the run has no such gap, or no token rows at these steps; with the size of the drift for the drift.
    """
    chosen = diagnosed_gap(run, gap)
    if chosen not in SAMPLED:
        raise SourceError(drift_of(run, steps).words.removesuffix("."))
    sampled = evidence_of(run, chosen, steps)
    if not len(sampled.evidence):
        if reason := run.no_tokens:
            raise SourceError(f"{reason}, which a diagnosis reads")
        if reason := why_no_gap(run):
            raise SourceError(reason)
        raise SourceError(f"the run {run.name} {_why_no_tokens(run, chosen, steps)}")
    proven = with_reproductions(diagnose(sampled.evidence), reproductions(run, chosen, sampled.steps))
    diagnosis = proven.muting(run.rules.muted_causes)
    among = None if not steps else range(min(steps), max(steps) + 1)
    return described(run, diagnosis, sampled, chosen, among, asked=gap)


def described(
    run: Run, diagnosis: Diagnosis, sampled: Sampled, gap: str, among: range | None = None, asked: str | None = None
) -> RunDiagnosis:
    """The diagnosis of this evidence, with the gap of all tokens of its steps. asked: the gap that was asked for, if any."""
    evidence, copies, size = sampled.evidence, copy_facts(run), gap_size(run, gap, among)
    whole, over = (nan, "") if size is None else (size.whole.value, size.over)
    is_part = size is not None and len(sampled.steps) < size.whole.steps
    read = f" {at_read(len(sampled.steps))}" if is_part else ""
    stated = diagnosis.stated(whole, sampled.kl_k3, over=over, among=read)
    is_named = any(item.cause.code in OF_FILLERS for item in diagnosis.found)
    return RunDiagnosis(
        replace(stated, told_first=told_first(copies, gap, asked)),
        gap,
        sampled.steps,
        sampled.left_out,
        evidence.without_number,
        among,
        (evidence.mean(evidence.distance), evidence.error(evidence.distance)),
        sampled.kl_k3,
        size,
        copies,
        sampled.columns,
        evidence.record,
        _next(run, diagnosis, sampled),
        tuple((side, value) for side, value, _ in fillers_of(evidence)) if is_named else (),
        None if evidence.non_finite is None else evidence.non_finite.over_steps,
    )


def _next(run: Run, diagnosis: Diagnosis, sampled: Sampled) -> Experiment | None:
    """The experiment that settles most of the causes that may explain the gap, and of those that the record cannot tell."""
    likely = diagnosis.likely
    first = [code for item in likely[:1] for code in (item.cause.code, *item.instead)]
    if not likely and diagnosis.unexplained and not diagnosis.is_equal:
        first = [UNEXPLAINED]
    told = {
        "digests": bool(run.weights[0]), "referee": _is_judged(run), "prompt_ids": "prompt_ids" in run.columns,
        "token_ids": sampled.evidence.has("token"), "fixed_weights": bool(sampled.evidence.record.fixed_weights),
        "synced": _is_synced(run), "parity": bool(scorers_of(run.info)),
    }  # fmt: skip
    on_record = {*sampled.evidence.facts, *(name for name, is_there in told.items() if is_there)}
    confirm = likely[0].cause.confirm if likely else ""
    return next_experiment(first, {item.cause.code for item in diagnosis.cannot_tell}, on_record, confirm)


def _is_judged(run: Run) -> bool:
    """True if a reading is no engine's: a prefill of the engine is one of the sides, and judges nobody."""
    ways = (reading.made_of or ({},) for reading in run.readings.values())
    return any("engine" not in made for own in ways for made in own)


def _is_synced(run: Run) -> bool:
    """True if the record has a weight sync at nearly every step."""
    return run.events.filter(pl.col("event") == SYNC)["step"].n_unique() + 1 >= len(run.steps)


def told_first(copies: Sequence[CopyFact], gap: str, asked: str | None = None) -> str:
    """The sentence on copies that comes before the answer: another gap is judged, or a part of this one is not measured.

    asked: the gap that was asked for; None if this one was chosen.
    """
    for each in copies:
        if each.gap == gap and not each.whole:
            return f"{each.head}."
        if each.gap == SAMPLED[0] and gap == SAMPLED[1] and each.whole and asked is None:
            return f"{each.head}: the total is judged."
    return ""


def _why_no_tokens(run: Run, gap: str, steps: Sequence[int] | None) -> str:
    """Why no step has a token to diagnose, and what to do."""
    if steps is not None and not set(steps).intersection(run.steps):
        return f"has none of the steps that were asked for; it has steps {run.steps[0]} to {run.steps[-1]}"
    frame = run.metrics(names=("tokens", "non_finite"))
    asked = frame if steps is None else frame.filter(pl.col("step").is_in(list(steps)))
    known = {name: f"{gap}/{name}" for name in ("tokens", "non_finite") if f"{gap}/{name}" in asked.columns}
    tokens, without = (int(asked[known[name]].sum()) if name in known else 0 for name in ("tokens", "non_finite"))
    if not tokens and without:
        both = f"{without:,} tokens with both sides of the {gap}, and not one pair of finite log-probs among them"
        place = "Samples, tab Tokens, or in `ratioscope export RUN --level token`"
        return f"has {both}: see which side is NaN or infinite on {place}"
    if not tokens and len(asked):
        return f"has no tokens in the sequences of these steps: log the log-probs of both sides of the {gap}"
    return f"has no token rows with both sides of the {gap} at these steps, only their statistics: {why_no_rows(run)}"


def diagnosed_gap(run: Run, gap: str | None = None) -> str:
    """The gap that is diagnosed: the one asked for, else the mismatch, else the total. SourceError if the run lacks it.

    The total comes first if the mismatch is 0 by construction and the total is not: then old is a copy of rollout.
    """
    named = sides(gap or next((name for name in judged_first(run) if name in SAMPLED), SAMPLED[0]))
    chosen = gap_between(*named)
    if chosen in run.gaps:
        return chosen
    if reason := run.no_tokens:
        raise SourceError(f"{reason}, which a diagnosis reads")
    if gap is None and (reason := why_no_gap(run)):
        raise SourceError(reason)
    if chosen not in GAPS:
        raise SourceError(
            f"a diagnosis is of {', '.join(GAPS)}; the size of {chosen}: ratioscope metrics RUN --gap {chosen}"
        )
    absent = [policy for policy in named if policy not in run.policies]
    why = (
        f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not on record; pass "
        f"{' and '.join(f'{policy}_logprobs=' for policy in absent)} to the collector"
        if absent
        else f"no token has both {named[0]} and {named[1]}; log both under the same step and the same sequence_ids"
    )
    raise SourceError(f"the {chosen} of {run.name} was not measured: {why}")


def plain_diagnosis(result: RunDiagnosis) -> dict[str, Any]:
    """A diagnosis as values that JSON can hold."""
    diagnosis = result.diagnosis
    return {
        "answer": diagnosis.answer,
        "healthy": diagnosis.is_healthy,
        "gap": result.gap,
        "sides_equal": diagnosis.is_equal,
        "computed_apart": diagnosis.computed_apart,
        "copies": [asdict(each) | {"whole": each.whole, "words": each.words} for each in result.copies],
        "kl_k3": diagnosis.gap,
        "kl_k3_of_steps": result.kl_k3_of_steps,
        "kl_k3_read": result.read_kl_k3[0],
        "kl_k3_read_error": result.read_kl_k3[1],
        "kl_k3_left": diagnosis.rest,
        "explained": diagnosis.explained,
        "unexplained": diagnosis.unexplained,
        "likely": [_likely(item) for item in diagnosis.likely],
        "muted": [
            {"code": item.cause.code, "title": item.title, "share": item.of_whole, "reason": reason}
            for item, reason in diagnosis.muted
        ],
        "excluded": [
            {"code": e.cause.code, "title": e.cause.title, "effect": e.effect, "would_show": e.would_show}
            for e in diagnosis.excluded
        ],
        "cannot_tell": [
            {
                "code": c.cause.code,
                "title": c.cause.title,
                "because": c.because,
                "record": [" and ".join(names) for fact in c.missing if (names := result.to_record([fact]))],
            }
            for c in diagnosis.cannot_tell
        ],
        "next": None if result.next is None else _plain_next(result.next),
        "noise": None if diagnosis.noise is None else diagnosis.noise._asdict(),
        "steps_read": list(result.steps),
        "tokens": diagnosis.tokens,
        "sequences": diagnosis.sequences,
        "sequences_left_out": result.left_out,
        "tokens_without_number": result.without_number,
    }


def _plain_next(found: Experiment) -> dict[str, Any]:
    return {"code": found.code, "do": found.do, "cost": found.cost, "settles": list(found.settles)}


def _likely(item: Likely) -> dict[str, Any]:
    cause = item.cause
    return {
        "code": cause.code,
        "title": item.title,
        "share": item.of_whole if item.share else None,
        "undoing": None if item.share is None else asdict(item.share) | {"words": cause.undoing},
        "confidence": item.confidence,
        "effect": item.effect,
        "side": item.side,
        "proof": item.proof,
        "parameters": dict(item.parameters),
        "meaning": cause.meaning,
        "remedy": cause.remedy,
        "confirm": cause.confirm,
        "instead": list(item.instead),
        "set": [
            {"code": rival.cause.code, "title": rival.cause.title, "share": rival.of_whole, "check": rival.check}
            for rival in item.rivals
        ],
        "mistaken_for": dict(cause.mistaken_for),
    }
