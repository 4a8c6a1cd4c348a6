"""The Staleness page: the part of the gap that comes from old weights, the update's part, and the settings of both sides.

The gap by version lag in words and as a table: on the page Staleness and on static pages.
"""

import math
from collections.abc import Iterator
from functools import partial

import polars as pl

from ratioscope.ingest.analysis.comparability import ComparedSetting, comparability
from ratioscope.ingest.analysis.evidence import MOST_STEPS
from ratioscope.ingest.analysis.gap_history import gap_size
from ratioscope.ingest.analysis.slice_over_steps import SINGLE, lag_over_steps, lag_table
from ratioscope.ingest.run import Run
from ratioscope.metrics.analysis.slice_parts import MOST_NUMERIC, size_metric, slice_parts
from ratioscope.metrics.analysis.staleness import Staleness, decomposition, lagged
from ratioscope.metrics.analysis.staleness import staleness as share_of_lag
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.metric import SAMPLED, Metric
from ratioscope.record import GAPS, kin

from ..blocks import Beside, Block, Cards, Chart, Code, Column, Heading, Markup, Paragraph, Table
from ..figures.drawing.definition import metric_head
from ..figures.drawing.plotly_objects import go
from ..figures.gap_parts import gap_parts
from ..figures.html.both_sides import both_sides
from ..figures.lags import lag_shares, lags_over_steps
from ..figures.slice_bars import slice_bars
from ..presentation.digits import count, digits, percent, plus_minus
from ..presentation.theme import THEMES, ThemeName
from ..presentation.value_text import number_format
from ..presentation.weights_table import NO_DIGESTS, weights_table
from .scope import NO_STEPS, Scope
from .slice_absences import absences
from .view import asked_gap

RECORD = (
    "collector.log(",
    "    ...,",
    "    rollout_versions=versions,     # of the weights that sampled: one per sequence, or one per token",
    "    trainer_version=version,       # of the weights that computed old (else current) log-probs",
    ")",
)
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
FEW = 12
"""Most lags of a table that shows all its rows."""

OF_THE_UPDATE = (
    "Drift measures the trainer's own update. Old weights in the engine do not change it; see mismatch and total."
)


def staleness(scope: Scope) -> Iterator[Block]:
    if not scope.recorded:
        yield Paragraph(NO_STEPS, "info")
        return
    if absent := absences(scope.view).get("lag"):
        yield Paragraph(f"By version lag: not available, {absent}.", "absent")
        yield Code(RECORD, "python")
    else:
        yield from _lags(scope)
    yield from _parts(scope)
    yield Heading("Did the weights arrive?")
    frame = scope.view.of(weights_table)
    for words in frame.filter(pl.col("state") == "differs")["finding"]:
        yield Paragraph(words, "warning")
    yield Table("weights of the engines", frame, NO_DIGESTS)
    yield Heading("Do engine and trainer use the same settings?")
    yield Markup(partial(both_sides, scope.view.of(_compared)))
    yield Paragraph(TOLD, "muted")


def answers(scope: Scope) -> Iterator[tuple[str, str]]:
    """The answers of the page, on the age of the weights and on the settings, each with its name and in a few words."""
    gap, view = scope.gap, scope.view
    absent = absences(view).get("lag")
    if absent or kin(gap) not in SAMPLED:
        yield "weights", f"not known, {absent}" if absent else OF_THE_UPDATE
    else:
        parts, (found, answer) = _by_lag(scope), _explained(scope)
        only = " ".join(single_lag(str(parts["label"][0]), is_sampled=True)) if len(parts) == 1 else ""
        yield "weights", only or answer or f"not known, because {found.reason}"
    compared = view.of(_compared)
    known = [each for each in compared if each.state != "unknown"]
    differs = [each.name for each in known if each.state == "differs"]
    words = (
        f"{len(differs)} of {len(known)} on record differ: {', '.join(differs)}"
        if differs
        else "none on record differs"
    )
    unknown = (
        f"; {len(compared) - len(known)} of {len(compared)} are not on record" if len(known) < len(compared) else ""
    )
    yield "settings", f"{words}{unknown}" if known else f"not known, because none of {len(compared)} is on record"


def _lags(scope: Scope) -> Iterator[Block]:
    view, gap, metric = scope.view, scope.gap, _size(scope)
    if f"{gap}/{metric.name}" not in view.of(lag_table, scope.chosen, *asked_gap(gap)).columns:
        yield Paragraph(f"No token of {gap} has a known version lag.", "muted")
        return
    if kin(gap) in SAMPLED:
        yield from _share(scope)
    else:
        yield Paragraph(NO_ENGINE if gap not in GAPS else OF_THE_UPDATE, "muted")
    parts = _by_lag(scope)
    if len(parts) == 1:
        fact, follows = single_lag(str(parts["label"][0]), is_sampled=kin(gap) in SAMPLED)
        yield Paragraph(follows, head=fact)
        return
    bars = f"{gap} {metric.name} by version lag: {count(len(parts), 'lag')}"
    yield Beside("staleness", ((Chart("lag_bars", bars, _bars, (scope,)),), tuple(_lag_table(scope, parts))))
    course = view.of(lag_over_steps, scope.chosen, *asked_gap(gap))
    of_gap = [name for name in course.columns if "/" not in name or name.startswith(f"{gap}/")]
    lines = f"{gap} {metric.name} by version lag over the steps"
    yield Chart("lags_over_steps", lines, _over_steps, (scope,), wide=True, numbers=lambda: course.select(of_gap))
    shares = f"Share of the tokens at each version lag, over {course['step'].n_unique()} points"
    numbers = partial(course.select, "step", "last", "lag", f"{gap}/tokens")
    yield Chart("lag_shares", shares, _shares, (scope,), wide=True, numbers=numbers)


def _size(scope: Scope) -> Metric:
    return BY_NAME[size_metric(scope.gap)]


def _lag_table(scope: Scope, parts: pl.DataFrame) -> Iterator[Block]:
    metric, rows = _size(scope), lag_rows(parts, _size(scope).name)
    columns = {
        metric.name: Column(metric.title, number_format(rows[metric.name]), metric.name),
        "N tokens": Column(format="localized"),
        "% of tokens": Column(format="%.2f"),
        "% of the gap": Column(format="%.2f"),
        "± se": Column("± se", number_format(rows["± se"]), "standard error"),
    }
    tallest = None if len(parts) < FEW else 430
    title = f"{scope.gap} by version lag"
    yield Table(title, rows, columns=columns, wide_only=("N tokens",), tallest=tallest)
    if len(parts) < scope.view.metrics(("lag",), scope.chosen, scope.gap).height:
        yield Paragraph(f"Lags are grouped into buckets, because the run has more than {SINGLE} of them.", "muted")


def _by_lag(scope: Scope) -> pl.DataFrame:
    """slice_parts of the lags, ascending."""
    return lag_parts(scope.view.of(lag_table, scope.chosen, *asked_gap(scope.gap)), scope.gap)


def _bars(scope: Scope, theme: ThemeName) -> go.Figure:
    metric = _size(scope)
    return slice_bars(
        _by_lag(scope),
        metric,
        scope.gap,
        metric_head(metric, scope.gap, THEMES[theme], "by version lag"),
        overall=scope.view.whole(f"{scope.gap}/{metric.name}", scope.chosen),
        limits=scope.limits(metric),
        notes=("trainer version − rollout version",),
        theme=THEMES[theme],
    )


def _over_steps(scope: Scope, theme: ThemeName) -> go.Figure:
    course, metric = scope.view.of(lag_over_steps, scope.chosen, *asked_gap(scope.gap)), _size(scope)
    events = scope.view.events()
    return lags_over_steps(course, metric, scope.gap, limits=scope.limits(metric), events=events, theme=THEMES[theme])


def _shares(scope: Scope, theme: ThemeName) -> go.Figure:
    course = scope.view.of(lag_over_steps, scope.chosen, *asked_gap(scope.gap))
    return lag_shares(course, scope.gap, events=scope.view.events(), theme=THEMES[theme])


def _share(scope: Scope) -> Iterator[Block]:
    """The part of the gap that old weights explain. If every token has a lag, the error of all tokens is the run's own."""
    gap = scope.gap
    found, answer = _explained(scope)
    tokens, error = (scope.view.whole(f"{gap}/{name}", scope.chosen) for name in ("tokens", f"{size_metric(gap)}_se"))
    if answer:
        yield Paragraph(answer, "answer")
    yield Cards(lag_facts(found, error if tokens == found.tokens else None), narrowest=170)
    yield Paragraph(lag_note(found), "muted")
    if found.reason:
        yield Paragraph(f"Share explained by lag: not available, because {found.reason}.", "muted")


def _explained(scope: Scope) -> tuple[Staleness, str]:
    """The part of the gap that old weights explain, and the answer in one sentence; empty where it is not known."""
    found = share_of_lag(lagged(scope.view.metrics(("lag",), scope.chosen, scope.gap), scope.gap))
    size = scope.view.of(gap_size, scope.gap, scope.chosen)
    return found, lag_answer(found, "" if size is None else size.over)


def _parts(scope: Scope) -> Iterator[Block]:
    parts = scope.view.of(_decomposed, scope.chosen)
    if parts.is_empty():
        why = f"total = mismatch + drift: not available, because no step has all three gaps; {THREE}."
        yield Paragraph(why, "muted")
        return
    label = f"Mean log-ratios of total, mismatch and drift over {count(len(parts), 'step')}"
    yield Chart("gap_parts", label, _parts_drawn, (scope,), wide=True, numbers=lambda: parts)
    yield Paragraph(ADDS, "muted")


def _parts_drawn(scope: Scope, theme: ThemeName) -> go.Figure:
    return gap_parts(scope.view.of(_decomposed, scope.chosen), events=scope.view.events(), theme=THEMES[theme])


def _decomposed(run: Run, steps: range | None) -> pl.DataFrame:
    return decomposition(run.metrics(("step",), steps=steps))


def _compared(run: Run) -> tuple[ComparedSetting, ...]:
    return comparability(run.info)


def lag_parts(by_lag: pl.DataFrame, gap: str) -> pl.DataFrame:
    """slice_parts of the lags, ascending. by_lag: as lag_table returns it."""
    parts = slice_parts(by_lag, "lag", gap, size_metric(gap), most=MOST_NUMERIC)
    places = by_lag.select(key="lag", at="first_lag")
    return parts.join(places, on="key", how="left").sort("at", nulls_last=True).drop("at")


def single_lag(lag: str, *, is_sampled: bool) -> tuple[str, str]:
    """A sentence on the only lag of a run, and what follows from it; a chart by lag would have one bar."""
    every = f"Every token has lag {lag}."
    if not is_sampled:
        return every, ""
    if lag == "0":
        return (
            every,
            "The weights that sampled were never older than the trainer's, so age explains no part of the gap.",
        )
    return every, "There is no lag 0 to compare with, so the part of the gap that comes from old weights is not known."


def lag_answer(staleness: Staleness, over: str = "") -> str:
    """The part of the gap that old weights explain, in one sentence; empty where it is not known. over: its steps, in words."""
    if staleness.reason or staleness.excess == 0:
        return ""
    if staleness.explained <= 2 * staleness.explained_error:
        return "Old weights explain no part of the gap beyond its error."
    sizes = f"K3 is {digits(staleness.value)} nats/token, and {digits(staleness.fresh)} at lag 0"
    return (
        f"Old weights explain {_lag_share(staleness.explained, staleness.explained_error)} of the gap{over}: {sizes}."
    )


def lag_facts(staleness: Staleness, error: float | None = None) -> tuple[tuple[str, str, str], ...]:
    """Name, value and meaning of the gap at lag 0, the excess over it and the share that lag explains.

    error: of all tokens together; None takes that of the tokens with a known lag.
    """
    return (
        (
            "K3 of all tokens",
            _spelled(staleness.value, staleness.value_error if error is None else error),
            "size of the gap: mean K3 over all tokens with a known lag, in nats/token",
        ),
        (
            "at lag 0",
            _spelled(staleness.fresh, staleness.fresh_error),
            "the gap that remains when engine and trainer hold the same weights: numerics",
        ),
        (
            "excess over lag 0",
            _spelled(staleness.excess, staleness.excess_error),
            "K3 of all tokens minus K3 at lag 0; a negative value means no excess",
        ),
        (
            "explained by lag",
            _lag_share(staleness.explained, staleness.explained_error),
            "share of the gap that old weights explain: excess / K3 of all tokens. This assumes the same numerics at every lag."
            " Other changes between these steps are counted too.",
        ),
    )


def lag_note(staleness: Staleness) -> str:
    """The unit, the errors and the number of tokens behind lag_facts, and why a diagnosis has other numbers."""
    size = count(staleness.tokens, "token")
    return (
        f"K3 in nats/token ± one standard error · N = {size} with a known lag · errors assume fixed token counts per lag and"
        f" independent lags. The diagnosis names the steps of its share: it reads at most {MOST_STEPS} steps, the worst ones"
        " among them, and compares tokens of equal probability."
    )


def lag_rows(parts: pl.DataFrame, metric: str) -> pl.DataFrame:
    """The table beside the bars. parts: as lag_parts returns them."""
    return parts.select(
        pl.col("label").alias("lag"),
        pl.col("tokens").cast(pl.Int64).alias("N tokens"),
        (100 * pl.col("share_of_tokens")).round(2).alias("% of tokens"),
        pl.col("value").alias(metric),
        pl.col("error").alias("± se"),
        (100 * pl.col("share_of_gap")).round(2).alias("% of the gap"),
    )


def _spelled(value: float, error: float) -> str:
    return "–" if math.isnan(value) else plus_minus(value, None if math.isnan(error) else error)


def _lag_share(value: float, error: float) -> str:
    if math.isnan(value) or math.isnan(error):
        return percent(value)
    return f"{plus_minus(100 * value, 100 * error)}%"
