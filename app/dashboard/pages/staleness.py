"""The Staleness page: the part of the gap that comes from old weights, the update's part, and the settings of both sides."""

import plotly.graph_objects as go
import polars as pl
import streamlit as st

from ratioscope.ingest.analysis.comparability import ComparedSetting, comparability
from ratioscope.ingest.analysis.lag_over_steps import SINGLE, lag_over_steps, lag_table
from ratioscope.ingest.run import Run
from ratioscope.metrics.analysis.decomposition import decomposition
from ratioscope.metrics.analysis.slice_parts import size_metric
from ratioscope.metrics.analysis.staleness import Staleness, staleness
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.metric import SAMPLED
from ratioscope.record import GAPS, kin

from ...browser.code import code
from ...browser.listener import is_narrow
from ...figures.drawing.head import metric_head
from ...figures.gap_parts import gap_parts
from ...figures.html.both_sides import both_sides
from ...figures.lags import lag_shares, lags_over_steps
from ...figures.slice_bars import slice_bars
from ...presentation.digits import count
from ...presentation.escape import streamlit_label as label
from ...presentation.lag_words import (
    OF_THE_UPDATE,
    lag_answer,
    lag_facts,
    lag_note,
    lag_parts,
    lag_rows,
    lagged,
    single_lag,
)
from ...presentation.number_columns import number_format
from ...presentation.theme import THEMES, ThemeName
from ...presentation.weights_table import NO_DIGESTS, weights_table
from ..model.scope import Scope
from ..model.slice_absences import absences
from ..model.view import asked_gap
from ..panels.charts import appearance, draw, number_column, table
from ..panels.fact_cards import fact_cards
from ..panels.layout import columns

RECORD = """collector.log(
    ...,
    rollout_versions=versions,     # of the weights that sampled: one per sequence, or one per token
    trainer_version=version,       # of the weights that computed old (else current) log-probs
)"""
ADDS = "Mean log-ratios add up: total = mismatch + drift. K3 and chi-squared do not add up, so this chart does not use them."
THREE = "log rollout, old and current log-probs of the same tokens"
TOLD = (
    "These settings come from the recorded configuration. An unknown setting may differ. To fill its row, pass the `config` that"
    " it names, with your own values, to the collector or to `attach`."
)

NO_ENGINE = (
    "This gap does not begin at the engine. Old weights in the engine do not change it; see mismatch, or the gap of rollout to"
    " the same reading."
)


def render(scope: Scope) -> None:
    if not scope.recorded:
        st.info("The run has no steps in this range.")
        return
    absent = absences(scope.view).get("lag")
    if absent:
        st.markdown(f":material/info: By version lag: not available, {label(absent)}.")
        code(RECORD, "record", language="python")
    else:
        _lags(scope)
    _parts(scope)
    _weights(scope)
    _sides(scope)


def _lags(scope: Scope) -> None:
    view, gap, chosen, theme = scope.view, scope.gap, scope.chosen, appearance().name
    metric = BY_NAME[size_metric(gap)]
    by_lag = view.of(lag_table, chosen, *asked_gap(gap))
    if f"{gap}/{metric.name}" not in by_lag.columns:
        st.caption(f"No token of {gap} has a known version lag.")
        return
    course = view.of(lag_over_steps, chosen, *asked_gap(gap))
    if kin(gap) in SAMPLED:
        _cards(scope, staleness(lagged(view.metrics(("lag",), chosen, gap), gap)))
    else:
        st.caption(NO_ENGINE if gap not in GAPS else OF_THE_UPDATE)
    parts = _by_lag(scope)
    if len(parts) == 1:
        fact, follows = single_lag(label(str(parts["label"][0]), 40), is_sampled=kin(gap) in SAMPLED)
        st.markdown(f":material/info: **{fact}** {follows}")
        return
    _beside_the_table(scope, parts)
    draw(
        view.figure(_over_steps, scope, theme),
        "lags_over_steps",
        f"{gap} {metric.name} by version lag over the steps",
        numbers=lambda: course.select(name for name in course.columns if "/" not in name or name.startswith(f"{gap}/")),
    )
    draw(
        view.figure(_shares, scope, theme),
        "lag_shares",
        f"Share of the tokens at each version lag, over {course['step'].n_unique()} points",
        numbers=lambda: course.select("step", "last", "lag", f"{gap}/tokens"),
    )


def _beside_the_table(scope: Scope, parts: pl.DataFrame) -> None:
    """The bars of the lags, and beside them their numbers."""
    view, gap = scope.view, scope.gap
    metric = BY_NAME[size_metric(gap)]
    left, right = columns(2, "staleness")
    with left:
        alt = f"{gap} {metric.name} by version lag: {count(len(parts), 'lag')}"
        draw(view.figure(_bars, scope, appearance().name), "lag_bars", alt)
    with right:
        rows = lag_rows(parts, metric.name)
        table(
            rows.drop(["N tokens"] if is_narrow() else []),  # the chart above has it
            f"{gap} by version lag",
            height="content" if len(parts) < 12 else 430,
            column_config={
                metric.name: number_column(metric.title, metric.name, number_format(rows[metric.name])),
                "N tokens": st.column_config.NumberColumn(format="localized"),
                **{share: st.column_config.NumberColumn(format="%.2f") for share in ("% of tokens", "% of the gap")},
                "± se": number_column("± se", "standard error", number_format(rows["± se"])),
            },
        )
        if len(parts) < view.metrics(("lag",), scope.chosen, gap).height:
            st.caption(f"Lags are grouped into buckets, because the run has more than {SINGLE} of them.")


def _by_lag(scope: Scope) -> pl.DataFrame:
    """slice_parts of the lags, ascending."""
    return lag_parts(scope.view.of(lag_table, scope.chosen, *asked_gap(scope.gap)), scope.gap)


def _bars(scope: Scope, theme: ThemeName) -> go.Figure:
    gap = scope.gap
    metric = BY_NAME[size_metric(gap)]
    return slice_bars(
        _by_lag(scope),
        metric,
        gap,
        metric_head(metric, gap, THEMES[theme], "by version lag"),
        overall=scope.view.whole(f"{gap}/{metric.name}", scope.chosen),
        limits=scope.limits(metric),
        notes=("trainer version − rollout version",),
        theme=THEMES[theme],
    )


def _over_steps(scope: Scope, theme: ThemeName) -> go.Figure:
    metric, events = BY_NAME[size_metric(scope.gap)], scope.view.events()
    course, limits = scope.view.of(lag_over_steps, scope.chosen, *asked_gap(scope.gap)), scope.limits(metric)
    return lags_over_steps(course, metric, scope.gap, limits=limits, events=events, theme=THEMES[theme])


def _shares(scope: Scope, theme: ThemeName) -> go.Figure:
    course = scope.view.of(lag_over_steps, scope.chosen, *asked_gap(scope.gap))
    return lag_shares(course, scope.gap, events=scope.view.events(), theme=THEMES[theme])


def _cards(scope: Scope, lag_share: Staleness) -> None:
    """The answer, and cards with the numbers behind it. If every token has a lag, the error of
    all tokens is the run's own.
    """
    tokens, error = (
        scope.view.whole(f"{scope.gap}/{name}", scope.chosen) for name in ("tokens", f"{size_metric(scope.gap)}_se")
    )
    own = error if tokens == lag_share.tokens else None
    if answer := lag_answer(lag_share):
        st.markdown(f"#### {answer}")
    fact_cards(lag_facts(lag_share, own), narrowest=170)
    st.caption(lag_note(lag_share))
    if lag_share.reason:
        st.caption(f"Share explained by lag: not available, because {lag_share.reason}.")


def _parts(scope: Scope) -> None:
    parts = scope.view.of(_decomposed, scope.chosen)
    if parts.is_empty():
        st.caption(f"total = mismatch + drift: not available, because no step has all three gaps; {THREE}.")
        return
    alt = f"Mean log-ratios of total, mismatch and drift over {count(len(parts), 'step')}"
    draw(scope.view.figure(_parts_drawn, scope, appearance().name), "gap_parts", alt, numbers=lambda: parts)
    st.caption(ADDS)


def _parts_drawn(scope: Scope, theme: ThemeName) -> go.Figure:
    return gap_parts(scope.view.of(_decomposed, scope.chosen), events=scope.view.events(), theme=THEMES[theme])


def _decomposed(run: Run, steps: range | None) -> pl.DataFrame:
    return decomposition(run.metrics(("step",), steps=steps))


def _weights(scope: Scope) -> None:
    st.subheader("Did the weights arrive?", anchor=False)
    frame = scope.view.of(weights_table)
    if frame.is_empty():
        st.caption(NO_DIGESTS)
        return
    if wrong := frame.filter(pl.col("state") == "differs")["finding"].to_list():
        st.warning("  \n".join(label(words, 600) for words in wrong), icon=":material/warning:")
    table(frame, "weights of the engines")


def _sides(scope: Scope) -> None:
    st.subheader("Do engine and trainer use the same settings?", anchor=False)
    st.html(both_sides(scope.view.of(_compared), theme=appearance()))
    st.caption(TOLD)


def _compared(run: Run) -> tuple[ComparedSetting, ...]:
    return comparability(run.info)
