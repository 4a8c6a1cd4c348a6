"""The runs of tests/data/faults: a small real model, one injected fault each, or none. tests/faults/ makes them."""

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import polars as pl

from ratioscope.ingest.analysis.evidence import evidence_of_records
from ratioscope.metrics.diagnosis.decomposition import diagnose
from ratioscope.metrics.diagnosis.diagnosis import Diagnosis
from ratioscope.metrics.diagnosis.evidence import Evidence
from support.paths import TESTS
from support.real_runs import as_records

FOLDER = TESTS / "data" / "faults"
HEALTHY = "none"
CAUSES: dict[str, tuple[str, ...]] = {
    **{fault: (fault,) for fault in (
        "filler_values", "stored_precision", "shifted", "permuted_rows", "unscored_tokens", "end_token", "near_limit",
        "trainer_temperature", "reported_raw", "banned_tokens", "grammar", "different_prompt", "retokenised",
        "stuck_replica", "never_synced", "sync_broke", "switch_inside", "corrupted_load", "outlier_prompts", "router_flips",
    )},
    **dict.fromkeys(("top_p", "top_k", "min_p"), ("truncation",)),
    **dict.fromkeys(("silent_temperature", "silent_top_p", "silent_top_k"), ("silent_sampling",)),
    **dict.fromkeys(("repetition_penalty", "presence_penalty"), ("penalty",)),
    "token_bias": ("biased_ids",),
    "version_lag": ("version_lag", "stale_weights"),
    "stale_prefix_cache": ("stale_prefix",),
    "position_ids": ("position_onset", "different_prompt"),
    "chunk_boundary": ("chunk_boundary", "position_onset"),
    # No column tells the place in a pack: a class of sequences is all that the record shows.
    "packing_leak": ("outlier_prompts", "outlier_sequences"),
    # The record of a drift is that of a sync that never happened: the gap grows although versions are fresh.
    "drift_without_update": ("never_synced", "sync_broke"),
    "replay_inert": ("router_flips",),
    **dict.fromkeys(
        ("lora_merge", "weight_quantisation", "kv_precision", "batch_dependence"), ("different_weights",)
    ),
    "dropout": ("train_mode", "different_weights"),
}  # fmt: skip
"""Injected fault -> the causes that name it."""


@dataclass(frozen=True)
class FaultRun:
    """One run of the index."""

    name: str
    faults: tuple[str, ...]
    """The injected faults; empty for a healthy run."""
    strength: str
    """weak, middle, strong, or none."""
    injected: str
    """The injected fault in words."""

    @property
    def causes(self) -> tuple[str, ...]:
        """Causes that name one of the faults."""
        return tuple(cause for fault in self.faults for cause in self._causes(fault))

    def _causes(self, fault: str) -> tuple[str, ...]:
        unnamed = ("outlier_prompts", "outlier_sequences") if "unnamed" in self.name else ()
        absent = ("non_finite",) if "NaN" in self.injected else ()
        return (*CAUSES[fault], *unnamed, *absent)


def _run(entry: dict[str, Any]) -> FaultRun:
    faults = () if entry["fault"] == HEALTHY else tuple(entry["fault"].split("+"))
    return FaultRun(entry["file"].removesuffix(".parquet"), faults, entry["strength"], entry["injected"])


RUNS: tuple[FaultRun, ...] = tuple(_run(entry) for entry in json.loads((FOLDER / "index.json").read_text()))


@cache
def evidence(name: str) -> Evidence:
    """The evidence of a run."""
    return evidence_of_records(as_records(pl.read_parquet(FOLDER / f"{name}.parquet")), "mismatch")


@cache
def diagnosis(name: str) -> Diagnosis:
    """The diagnosis of a run."""
    return diagnose(evidence(name))


@cache
def half(name: str, seed: int) -> Diagnosis:
    """The diagnosis of a random half of the prompts of a run."""
    whole = evidence(name)
    prompt = whole.facts["group"] * (int(whole.facts["step"].max()) + 1) + whole.facts["step"]
    every = np.unique(prompt)
    chosen = np.random.default_rng(seed).choice(every, max(len(every) // 2, 2), replace=False)
    return diagnose(whole.kept(np.isin(prompt, chosen)))


def first_cause(name: str) -> str:
    """Code of the cause that is named first; "healthy", or "unexplained"."""
    return first_of(diagnosis(name))


def first_of(found: Diagnosis) -> str:
    """The same of any diagnosis."""
    if found.likely:
        return found.likely[0].cause.code
    return "healthy" if found.rest_is_noise else "unexplained"
