"""What figures draw: the numbers they were given, all of them, with their names, and nothing that a text in the data could do."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from itertools import product
from typing import Any, get_args

import numpy as np
import plotly.graph_objects as go
import polars as pl
import pytest
from support.frames import distribution, grades, hostile_texts, metric_frame, notes, said_in, tokens, traces
from support.hostile import HOSTILE

from ratioscope.app import figures
from ratioscope.app.figures.drawing.cells import cells
from ratioscope.app.figures.drawing.weight_axis import SLICES
from ratioscope.app.figures.html.cards import metric_cards, verdict_line
from ratioscope.app.figures.html.tinted_text import tint
from ratioscope.app.figures.ribbon import STRIP, add_severity, worst_of_buckets
from ratioscope.app.figures.token_heat import MASKED, token_heat_map
from ratioscope.app.presentation.answer import Answer
from ratioscope.app.presentation.metric_places import MetricPlace, metrics_at
from ratioscope.app.presentation.theme import DARK, LIGHT, THEMES, Theme
from ratioscope.ingest.analysis.sequence_lines import TokenHeat
from ratioscope.metrics.analysis.token_values import BY_NAME as TOKEN_VALUES
from ratioscope.metrics.definitions.registry import BY_NAME, METRICS
from ratioscope.metrics.distribution import BUCKETS, EDGES, histogram, whole_histogram
from ratioscope.metrics.grading.coverage import MEASURED, Coverage, Known
from ratioscope.metrics.grading.finding import Finding, Severity
from ratioscope.metrics.grading.limits import Limit, limits_of
from ratioscope.record import GAPS

K3 = BY_NAME["kl_k3"]
EVENTS = pl.DataFrame({"step": [3, 9], "event": ["weight_sync", "resume"], "note": ["v2", None], "time": [0.0, 1.0]})
HEAT = TokenHeat(
    pl.DataFrame(
        {"row": [0, 0, 1, 2], "column": [0, 1, 0, 2], "size": [0.3, None, math.inf, 0.01], "place": [0, 0, 1, 2],
         "position": [1, 2, 0, 5], "masked": [False, True, False, False]}),
    sequences=3, per_row=1, per_column=2, tokens=5,
)  # fmt: skip
DRAWN: dict[str, Callable[[Theme], go.Figure]] = {
    "over_steps": lambda theme: figures.metric_over_steps(
        metric_frame(30), K3, "mismatch", limits=limits_of(K3, "mismatch"), events=EVENTS, theme=theme),
    "thinned": lambda theme: figures.metric_over_steps(metric_frame(300), K3, "mismatch", theme=theme, points=50),
    "ribbon": lambda theme: figures.severity_ribbon(grades(["healthy", "act"]), theme=theme),
    "heat_map": lambda theme: figures.log_ratio_heat_map(distribution(range(10)), "mismatch", theme=theme),
    "weights": lambda theme: figures.weight_histogram(histogram([0.1, -0.2]), "mismatch", high=1.05, theme=theme),
    "survival": lambda theme: figures.weight_survival(histogram([0.1, -0.2, 0.0]), "mismatch", "sequence", low=0.9, theme=theme),
    "strip": lambda theme: figures.token_strip(tokens(50), "mismatch", theme=theme),
    "token_heat": lambda theme: token_heat_map(HEAT, hostile_texts()[:3], "mismatch", theme=theme),
}  # fmt: skip

LIVE = {name: theme for name, theme in THEMES.items() if theme.live}


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.parametrize("theme", LIVE.values(), ids=LIVE)
def test_every_figure_is_valid_named_and_of_its_theme(name: str, theme: Theme) -> None:
    figure = DRAWN[name](theme)
    parsed = json.loads(str(figure.to_json()))
    assert parsed["layout"]["title"]["text"]
    assert _layout(figure).template.layout.paper_bgcolor == theme.background
    other = LIGHT if theme.background == DARK.background else DARK
    assert other.panel not in str(figure.to_json()) and theme.panel in str(figure.to_json())


def test_a_metric_says_its_unit_weighting_size_and_band() -> None:
    notes = _notes(DRAWN["over_steps"](LIGHT))
    assert (
        "nats/token" in notes
        and K3.weighting in notes
        and "N ≈ 1,000 tokens a step (median)" in notes
        and "±2 standard errors" in notes
    )


def test_the_line_is_the_metric_and_the_band_two_errors_around_it() -> None:
    frame = metric_frame(20, values=list(np.linspace(1, 2, 20)))
    figure = figures.metric_over_steps(frame, K3, "mismatch")
    line = next(trace for trace in traces(figure) if trace.name == "kl_k3")
    assert list(line.x) == list(range(20)) and list(line.y) == pytest.approx(frame["mismatch/kl_k3"].to_list())
    band = next(trace for trace in traces(figure) if trace.fill == "toself")
    assert max(band.y) == pytest.approx(2 * 1.2) and min(band.y) == pytest.approx(1 * 0.8)
    assert line.customdata[0] == "1 ± 0.1"


def test_missing_steps_break_the_band_and_infinite_ones_are_marked() -> None:
    values = [1.0, 1.1, None, 1.2, math.inf, 1.3]
    figure = figures.metric_over_steps(metric_frame(6, values=values), K3, "mismatch")
    bands = [trace for trace in traces(figure) if trace.fill == "toself"]
    outlines = [np.split(band.x, np.flatnonzero(np.isnan(band.x))) for band in bands]
    covered = [sorted({x for x in outline if x == x}) for parts in outlines for outline in parts]
    assert covered == [[0.0, 1.0], [3.0], [5.0]] and [band.line.width for band in bands] == [0, 5]
    marks = [trace for trace in traces(figure) if trace.mode == "markers"]
    assert len(marks) == 1 and list(marks[0].x)[:1] == [4.0] and "∞" in marks[0].hovertext[0]


def test_a_thinned_chart_says_so_and_shades_the_extremes() -> None:
    values = [1.0] * 300
    values[137] = 50.0
    figure = figures.metric_over_steps(metric_frame(300, values=values), K3, "mismatch", points=30)
    assert "showing 30 means of 300 steps" in _notes(figure)
    highest = max(float(np.nanmax(np.asarray(trace.y, float))) for trace in traces(figure) if trace.fill == "toself")
    assert highest == pytest.approx(50.0) or _layout(figure).yaxis.ticktext is not None


@pytest.mark.parametrize("values", [[None, None], [math.inf, math.inf], []])
def test_a_metric_without_a_number_says_why(values: list[float | None]) -> None:
    figure = figures.metric_over_steps(metric_frame(len(values), values=values), K3, "mismatch")
    words = said_in(figure)
    assert "because" in words or "infinite" in words


def test_a_frame_without_the_metric_says_so() -> None:
    figure = figures.metric_over_steps(metric_frame(3), BY_NAME["surprisal_gap"], "mismatch")
    assert said_in(figure) == f"not available, because {BY_NAME['surprisal_gap'].absent}"


def test_near_limits_are_drawn_with_their_words_and_far_ones_are_named_below_the_chart() -> None:
    limits = (Limit(0.01, "watch", severity="watch"), Limit(1e6, "act", severity="act"))
    figure = figures.metric_over_steps(metric_frame(60), K3, "mismatch", limits=limits)
    words = [annotation.text for annotation in _layout(figure).annotations]
    assert words == ["?", "■ act ≥ 1·10⁶ ↑", "▲ watch ≥ 0.01"] and len(_layout(figure).shapes) == 2
    low = Limit(-9.0, "ess", worse="below", severity="watch")
    below = _layout(figures.metric_over_steps(metric_frame(60), K3, "mismatch", limits=(low,)))
    assert [annotation.text[-1] for annotation in below.annotations] == ["?", "↓"] and not below.shapes
    for named in (_layout(figure).annotations[1], below.annotations[1]):
        assert (named.y, named.yref, named.yanchor) == (0, "paper", "top"), "no curve is there"


def test_events_are_marked_and_many_share_marks() -> None:
    figure = figures.metric_over_steps(metric_frame(30), K3, "mismatch", events=EVENTS)
    marks = next(trace for trace in traces(figure) if trace.name == "events")
    assert list(marks.x)[:2] == [3, 9] and list(marks.customdata) == ["step 3: weight_sync v2", "step 9: resume"]
    many = pl.DataFrame(
        {"step": range(10_000), "event": ["sync"] * 10_000, "note": [None] * 10_000},
        schema_overrides={"note": pl.String},
    )
    figure = figures.metric_over_steps(metric_frame(100), K3, "mismatch", events=many)
    marks = next(trace for trace in traces(figure) if trace.name == "events")
    assert len(marks.customdata) <= 101 and "and 97 more" in marks.customdata[0] and not _layout(figure).shapes


def test_every_headline_metric_exists_and_ess_limits_are_those_of_its_signal() -> None:
    for place, gap in product(get_args(MetricPlace), GAPS):
        assert all(gap in metric.gaps for metric in metrics_at(place, gap))
    watch, act = limits_of(BY_NAME["ess_token"], "mismatch")
    assert (watch.at, watch.worse) == (0.5, "below") and act.at == pytest.approx(1 / 11)
    assert [limit.at for limit in limits_of(K3, "mismatch")] == [0.01, 0.1]
    assert [limit.reading for limit in limits_of(BY_NAME["pareto_k_token"], "total")] == ["not to be trusted"]
    for metric in METRICS:
        limits_of(metric, metric.gaps[0])


def test_the_ribbon_keeps_the_worst_step_of_a_bucket() -> None:
    severities = ["healthy"] * 1000
    severities[337], severities[338] = "watch", "act"
    rows = worst_of_buckets(grades(severities), 100)
    assert len(rows) == 100 and rows["step"][33] == 338 and (rows["severity"] != "healthy").sum() == 1
    figure = figures.severity_ribbon(grades(severities), bars=100)
    assert "showing 100 bars of N = 1,000 steps" in _notes(figure)
    assert "step 338 ■ act" in traces(figure)[0].customdata[33][0] and max(traces(figure)[0].y) == 3


def test_a_strip_of_severity_stands_below_the_line_and_hides_none_of_it() -> None:
    """On the axis of the marks of events, whose height is 1, in the share of the height that the line leaves free."""
    frame = metric_frame(30)
    for events in (None, EVENTS):
        figure = figures.metric_over_steps(
            frame, K3, "mismatch", limits=limits_of(K3, "mismatch"), events=events, free=STRIP
        )
        low, high = _layout(figure).yaxis.range
        lowest = min(float(np.nanmin(np.asarray(trace.y, float))) for trace in traces(figure) if trace.yaxis is None)
        assert low + STRIP * (high - low) <= lowest
        add_severity(figure, grades(["healthy", "watch", "act"] * 10), LIGHT)
        bars = traces(figure)[-1]
        assert bars.yaxis == "y2" and list(_layout(figure).yaxis2.range) == [0, 1] and max(bars.y) < STRIP
        assert bars.customdata[2][0].startswith("step 2 ■ act")
    bare = figures.metric_over_steps(frame, K3, "mismatch", free=STRIP)
    add_severity(bare, grades([]), LIGHT)
    assert all(trace.type != "bar" for trace in traces(bare)), "no bars without grades"


def test_no_grades_and_one_grade_are_drawn() -> None:
    assert "no step is graded" in said_in(figures.severity_ribbon(grades([])))
    assert list(traces(figures.severity_ribbon(grades(["watch"])))[0].y) == [2]


def test_the_heat_map_holds_every_token_and_leaves_missing_steps_empty() -> None:
    frame = distribution([0, 2, 4, 8])
    figure = figures.log_ratio_heat_map(frame, "mismatch")
    heat = next(trace for trace in traces(figure) if isinstance(trace, go.Heatmap))
    counts = np.asarray(heat.customdata)[:, :, 0]
    assert counts.sum() == 800 and counts.sum(axis=0).tolist() == [200, 200, 200, 0, 200]
    assert list(np.asarray(heat.x)) == [-1, 1, 3, 5, 7, 9] and np.isnan(np.asarray(heat.z)[:, 3]).all()
    assert "N = 800 tokens" in _notes(figure)


def test_a_long_heat_map_adds_the_counts_of_neighbouring_steps() -> None:
    figure = figures.log_ratio_heat_map(distribution(range(1000), tokens=20), "mismatch", columns=100)
    heat = next(trace for trace in traces(figure) if isinstance(trace, go.Heatmap))
    assert np.asarray(heat.z).shape[1] == 100 and np.asarray(heat.customdata)[:, :, 0].sum() == 20_000
    assert "1,000 steps in 100 columns" in _notes(figure)


@pytest.mark.parametrize(
    "values", [[0.0], [0.0, 0.0, 1e-9], [-math.inf, 0.0], [40.0, -40.0, 0.001], [1e-5] * 50 + [3.0]]
)
def test_cells_cover_every_bucket_once_in_order(values: list[float]) -> None:
    part = histogram(values)
    grid = cells(part.buckets, part.counts)
    assert grid.summed(part.buckets, part.counts.astype(float)).sum() == len(values)
    assert (np.diff(grid.places) > 0).all() and np.isfinite(grid.places).all() and (grid.owner[part.buckets] >= 0).all()
    assert (grid.low[1:] == grid.high[:-1]).all()


@pytest.mark.parametrize(("low", "high"), [(0.8, 1.2), (0.5, 2.0), (0.0, 1.005), (0.999, 1.001), (1e-4, 1e4)])
def test_the_weights_beyond_a_cap_are_those_the_histogram_counts(low: float, high: float) -> None:
    x = np.random.default_rng(0).normal(0, 0.3, 5000)
    figure = figures.weight_histogram(histogram(x), "mismatch", low=low, high=high)
    bars = traces(figure)[0]
    marked = np.array([colour == LIGHT.severity["watch"] for colour in bars.marker.color])
    width = np.asarray(bars.width)
    heights = np.where(np.asarray(bars.y) > 0, 10 ** (np.asarray(bars.y) + bars.base), 0)
    shares = heights * width / width.sum() * SLICES
    outside = ((np.exp(x) < low) | (np.exp(x) >= high)).mean()
    assert shares.sum() == pytest.approx(1) and shares[marked].sum() == pytest.approx(outside)


def test_the_survival_curve_is_the_share_beyond_each_weight() -> None:
    x = np.random.default_rng(1).normal(0, 0.3, 2000)
    figure = figures.weight_survival(histogram(x), "mismatch")
    part = histogram(x)
    edges = np.concatenate([(grid := cells(part.buckets, part.counts)).low, grid.high[-1:]])
    for edge, share in zip(edges, traces(figure)[0].y, strict=True):
        wanted = (x < edge).mean() if edge < 0 else (x >= edge).mean()
        assert (math.isnan(share) and wanted == 0) or 10**share == pytest.approx(wanted)


def test_histograms_of_steps_add_up_to_that_of_the_run() -> None:
    draws = np.random.default_rng(0)
    frame = distribution(range(5), seed=0)
    x = np.concatenate([draws.normal(0, 0.05, 200) for _ in range(5)])
    whole, wanted = whole_histogram(frame), histogram(x)
    assert whole.buckets.tolist() == wanted.buckets.tolist() and whole.counts.tolist() == wanted.counts.tolist()
    assert whole.log_sum_weights == pytest.approx(wanted.log_sum_weights)
    assert whole.log_sum_square_weights == pytest.approx(wanted.log_sum_square_weights)


def test_empty_distributions_say_so() -> None:
    empty = distribution([])
    for figure in (
        figures.log_ratio_heat_map(empty, "drift"),
        figures.weight_histogram(whole_histogram(empty), "drift"),
        figures.weight_survival(whole_histogram(empty), "drift"),
    ):
        assert "no distribution" in said_in(figure)


@pytest.mark.parametrize(
    "policies", [("rollout", "old"), ("rollout", "current"), ("rollout", "old", "current"), ("old",)]
)
@pytest.mark.parametrize("count", [0, 1, 2, 40, 5000])
def test_the_strip_shows_what_is_on_record(count: int, policies: tuple[str, ...]) -> None:
    figure = figures.token_strip(tokens(count, policies=policies), "mismatch")
    named = {trace.name for trace in traces(figure)}
    assert count == 0 or set(policies) <= named
    assert "entropy" not in named and ("showing" in _notes(figure)) == (count > 1500)


def test_the_strip_bars_are_the_log_ratios_and_masked_runs_are_shaded() -> None:
    frame = tokens(20)
    figure = figures.token_strip(frame, "mismatch")
    above, below = (
        next(trace for trace in traces(figure) if trace.name == f"{side} likely") for side in ("more", "less")
    )
    assert (np.asarray(above.y) >= 0).all() and (np.asarray(below.y) <= 0).all()
    signs = np.sign(np.where(frame["mask"], frame["mismatch"], 0.0))
    assert (np.sign(np.asarray(above.y) + np.asarray(below.y)) == signs).all(), "a masked token has no bar"
    assert "grey: masked" in notes(figure) and "masked" not in notes(
        figures.token_strip(frame.drop("mask"), "mismatch")
    )
    assert sum(shape.type == "rect" for shape in _layout(figure).shapes) == 4


def test_every_token_is_in_the_text_once_with_its_tint_and_facts() -> None:
    frame = tokens(60, texts=["a", " b", "c\n"])
    page = figures.token_text(frame, "mismatch")
    shown = re.findall(r'<i class="([^"]*)" data-h="([^"]*)">([^<]*)</i>', page)
    shown = [row for row in shown if row[1]]
    assert len(shown) == 60 and "".join(text for *_, text in shown[:3]) == "a bc↵" and page.count("<br>") == 20
    for (classes, facts, _), row in zip(shown, frame.iter_rows(named=True), strict=True):
        assert classes == ("x" if not row["mask"] else tint(row["mismatch"]))
        assert f"position {row['position']} · id {row['token_id']}" in facts and "rollout " in facts and "old " in facts
        assert ("masked" in facts) == (not row["mask"])


def test_ids_and_positions_stand_in_for_text() -> None:
    frame = tokens(3)
    assert ">100 </i>" in figures.token_text(frame, "mismatch")
    assert ">#0 </i>" in figures.token_text(frame.drop("token_id"), "mismatch")


def test_tints_are_stepped_two_sided_and_grow() -> None:
    steps = TOKEN_VALUES["log_ratio"].steps
    values = [-9.0, *(-edge for edge in reversed(steps)), 0.0, *steps, 9.0]
    assert [tint(value) for value in values] == [
        "l6",
        *(f"l{n}" for n in range(6, -1, -1)),
        "",
        *(f"m{n}" for n in range(7)),
        "m6",
    ]
    assert tint(None) == tint(math.nan) == "u"


class _Elements(HTMLParser):
    """The elements and attributes a browser would see."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[str, str]] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen |= {(tag, name) for name, _ in attrs} or {(tag, "")}


def test_hostile_text_makes_no_element_and_no_attribute() -> None:
    frame = tokens(len(HOSTILE), texts=hostile_texts())
    finding = Finding(
        Severity.ACT, HOSTILE[0], "x", "mismatch", 3, "high", HOSTILE[1], HOSTILE[2], HOSTILE[3], MEASURED
    )
    plain = tokens(5, texts=["a"])
    calm = Finding(Severity.ACT, "a", "x", "mismatch", 3, "high", "b", "c", "d", MEASURED)
    for hostile, harmless in (
        (figures.token_text(frame, "mismatch"), figures.token_text(plain, "mismatch")),
        (verdict_line(finding), verdict_line(calm)),
    ):
        found, allowed = _Elements(), _Elements()
        found.feed(hostile)
        allowed.feed(harmless)
        assert found.seen - allowed.seen <= {("br", "")}


def test_hostile_text_is_escaped_for_plotly_in_every_figure_that_shows_text() -> None:
    texts = hostile_texts()
    strip = figures.token_strip(tokens(len(texts), texts=texts), "mismatch")
    events = pl.DataFrame({"step": range(len(texts)), "event": texts, "note": texts})
    marked = figures.metric_over_steps(metric_frame(len(texts)), K3, "mismatch", events=events)
    ribbon = figures.severity_ribbon(grades(["act"], reading=texts[0]))
    for figure in (strip, marked, ribbon):
        told = [words for trace in traces(figure) if trace.customdata is not None for words in trace.customdata]
        strings = [words if isinstance(words, str) else words[0] for words in told]
        for text in strings:
            unmarked = re.sub(r"</?b>|<br>", "", text)
            assert "<" not in unmarked and "%{" not in unmarked and "$" not in unmarked


def test_cards_show_the_last_step_its_error_and_its_size() -> None:
    frame = metric_frame(5, values=[1.0, 2.0, 3.0, 4.0, 0.0052])
    page = metric_cards(frame, [K3, BY_NAME["ess_token"]], "mismatch")
    assert "0.0052<small> ± 0.00052</small>" in page and "1,000 tokens · step 4" in page and "not available" in page
    assert page.count('src="data:image/svg+xml,') == 2 and K3.formula.split("(")[0] in page


@pytest.mark.parametrize("value, grade", [(0.005, "healthy"), (0.02, "watch"), (0.17, "act"), (None, "")])
def test_a_card_has_the_grade_of_its_value_and_names_its_limits(value: float | None, grade: str) -> None:
    frame = metric_frame(2, values=[0.001, value])
    page = metric_cards(frame, [K3], "mismatch", {K3.name: limits_of(K3, "mismatch")})
    assert f'<div class="{grade}"' in page and "watch ≥ 0.01" in page and "act ≥ 0.1" in page
    assert K3.title in page and 'class=""' in metric_cards(frame, [K3], "mismatch")


def test_the_verdict_has_its_word_its_mark_and_its_remedy() -> None:
    act = Finding(
        Severity.ACT,
        "the gap has grown since the run began",
        "kl_k3",
        "mismatch",
        7,
        "high",
        "K3 is 1",
        "It means.",
        "Sync.",
        MEASURED,
    )
    healthy = Finding(
        Severity.HEALTHY, "no signal is out of its bounds", "kl_k3", "mismatch", None, "low", "e", "m", "r", MEASURED
    )
    unknown = replace(
        healthy, title="the gap is not known", coverage=Coverage(Known.NOT_MEASURED, None, "why it is not")
    )
    assert "– not measured" in verdict_line(unknown) and "healthy" not in verdict_line(unknown)
    assert "why it is not" in verdict_line(unknown)
    assert all(word in verdict_line(act) for word in ("■ act", "since step 7", "high confidence", "Sync."))
    assert "● healthy" in verdict_line(healthy) and "since" not in verdict_line(healthy)
    broke = "Weight syncs broke at one step: 9 times the gap from step 9 on."
    begun_later = Answer(f"{broke} It explains 9%.", broke, leads=True)
    assert "from step 9 on, out of bounds since step 7" in verdict_line(act, begun_later, links=True)
    begun_then = replace(begun_later, headline=broke.replace("step 9", "step 7"))
    assert "from step 7 on" in verdict_line(act, begun_then) and "since step 7" not in verdict_line(act, begun_then)
    undated = replace(begun_later, headline="The sampler's weights are old.")
    assert "are old, since step 7" in verdict_line(act, undated, links=True)


@pytest.mark.parametrize("theme", LIVE.values(), ids=LIVE)
def test_text_colours_can_be_read_on_their_background(theme: Theme) -> None:
    for colour in (
        theme.text,
        theme.muted,
        theme.primary,
        *theme.ink.values(),
        *theme.gaps.values(),
        *theme.policies.values(),
    ):
        least = 3.0 if colour == theme.policies["reference"] else 4.5
        assert _contrast(colour, theme.background) >= least, colour


def test_edges_bound_the_cells() -> None:
    assert len(EDGES) + 1 == BUCKETS


def _contrast(one: str, other: str) -> float:
    """WCAG contrast ratio."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _layout(figure: go.Figure) -> Any:
    """The layout, whose attributes no checker knows: plotly makes them at run time."""
    return figure.layout


def _notes(figure: go.Figure) -> str:
    return notes(figure).replace("<br>", " · ")


def test_a_cards_tooltip_says_what_the_metric_is_and_what_trainers_call_it() -> None:
    frame = pl.DataFrame({"step": [1, 2], "mismatch/kl_k3": [0.1, 0.2], "mismatch/tokens": [10.0, 10.0]})
    drawn = metric_cards(frame, [K3], "mismatch")
    assert "mean(exp(x) - 1 - x)" in drawn and "verl: rollout_corr/k3_kl" in drawn
    assert "fireworks" not in drawn, "its K3 is of the total gap"


WANTED = (("share_outside_0.9_1.1", 0.005, 0.02), ("share_outside_0.5_2", 0.01, 0.03), ("non_finite", 1, 2))


def test_shares_that_are_all_zero_are_drawn_on_a_small_axis_and_counts_up_to_one() -> None:
    for name, low, high in WANTED:
        metric = next(metric for metric in METRICS if metric.name == name)
        frame = pl.DataFrame({"step": [0, 1, 2], f"mismatch/{name}": [0.0, 0.0, 0.0]})
        figure: Any = figures.metric_over_steps(frame, metric, "mismatch", limits=limits_of(metric, "mismatch"))
        assert low <= figure.layout.yaxis.range[1] <= high, name


def test_a_cell_of_the_token_heat_has_the_colour_of_its_worst_token_and_leads_to_it() -> None:
    heat, stops = traces(token_heat_map(HEAT, ["a", "b", "c"], "mismatch"))
    colours = np.array([[3, MASKED, np.nan], [7, np.nan, np.nan], [np.nan, np.nan, 0]])
    np.testing.assert_array_equal(heat.z, colours)
    assert heat.x.tolist() == [0.5, 2.5, 4.5] and heat.customdata[2][2].tolist() == [2, 5]
    assert [row[0] for row in heat.text[:2]] == ["0.3 nats", "∞ nats"] and "masked" in heat.text[0][1]
    assert [list(stop) for stop in stops.customdata] == [[0, 1], [1, 0], [2, 5]]
    nothing = replace(HEAT, cells=HEAT.cells.clear(), tokens=0)
    assert "no sampled token" in said_in(token_heat_map(nothing, [], "mismatch"))
