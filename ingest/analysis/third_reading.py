"""The findings of `ratioscope rescore` in a run: the referee's own distance, and the alternatives that reproduce a side."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isclose
from typing import Any

import polars as pl

from ratioscope.layout import REFEREE
from ratioscope.metrics.diagnosis.catalogue import CAUSE
from ratioscope.metrics.diagnosis.on_record import Side
from ratioscope.metrics.diagnosis.proof import Reproduction
from ratioscope.record import sides

from ..run import Run
from .comparability import recorded_values, run_facts

SIDES: dict[str, Side] = {"rollout": "engine", "old": "trainer", "current": "trainer"}
CONFIDENCE = {"reproduced": "high", "fits best": "medium", "in part": "low"}
"""Verdict on an alternative -> confidence of the cause that it shows."""
LOWEST = 1.5
"""A side that stands no farther from the model than this times what its precision gives has no cause in part."""
_TEMPERATURE = re.compile(r"temperature ([\d.]+)")
Told = Mapping[str, Any]


def told(run: Run, kind: str) -> Any:
    """The newest data of this kind, floors or found; None if there is none that can be read."""
    notes = run.events.filter(pl.col("event") == REFEREE).sort("time", descending=True)["note"]
    for note in notes:
        try:
            content = json.loads(note)
        except ValueError:
            continue
        if isinstance(content, dict) and kind in content:
            return content[kind]
    return None


def precisions(run: Run) -> dict[str, str]:
    """Policy -> its precision, of those on record."""
    facts = run_facts(run.info)
    known = {"engine": facts.engine, "trainer": facts.trainer}
    return {policy: precision for policy in run.policies if (precision := known[SIDES[policy]])}


def reproductions(run: Run, gap: str, steps: Sequence[int]) -> list[Reproduction]:
    """The findings of `rescore --try` about the two sides of a gap at steps among these; empty where it read none of them."""
    found = told(run, "found")
    try:
        ours = [own for own in found or () if own["policy"] in sides(gap) and set(own["steps"]) & set(steps)]
        read = [_reproduction(run, own, ours) for own in ours]
    except (KeyError, TypeError, ValueError, ZeroDivisionError):  # written by another version
        return []
    if absent := set(sides(gap)) - {own["policy"] for own in ours}:
        read.append(Reproduction(SIDES[min(absent)], (), "it was not read", "", "low", 0.0))
    if not any(one.codes for one in read) and not set(steps) <= {step for own in ours for step in own["steps"]}:
        return []  # a fault of the other steps is not excluded
    return sorted(read, key=lambda one: -one.share)


def _reproduction(run: Run, own: Told, ours: Sequence[Told]) -> Reproduction:
    """A finding. Without a code, high says that nothing but the model's own weights and tokens acts on this side, low nothing."""
    alike = [one["steps"] for one in ours if one["policy"] != own["policy"] and one["hypothesis"] == own["hypothesis"]]
    beside = [step for step in own["steps"] if not any(step in steps for steps in alike)]
    plain, verdict = not own["code"], own["verdict"]
    nothing = Reproduction(SIDES[own["policy"]], (), own["hypothesis"], own["sentence"], "low", 0.0)
    is_trainers_checkpoint = own["code"] == "stale_weights" and own["policy"] != "rollout"
    if verdict == "reproduced" and (plain or not beside or is_trainers_checkpoint):
        return replace(nothing, confidence="high")
    is_rounding = verdict == "in part" and own["plain"] <= LOWEST * (own["plain_floor"] or 0.0)
    if plain or not beside or verdict == "no" or is_rounding or is_trainers_checkpoint:
        return nothing
    whole = sum(len(one["steps"]) * one["k3_plain"] for one in ours if one["policy"] == own["policy"])
    share = max(0.0, min(1.0, 1 - own["k3"] / own["k3_plain"])) * len(own["steps"]) * own["k3_plain"] / whole
    code, side = _placed(
        own, beside, sorted({step for one in ours for step in one["steps"]}), recorded_values(run.info)
    )
    codes = tuple(each for each in code.split() if each in CAUSE)
    confidence = "medium" if own["other_codes"] and verdict == "reproduced" else CONFIDENCE[verdict]
    others = tuple(each for each in own["other_codes"] if each in CAUSE)
    reader = f"the server that read {own['reading']!r}," if own.get("reading") else nothing.reader
    return Reproduction(side, codes, own["hypothesis"], own["sentence"], confidence, share, others, reader)  # type: ignore[arg-type]


def _placed(own: Told, beside: Sequence[int], read: Sequence[int], recorded: Mapping[str, float]) -> tuple[str, str]:
    """(codes, side) of a finding, by the temperatures on record and by the steps at which weights are older."""
    code, side = own["code"], SIDES[own["policy"]]
    if code == "stale_weights" and len(beside) > 1:
        code = "never_synced" if beside[0] == read[0] else "sync_broke"
    number = _TEMPERATURE.search(own["hypothesis"])
    if number and "temperature" in recorded and isclose(float(number[1]), recorded["temperature"], rel_tol=0.02):
        if code == "trainer_temperature":  # the side at the recorded temperature is right, and the other one is off
            return ("reported_raw", "engine") if side == "trainer" else (code, "trainer")
    return code, side
