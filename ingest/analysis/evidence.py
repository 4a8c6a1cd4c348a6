"""The evidence that a diagnosis needs: tokens of few chosen steps, and the level of the gap at every step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import pyarrow as pa

from ratioscope.arrays import Floats, Integers
from ratioscope.metrics.diagnosis.evidence import Evidence
from ratioscope.metrics.diagnosis.history import History
from ratioscope.metrics.engines.arrow_columns import measured_rows
from ratioscope.record import GAPS

from ..rows.token_frame import token_counts, token_frame
from ..rows.windows import PER_SEQUENCE, cut, windows
from ..run import Run
from .copies import COMPUTED_APART, copied_steps
from .gap_history import READ, gap_history, history_with_mix
from .non_finite import non_finite_of, non_finite_of_records
from .on_record import on_record
from .step_rows import columns_of

MOST_STEPS = 12
"""At most so many steps are read: the worst ones, the first, the newest, and some between."""
MOST_TOKENS = 60_000
"""About so many tokens are kept. A step gives its share of them, by sequences at even distances, and at least one sequence."""
LONGEST = 16_000
"""At most so many tokens of a sequence are kept, in windows. It counts as one of them: a diagnosis wants many sequences."""
SAME = 1e-9
"""Weights that differ by a smaller part are equal."""
COLUMNS = (
    "rank", "token_ids", "mask", "entropy", "group_id", "replica", "turn", "rollout_versions", "rollout_version_min",
    "trainer_version",
    "cached_tokens", "kv_versions", "media", "pack_position", "router_agreement", "sampled_ids", "inclusion_probability",
)  # fmt: skip
"""Columns of the Record that become facts of the evidence, beside the log-probs."""
NUMBERS = {
    "token": "token_id", "lag": "lag", "turn": "turn", "cached": "cached_tokens", "kv_age": "kv_age", "media": "media",
    "pack": "pack_position", "other_id": "other_id", "rank": "rank",
}  # fmt: skip
"""Fact that holds whole numbers -> its column of the table of tokens. It is a fact if every token has a number."""
LABELS = {"group": "group_id", "replica": "replica"}
"""Fact that holds codes -> its column."""


@dataclass(frozen=True)
class Sampled:
    """Evidence with the steps that it is from."""

    evidence: Evidence
    steps: tuple[int, ...]
    """Steps whose rows were read, ascending."""
    left_out: int
    """Sequences of these steps that were not looked at, because there are too many."""
    kl_k3: float
    """K3 over every token of these steps, as `metrics` has it, in nats/token; NaN if it is not on record."""
    columns: frozenset[str] = frozenset()
    """Columns of the Record with a value in the rows that were read, or at the newest step."""


def evidence_of(run: Run, gap: str, steps: Sequence[int] | None = None) -> Sampled:
    """The tokens of some steps, and the history of all steps. steps: the steps to choose from; None: all of the run."""
    frame = _asked(run, steps)
    chosen = _chosen_steps(run, frame, gap)
    parts, left_out, columns = [], 0, set(run.columns)
    for step in chosen:
        records = columns_of(run, step, COLUMNS)
        columns |= {name for name in records.column_names if records[name].null_count < len(records)}
        part, more = _tokens_of(records, gap, MOST_TOKENS // max(len(chosen), 1))
        parts += [part] if len(part) else []
        left_out += more
    for step in _copies_beside(run, frame, gap, chosen):
        part, _ = _tokens_of(columns_of(run, step, COLUMNS), gap, MOST_TOKENS // MOST_STEPS)
        if len(part) and part["earlier"].n_unique() == 1:  # no copy: placeholders, which are a fault
            parts, chosen = [*parts, part], sorted([*chosen, step])
    whole = _whole(frame, gap, chosen)
    own = _evidence(
        parts, history_with_mix(run, gap, gap_history(frame, gap)), dict(whole.select("step", "n").iter_rows())
    )
    apart = run.info.get(COMPUTED_APART) is True
    own = replace(own, non_finite=non_finite_of(run, gap, steps), computed_apart=apart)
    if len(own):
        versions = frozenset(version for part in parts for version in part["trainer_version"].unique().to_list())
        own = replace(own, record=on_record(run, own, gap, chosen, frame["step"].sort().to_list(), versions))
    kl_k3 = float(np.average(whole["level"].to_numpy(), weights=whole["n"].to_numpy())) if len(whole) else np.nan
    return Sampled(own, tuple(chosen), left_out, kl_k3, frozenset(columns))


def _whole(frame: pl.DataFrame, gap: str, steps: Sequence[int]) -> pl.DataFrame:
    """step, level, n: the K3 and the number of all tokens of these steps, whether or not their rows were kept."""
    own = frame.filter(pl.col("step").is_in(list(steps)))
    if f"{gap}/kl_k3" not in own.columns:
        return pl.DataFrame({"step": [], "level": [], "n": []})
    n = pl.col(f"{gap}/tokens").cast(pl.Float64)
    return own.select("step", level=pl.col(f"{gap}/kl_k3").cast(pl.Float64), n=n).filter(pl.col("n") > 0)


def _copies_beside(run: Run, frame: pl.DataFrame, gap: str, chosen: Sequence[int]) -> list[int]:
    """The first and the newest step at which one side equals the other, if others were chosen."""
    equal = sorted(copied_steps(run).get(gap, frozenset()).intersection(frame["step"]).difference(chosen))
    return sorted({*equal[:1], *equal[-1:]})


def steps_to_read(run: Run, gap: str) -> list[int]:
    """The steps whose token rows `evidence_of` reads, ascending; to find them no token row is read."""
    return _chosen_steps(run, _asked(run, None), gap)


def _asked(run: Run, steps: Sequence[int] | None) -> pl.DataFrame:
    frame = run.metrics(by=("step",), names=READ)
    return frame if steps is None else frame.filter(pl.col("step").is_in(list(steps)))


def _chosen_steps(run: Run, frame: pl.DataFrame, gap: str) -> list[int]:
    """The worst steps, the first and the newest ones, and steps at even distances between them; ascending.

    Steps at which one side is a copy of the other are read if there are no others.
    """
    frame = frame.filter(pl.col("step").is_in(list(run.row_digests())))
    measured = frame.filter(~pl.col("step").is_in(list(copied_steps(run).get(gap, ()))))
    frame = frame if measured.is_empty() else measured
    known = (
        frame.filter(pl.col(f"{gap}/kl_k3").is_not_null()).sort("step")
        if f"{gap}/kl_k3" in frame.columns
        else frame.clear()
    )
    steps = known["step"].to_list()
    if len(steps) <= MOST_STEPS:
        return steps
    worst = known.sort(f"{gap}/kl_k3", descending=True, nulls_last=True)["step"].to_list()[:4]
    fixed = {*worst, *steps[:2], *steps[-2:]}
    between = [steps[int(at)] for at in np.linspace(0, len(steps) - 1, MOST_STEPS)]
    for step in between:
        if len(fixed) < MOST_STEPS:
            fixed.add(step)
    return sorted(fixed)


def evidence_of_records(records: pa.Table, gap: str) -> Evidence:
    """The evidence of joined Records of one or more steps; their own steps are all the history it has."""
    own = _evidence([_tokens(records, gap, np.ones(len(records)))], None, {})
    return replace(own, non_finite=non_finite_of_records(records, gap))


def _tokens_of(records: pa.Table, gap: str, most: int) -> tuple[pl.DataFrame, int]:
    """(one row per sampled token of these Records of a step, number of sequences left out)."""
    measured = measured_rows(records, gap)
    counts = token_counts(records)[measured]
    tokens = int(np.where(counts > LONGEST, LONGEST // PER_SEQUENCE, counts).sum())
    every = max(1, int(np.ceil(tokens / max(most, 1))))
    parts = [np.flatnonzero(part) for part in (counts > LONGEST, counts <= LONGEST)]
    # Few long sequences hold many tokens: both parts are sampled apart, and the tokens that are read stand for all of their part.
    stands = np.zeros(len(measured))
    for part in parts:
        stands[part[::every]] = counts[part].sum() / max(counts[part[::every]].sum(), 1)
    read = np.flatnonzero(stands)
    return _tokens(records.take(measured[read]), gap, stands[read]), len(measured) - len(read)


def _tokens(records: pa.Table, gap: str, stands: Floats) -> pl.DataFrame:
    """One row per sampled token of these Records, with the facts of the evidence; of long sequences, the tokens of windows.

    stands: sequences of its step that each record stands for.
    """
    if not len(records):
        return pl.DataFrame()
    earlier, later = (f"{policy}_logprob" for policy in GAPS[gap])
    columns = (
        "step", "rank", "position", "token_id", "mask", "entropy", "turn", "rollout_version", "rollout_version_min",
        "trainer_version",
        "cached_tokens", "kv_version", "media", "pack_position", "router_agreement", "sampled_id", "inclusion_probability",
    )  # fmt: skip
    lengths: Integers = token_counts(records)
    spans = windows(lengths, LONGEST, seed=records["step"][0].as_py())
    parts = records if len(spans.row) == len(lengths) else cut(records, spans)
    frame = token_frame(parts, (*columns, *LABELS.values(), earlier, later))
    version = pl.coalesce("rollout_version", "rollout_version_min")
    return frame.with_columns(
        row=pl.Series(np.repeat(spans.row, spans.length)),
        length=pl.Series(np.repeat(lengths[spans.row], spans.length)),
        stands=pl.Series(np.repeat(stands[spans.row] / spans.share, spans.length)),
        position=pl.col("position") + pl.Series(np.repeat(spans.start, spans.length)),
        lag=pl.col("trainer_version") - version,
        kv_age=version - pl.col("kv_version"),
        other_id=(pl.col("sampled_id") != pl.col("token_id")).cast(pl.Int64),
        earlier=pl.col(earlier).cast(pl.Float64),
        later=pl.col(later).cast(pl.Float64),
    ).filter(pl.col("mask").fill_null(True))


def _evidence(parts: Sequence[pl.DataFrame], history: History | None, tokens: Mapping[int, float]) -> Evidence:
    """tokens: number of tokens with a finite log-ratio at each step, of which the parts may hold a sample."""
    if not parts:
        empty = np.zeros(0)
        return Evidence(empty, empty, empty.astype(np.int64), empty.astype(np.int64), {}, {}, history)
    offsets = np.cumsum([0, *(part["row"].to_numpy().max() + 1 for part in parts[:-1])])
    frame = pl.concat(
        [part.with_columns(pl.col("row") + int(offset)) for part, offset in zip(parts, offsets, strict=True)],
        how="diagonal_relaxed",
    )
    known = frame.filter(pl.col("earlier").is_finite() & pl.col("later").is_finite())
    facts = {"step": known["step"].to_numpy(), "length": known["length"].to_numpy()}
    for fact, column in NUMBERS.items():
        if not known[column].has_nulls() and len(known):
            facts[fact] = known[column].cast(pl.Int64).to_numpy()
    if known["entropy"].null_count() < len(known):
        facts["entropy"] = known["entropy"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    if known["router_agreement"].null_count() < len(known):
        facts["router"] = known["router_agreement"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    partial = {fact for fact, column in NUMBERS.items() if 0 < known[column].null_count() < len(known)}
    names = {}
    for fact, column in LABELS.items():
        if known[column].null_count() < len(known):
            distinct = known[column].drop_nulls().unique().sort()
            names[fact] = tuple(distinct.to_list())
            code = known[column].replace_strict(distinct, pl.int_range(len(distinct), eager=True), default=-1)
            facts[fact] = code.cast(pl.Int64).to_numpy()
    return Evidence(
        known["earlier"].to_numpy(), known["later"].to_numpy(), known["row"].cast(pl.Int64).to_numpy(),
        known["position"].cast(pl.Int64).to_numpy(), facts, names, history, len(frame) - len(known),
        _weight(known, tokens), len(known) < sum(tokens.values()), partial=frozenset(partial),
    )  # fmt: skip


def _weight(known: pl.DataFrame, tokens: Mapping[int, float]) -> Floats | None:
    """Tokens that each token stands for, relative to the mean; None if all stand for as many.

    A token stands for those that had the same chance to be read. The tokens of a step then stand for all of that step.
    """
    weight = pl.col("stands") / pl.col("inclusion_probability").cast(pl.Float64).fill_null(1.0)
    whole = pl.col("step").replace_strict(tokens, default=None, return_dtype=pl.Float64) / pl.col("w").sum().over(
        "step"
    )
    own = known.select("step", w=weight).select(pl.col("w") * whole.fill_null(1.0)).to_series().to_numpy()
    return None if not len(own) or np.ptp(own) <= SAME * own.max() else own / own.mean()
