"""The Corrections page: the effect of corrections on the weights, the best one, and its configuration for a trainer."""

from collections.abc import Iterator, Sequence
from math import isnan

import polars as pl
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from ratioscope.ingest.analysis.copy_facts import judged_first
from ratioscope.ingest.jobs.correction_results import CorrectionResults
from ratioscope.ingest.jobs.step_ledger import Digests
from ratioscope.ingest.run import Run
from ratioscope.metrics.corrections.advice import advice, risk_per_step
from ratioscope.metrics.corrections.correction import WeightedGap, weighted_gap
from ratioscope.metrics.corrections.threshold import Threshold
from ratioscope.metrics.distribution import Histogram
from ratioscope.record import GAPS, sides

from ....figures.html.comparison import COLUMNS, TableRow, comparison_table
from ....figures.weights_before_after import weights_before_after
from ....pages.cause_line import cause_line
from ....pages.scope import Scope, Steps
from ....pages.view import CacheRequest, View
from ....presentation.digits import count
from ....presentation.escape import streamlit_label as label
from ....presentation.sentence import capital
from ...blocks_drawn import READABLE, drawn
from ...model.jobs import jobs
from ...panels.charts import appearance, draw, last_appearance, numbers_behind
from ...panels.choices import dropdown
from ...panels.layout import columns
from .charts import charts_to_prefetch, comparison_charts
from .config import trainer_config
from .controls import DEFAULT, comparison_controls
from .entries import Entry, comparison_of
from .job import comparison_job
from .outcomes import (
    NOTHING,
    CorrectionOutcome,
    OutcomeSource,
    effects_to_prefetch,
    needs_rows,
    on_common_steps,
    outcome,
)
from .threshold import threshold_panel

DRIFT = (
    "**Drift has no importance weights.** Its log-ratio is current − old, but the tokens were sampled from rollout, not from "
    "old, so exp(drift) is not an importance weight. Trainers use it in the PPO clip inside the loss; the page Metrics shows "
    "the share of tokens outside 0.8–1.2. Corrections apply to the gap **mismatch**, or to **total** where the trainer has no "
    "old log-probs."
)

NO_SAMPLER = (
    "**{gap} has no importance weights.** The tokens were sampled from rollout, not from {side}. Corrections apply to gaps that"
    " begin at rollout."
)


def render(scope: Scope) -> None:
    gap = weighted_gap(scope.gap)
    if gap is None:
        st.markdown(
            DRIFT if scope.gap in GAPS else NO_SAMPLER.format(gap=label(scope.gap), side=label(sides(scope.gap)[0]))
        )
        return
    steps = scope.range
    source = _source(scope.view, gap, steps)
    chosen = len(scope.recorded)
    if not chosen:
        st.caption("The run has no steps in the chosen range.")
        return
    advised = st.container(key="advised")
    comparison = comparison_controls()
    if comparison.entries:
        _compare(scope, source, comparison.entries, chosen, advised)
    else:
        st.caption("Nothing is compared. Add a threshold, a standard correction, a preset or your own configuration.")
    drawer = st.expander("try one threshold", key="try", on_change="rerun", bind="query-params")
    if drawer.open:
        with drawer:
            threshold_panel(source)


def prefetch(view: View) -> Iterator[CacheRequest]:
    """Requests for the default corrections of the default gap; then for their charts, which are drawn from them."""
    gap = weighted_gap(next(iter(view.of(judged_first)), ""))
    if gap is None:
        return
    source, entries = _source(view, gap, Steps().of(view.steps)), comparison_of(DEFAULT).entries
    yield from effects_to_prefetch(source, entries)
    computed = [outcome(source, entry, _ledger(view, gap, entry)) for entry in entries]
    yield from charts_to_prefetch(view, computed, last_appearance())


def _source(view: View, gap: WeightedGap, steps: range) -> OutcomeSource:
    return OutcomeSource(view, gap, steps, view.of(_digests, gap), view.of(_digests, ""))


def _digests(run: Run, gap: str) -> Digests:
    return run.row_digests(gap=gap)


def _compare(
    scope: Scope, source: OutcomeSource, entries: Sequence[Entry], chosen: int, advised: DeltaGenerator
) -> None:
    """The comparison. advised: the place of the advice, at the top of the page."""
    ledgers = [_ledger(scope.view, source.gap, entry) for entry in entries]
    wanted = [ledger for ledger in ledgers if ledger is not None]
    if wanted:
        comparison_job(scope, source, wanted, chosen)
    computed = [outcome(source, entry, ledger) for entry, ledger in zip(entries, ledgers, strict=True)]
    outcomes, common = on_common_steps(source, computed, ledgers)
    with advised:
        _advise(scope, source, outcomes, common)
    _table(outcomes, common, chosen)
    comparison_charts(scope, outcomes)
    shown = _one_of(outcomes)
    left, right = columns(2, "shown")
    with left:
        _weights(source, outcomes, shown, common)
    with right:
        st.markdown("**In your trainer's syntax**")
        trainer_config(shown.entry, source.gap, str(scope.view.run.info.get("trainer") or ""))
    numbers_behind(lambda: _numbers(outcomes), "lab_numbers")


def _ledger(view: View, gap: WeightedGap, entry: Entry) -> CorrectionResults | None:
    return jobs().ledger(view.path, entry.correction(gap)) if needs_rows(entry) else None


def _advise(scope: Scope, source: OutcomeSource, outcomes: Sequence[CorrectionOutcome], common: Sequence[int]) -> None:
    """The best of the compared corrections, in the words of the run's verdict."""
    frame = scope.view.metrics(gap=source.gap)
    name = f"{source.gap}/sequences"
    sizes = frame.select("step", sequences=pl.col(name).cast(pl.Float64)) if name in frame.columns else None
    if sizes is None or not common:
        return
    fair = [each for each in outcomes if each.over == "tokens" and len(each.steps) and each.gap == source.gap]
    risks = {each.entry.name: risk_per_step(each.at(common), sizes) for each in fair if each.entry.text != "none"}
    nothing = outcome(source, Entry("none", "no correction", NOTHING), None)
    recommendation = advice(risks, risk_per_step(nothing.at(common), sizes), scope.view.verdict())
    st.markdown(f"#### {label(capital(recommendation.title), 200)} :small[· {recommendation.confidence} confidence]")
    unranked = _unranked(len(outcomes) - len(fair))
    st.caption(f"{label(recommendation.why, 900)}{unranked}", help=_risk(len(common)), width=READABLE)
    drawn(cause_line, scope)


def _unranked(left_out: int) -> str:
    if not left_out:
        return ""
    return (
        f" {count(left_out, 'correction')} could not be ranked: the effect on the tokens of this gap is not known yet."
    )


def _risk(steps: int) -> str:
    """The meaning of the advice's risk."""
    return (
        f"Risk is bias² + 1 / (ESS × sequences of a step), averaged over {count(steps, 'step')}: by convention an estimate "
        "of the squared error of a step's gradient."
    )


def _table(outcomes: Sequence[CorrectionOutcome], common: Sequence[int], chosen: int) -> None:
    fair = [each.over == "tokens" and each.gap == outcomes[0].gap for each in outcomes]
    rows = [
        TableRow(each.entry.name, _over(each, common), each.whole, _note(each), is_fair and each.entry.text != "none")
        for each, is_fair in zip(outcomes, fair, strict=True)
    ]
    st.html(comparison_table(rows, theme=appearance()))
    steps = f"{count(len(common), 'step')}" + (
        f" of {chosen:,} chosen, those that every correction has" if len(common) != chosen else ""
    )
    st.caption(
        f"over {steps} · w: weight, v: weight after correction · means over tokens unless a row shows sequences · "
        "◆ best in its column, among corrections over tokens of one gap"
    )


def _over(each: CorrectionOutcome, common: Sequence[int]) -> str:
    rows = each.at(common)
    size = int(rows["weights"].sum()) if len(rows) else 0
    return count(size, "token" if each.over == "tokens" else "sequence") if size else "–"


def _note(each: CorrectionOutcome) -> str:
    notes = []
    if each.source == "rows":
        notes.append(f"token rows of {len(each.steps):,} of {count(each.possible, 'step')}" if each.possible else "")
        notes.append("an estimate: the budget kept a sample of the rows" if each.sampled else "")
    elif each.over == "sequences":
        notes.append("over sequences, because no step has token rows")
    if not each.exact:
        notes.append("intervals: a bound lies between histogram edges")
    if each.source == "rows" and len(each.steps):
        notes.append(f"uses {each.gap}")
    notes.append(each.reason and f"not available, because {each.reason}")
    if each.source == "rows" and not len(each.steps) and not each.reason:
        notes.append("not computed yet")
    return " · ".join(note for note in notes if note)


def _one_of(outcomes: Sequence[CorrectionOutcome]) -> CorrectionOutcome:
    """The picker of the correction whose weights and configuration are shown."""
    names = {each.entry.text: each.entry.name for each in outcomes}
    usual = outcomes[1] if len(outcomes) > 1 and outcomes[0].entry.text == "none" else outcomes[0]
    chosen = dropdown(
        "correction to show", list(names), "shown", default=usual.entry.text, shown=names.__getitem__, width=480
    )
    return next(each for each in outcomes if each.entry.text == chosen)


def _weights(
    source: OutcomeSource, outcomes: Sequence[CorrectionOutcome], shown: CorrectionOutcome, common: Sequence[int]
) -> None:
    level = shown.entry.made.level if isinstance(shown.entry.made, Threshold) and shown.over == "sequences" else "token"
    before = source.histogram(level, common)
    unit = "token" if level == "token" else "sequence"
    if shown.left is None:
        st.caption(
            f"The weights after {label(shown.entry.name, 100)} are not available, because "
            f"{label(shown.reason or 'they were not computed yet', 300)}."
        )
        return
    place = [each.entry.text for each in outcomes].index(shown.entry.text)
    draw(
        weights_before_after(
            before,
            shown.left,
            0.0 if isnan(shown.removed) else shown.removed,
            shown.entry.name,
            place=place,
            unit=unit,
            notes=("after: estimated from the sample of rows that the budget kept",) if shown.sampled else (),
            theme=appearance(),
        ),
        "lab_weights",
        f"Weights before and after {shown.entry.name}",
        numbers=lambda: _counts(before, shown),
    )


def _counts(before: Histogram, shown: CorrectionOutcome) -> pl.DataFrame:
    """Number of weights in each bucket of log-weights, before and after."""
    parts = [(before, "before"), *([(shown.left, "after")] if shown.left is not None else [])]
    return pl.concat(
        pl.DataFrame({"when": [when] * len(part.counts), "low": part.low, "high": part.high, "count": part.counts})
        for part, when in parts
    )


def _numbers(outcomes: Sequence[CorrectionOutcome]) -> pl.DataFrame:
    rows = []
    for each in outcomes:
        values = each.whole or {}
        found = {column.name: values[column.name].low for column in COLUMNS if column.name in values}
        rows.append({"correction": each.entry.name, "over": each.over, "gap": each.gap, "from": each.source, **found})
    return pl.DataFrame(rows, infer_schema_length=None)
