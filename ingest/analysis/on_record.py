"""The facts of a run that its tokens do not hold: fixed weights, syncs that were asked for, an adapter, settings, and proofs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from ratioscope.metrics.diagnosis.evidence import Evidence
from ratioscope.metrics.diagnosis.on_record import LAG_ABOVE, STALENESS, OnRecord, SyncBreak, sync_break
from ratioscope.metrics.diagnosis.proof import with_proofs
from ratioscope.metrics.known.faults import numbers_at
from ratioscope.metrics.known.setting_keys import allowed_lag
from ratioscope.metrics.known.trainers import RECORDS_SYNCS, trainer_named

from ..run import Run
from .comparability import greedy_words, scorers_of
from .odd_policy import odd_policy
from .run_settings import settings
from .weight_arrivals import weight_proof

SYNC = "weight_sync"
RATES = ("learning_rate", "lr")
"""The last part of the key, or of the name of a logged number, that holds a learning rate."""
RISES = re.compile(r"warmup|(^|[._])(min_lr|lr_min|init_lr|lr_end|final_lr)$")
"""A setting by which a learning rate of 0 may still rise, unless its own value is 0."""
ADAPTER = re.compile(r"^config\b.*[._](q?lora|peft)([._]|$)")
"""A setting of a low-rank adapter."""
RANK = re.compile(r"rank$|[._](r|dim)$")
"""A setting among them that is 0 without an adapter."""
OF_INPUT = ("different_prompt", "switch_inside", "retokenised", "other_ids")
"""Codes of causes in which the sides read other ids, or sampled them with several weights: none between two scorers."""
OFF = ("0", "0.0", "false", "null", "none", "", "[]", "{}")


def on_record(
    run: Run, evidence: Evidence, gap: str, steps: Sequence[int], asked: Sequence[int], versions: frozenset[int | None]
) -> OnRecord:
    """The facts about a run. A proof of another source, as of a referee, is one more in the call of `with_proofs`.

    steps: those of which token rows were read. asked: those that were asked about; both ascend. versions: of the trainer's
    weights at the steps that were read, among which are the first and the last of those asked about.
    """
    trainer = trainer_named(run.info.get("trainer"))
    own = [settings(run.info, attempt) for attempt in run.attempts] or [settings(run.info)]
    fixed = _fixed_by_rate(run, own) or _fixed_by_version(run, evidence, asked, versions)
    broken = None if fixed else _syncs(run, evidence, asked[-1])
    by_user = "rollout_func" in own[-1].get("config.engine", "")  # whose syncs the adapter does not see
    if broken is not None and (trainer not in RECORDS_SYNCS or by_user) and not _lag_grows(evidence, broken):
        broken = replace(broken, is_sure=False)
    vetoes = {} if not fixed else {code: fixed for code in STALENESS if code not in _older_by_version(evidence)}
    if greedy := greedy_words(run.info):
        vetoes["silent_sampling"] = greedy
    scorers = scorers_of(run.info)
    if scorers and not any("command" in own for own in scorers):  # a command does with the ids what it likes
        vetoes |= dict.fromkeys(OF_INPUT, "both scorers were given the same ids, and each read a sequence in one pass")
    record = OnRecord(
        ruled_out=vetoes,
        settings=own[-1] | _lag_above(evidence, own[-1], trainer),
        fixed_weights=fixed,
        adapter=_adapter(own[-1]),
        syncs=broken,
    )
    arrivals = weight_proof(run, steps, evidence.names.get("replica", ()))
    return with_proofs(record, [arrivals, odd_policy(run, gap, steps, evidence.mean(evidence.distance))])


def _fixed_by_rate(run: Run, own: Sequence[Mapping[str, str]]) -> str:
    """That the learning rate is 0 at every step, in words; empty if that is not on record."""
    logged = run.logged.filter(pl.col("name").str.split("/").list.last().is_in(RATES))
    if len(logged):
        return "the learning rate that was logged is 0 at every step" if (logged["value"] == 0).all() else ""
    rates = [[value for key in RATES for value in numbers_at(key, each).values()] for each in own]
    rises = any(RISES.search(key) and _is_on(value) for each in own for key, value in each.items())
    is_zero = all(found and not any(found) for found in rates)
    return "the learning rate on record is 0" if is_zero and not rises else ""


def _fixed_by_version(run: Run, evidence: Evidence, asked: Sequence[int], versions: frozenset[int | None]) -> str:
    """That the trainer's version is the same at every step, in words; empty if it is not on record, or denied."""
    if len(versions) != 1 or len(asked) < 2 or (version := next(iter(versions))) is None:
        return ""
    lag = evidence.facts.get("lag")
    newer = lag is not None and bool((lag < 0).any())
    told = run.events.filter((pl.col("event") == SYNC) & pl.col("step").is_between(asked[0], asked[-1]))
    if newer or told["note"].n_unique() > 1:
        return ""
    return f"the trainer's version is {version} at every step from {asked[0]} to {asked[-1]}"


def _older_by_version(evidence: Evidence) -> tuple[str, ...]:
    """Causes that fixed weights do not rule out, because some tokens are of older weights by their own versions."""
    return ("version_lag", "stale_weights") if evidence.has("lag") and evidence.facts["lag"].any() else ()


def _syncs(run: Run, evidence: Evidence, last: int) -> SyncBreak | None:
    """The break of the rhythm of syncs on record; None without one, or if the lag on record denies it."""
    events = run.events.filter(pl.col("event") == SYNC)["step"].drop_nulls().to_list()
    broken = sync_break([step for step in events if step <= last], [step for step in run.steps if step <= last])
    if broken is None or not evidence.has("step"):
        return None
    return broken if not evidence.has("lag") or _lag_grows(evidence, broken) else None


def _lag_grows(evidence: Evidence, broken: SyncBreak) -> bool:
    """True if tokens of the steps without a due sync are older than those of the others, by the versions on record."""
    if not evidence.has("lag", "step"):
        return False
    late = broken.among(evidence.facts["step"])
    lag = evidence.facts["lag"]
    return bool(late.any() and not late.all() and lag[late].max() > lag[~late].max())


def _lag_above(evidence: Evidence, own: Mapping[str, str], trainer: str | None) -> dict[str, str]:
    """The largest lag that these settings allow, if the record has more."""
    allowed = allowed_lag(own, trainer)
    above = allowed and evidence.has("lag") and len(evidence) and int(evidence.facts["lag"].max()) > allowed.lag
    return {LAG_ABOVE: str(allowed.lag)} if allowed and above else {}


def _adapter(own: Mapping[str, str]) -> str:
    """The setting of a low-rank adapter in words; empty if there is none, or if its rank is 0."""
    found = {key.removeprefix("config."): value for key, value in own.items() if ADAPTER.search(key)}
    ranks = {key: value for key, value in found.items() if RANK.search(key)}
    told = [(key, value) for key, value in (ranks or found).items() if _is_on(value)]
    return f"{told[0][0]} is {told[0][1]}" if told else ""


def _is_on(value: str) -> bool:
    return value.lower() not in OFF
