"""The first rows that reach the disk, in one sentence: how many, of which policies, and whether their two sides line up."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from ratioscope.metrics.columns import SHIFTS
from ratioscope.metrics.engines.step_values import step_values
from ratioscope.metrics.metric import SAMPLED
from ratioscope.record import GAPS, POLICIES

from ..batch.records import tokens_of

_CORRELATIONS = {0: "logprob_correlation"} | {shift: f"shift_correlation_{shift:+d}" for shift in SHIFTS}
_ALIKE = 0.5
_FEW = 30  # tokens; a correlation of fewer says nothing


def first_rows_note(rows: pa.Table, statistics: pa.Table, versions: str | None) -> str:
    """The sentence. statistics: those of `rows`. versions: where policy versions come from, if the adapter said so."""
    policies = [policy for policy in POLICIES if rows[f"{policy}_logprobs"].null_count < len(rows)]
    absent = [policy for policy in POLICIES if policy not in policies]
    parts = [
        f"{len(rows)} rows, {tokens_of(rows)} tokens, of {_listed(policies)}",
        *([f"{_listed(absent)} not in them"] if absent else []),
        _versions(rows, versions),
        _alignment(step_values(statistics, ("tokens", *_CORRELATIONS.values()))),
    ]
    return "; ".join(parts)


def _alignment(values: Mapping[str, float]) -> str:
    gap = next((gap for gap in SAMPLED if f"{gap}/{_CORRELATIONS[0]}" in values), None)
    if gap is None or values.get(f"{gap}/tokens", 0) < _FEW:
        return "alignment cannot be told from one policy or from so few tokens"
    correlations = {shift: values.get(f"{gap}/{name}", -1.0) for shift, name in _CORRELATIONS.items()}
    best = max(correlations, key=lambda shift: correlations[shift])
    others = max(value for shift, value in correlations.items() if shift != 0)
    measured = f"correlation {correlations[0]:.3f} at shift 0, at most {others:.3f} at -2..2"
    sides = " and ".join(GAPS[gap])
    doubt = 2 / values[f"{gap}/tokens"] ** 0.5  # two standard errors of a small correlation
    if best != 0 and correlations[best] > max(_ALIKE, correlations[0] + doubt):
        return f"{sides} LOOK SHIFTED by {best:+d} tokens ({measured})"
    if correlations[0] > _ALIKE:
        return f"{sides} look aligned ({measured})"
    if correlations[0] + doubt > _ALIKE:
        return f"alignment cannot be told from so few tokens ({measured})"
    return f"{sides} correlate little: other tokens, other weights, or log-probs that hardly vary ({measured})"


def _versions(rows: pa.Table, source: str | None) -> str:
    known = rows["rollout_version_min"].null_count < len(rows)
    if not known:
        return f"rollout versions unknown{f': {source}' if source else ''}"
    lags = rows["trainer_version"].null_count < len(rows)
    return f"rollout versions {f'from {source}' if source else 'recorded'}{'' if lags else ', trainer version unknown'}"


def _listed(names: list[str]) -> str:
    return ", ".join(names) if names else "no policy"
