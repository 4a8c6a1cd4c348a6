"""The tokens of one sequence on one axis: the gap's log-ratio, the log-probs of every recorded policy, entropy, advantage."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from ratioscope.arrays import Booleans, Floats
from ratioscope.record import sides

from ..presentation.digits import count, digits
from ..presentation.escape import plotly as escaped
from ..presentation.gap_words import WHO, gap_words, gaps_in, sides_in
from ..presentation.theme import LIGHT, Theme, faded
from .drawing.canvas import canvas, coloured, saying, tell_nearest
from .drawing.floats import floats
from .drawing.overlay import horizontal_line, lay_over, on_paper, vertical_band, vertical_line, words
from .drawing.plot import Pen
from .drawing.plotly_objects import go
from .drawing.scale import PLAIN, Scale, padded, signed_log
from .drawing.thinning import LineBuckets, thinned

POINTS = 500
"""Number of buckets of a longer sequence. Each is two pixels wide and keeps its extremes."""
MASKED_RUNS = 500
"""The most runs of masked tokens that are shaded. The text and the hover show all of them."""
DASHES = {"rollout": "solid", "old": "dot", "current": "dash", "reference": "dashdot"}
READING = "longdash"
"""The dash of a reading; of readings after the first, "longdashdot"."""
HEIGHTS = {"log-ratio": 2.1, "log-prob": 1.8, "entropy": 1.0, "advantage": 0.8}
"""Rows from top to bottom, with their share of the height."""
BETWEEN = 0.05


def token_strip(tokens: pl.DataFrame, gap: str, *, theme: Theme = LIGHT) -> go.Figure:
    """The strip chart of `tokens` (a frame with a row per token, see Run.sequence).

    customdata of a click: words, and the position of the token (of a bucket: the one with the largest |x|).
    """
    has_mask = "mask" in tokens.columns
    masked = ~tokens["mask"].fill_null(True).to_numpy() if has_mask else np.zeros(len(tokens), np.bool_)
    strip = _Strip(tokens, floats(tokens, "position"))
    ratios = np.where(masked, np.nan, floats(tokens, gap))  # nobody sampled a masked token: it has no part in the gap
    drawn = thinned(strip.positions, ratios, points=POINTS)
    scale = _scale(ratios)
    size = count(len(tokens), "token")
    thin = "" if drawn.exact else f"showing {count(len(drawn.mean), 'bucket')} of {size}, extremes kept"
    later = sides(gap)[1]
    grey = "grey: masked" if masked.any() else ""
    notes = ("nats", f"above 0: the {WHO.get(later, later)} finds the token more likely", grey, scale.word)
    made = (f"N = {size}, as recorded", thin)
    figure = canvas(f"Tokens <i>{gap_words(gap)}</i>", notes, theme=theme, height=380, made=made)
    if tokens.is_empty():
        return saying(figure, "the sequence has no tokens", theme)
    rows = _rows(tokens)
    _lay_out(figure, rows, strip.positions, theme)
    _add_ratios(figure, drawn, scale, theme)
    _add_policies(figure, strip, theme, rows["log-prob"][1])
    for number, name in enumerate(rows, start=1):
        if name in ("entropy", "advantage"):
            colour = theme.muted if name == "entropy" else theme.gaps["drift"]
            _add_row(figure, strip.row(name), Pen(colour, name, 1.2, "solid"), f"y{number}")
    _add_masked(figure, strip.positions, masked, theme)
    _add_hover(figure, strip, drawn, ratios)
    return figure


@dataclass(frozen=True)
class _Strip:
    """The tokens of a strip."""

    tokens: pl.DataFrame
    positions: Floats

    def row(self, column: str) -> LineBuckets:
        return thinned(self.positions, floats(self.tokens, column), points=POINTS)


def strip_at(
    strip: go.Figure, theme: Theme = LIGHT, *, at: int | None = None, window: tuple[int, int] | None = None
) -> go.Figure:
    """A copy of a strip with the place of the reader, made in a fraction of the time that the strip takes.

    at: the position of the marked token. window: the first and last position of the text that is shown elsewhere, shaded.
    """
    shapes = [] if window is None else [vertical_band(window[0] - 0.5, window[1] + 0.5, faded(theme.primary, 0.08))]
    if at is not None:
        shapes.append(vertical_line(at, theme.primary, width=1.5, layer="above"))
    return lay_over(go.Figure(strip), shapes)


def _rows(tokens: pl.DataFrame) -> dict[str, tuple[float, float]]:
    """The rows with values, from top to bottom, with their places. A constant advantage has no row."""
    entropy, advantage = floats(tokens, "entropy"), floats(tokens, "advantage")
    known = advantage[np.isfinite(advantage)]
    absent = {"entropy": not np.isfinite(entropy).any(), "advantage": len(known) < 2 or bool((known == known[0]).all())}
    names = [name for name in HEIGHTS if not absent.get(name)]
    unit = (1 - BETWEEN * (len(names) - 1)) / sum(HEIGHTS[name] for name in names)
    top, places = 1.0, {}
    for name in names:
        places[name] = (max(0.0, top - unit * HEIGHTS[name]), top)
        top = places[name][0] - BETWEEN
    return places


def _scale(ratios: Floats) -> Scale:
    """Signed-log once the worst token is twenty times the typical one."""
    sizes = np.abs(ratios[np.isfinite(ratios) & (ratios != 0)])
    if len(sizes) < 2 or sizes.max() < 20 * np.median(sizes):
        return PLAIN
    return signed_log(float(np.median(sizes)), float(sizes.max()))


def _lay_out(figure: go.Figure, rows: dict[str, tuple[float, float]], positions: Floats, theme: Theme) -> None:
    for number, (name, domain) in enumerate(rows.items(), start=1):
        axis = {"domain": domain, "title": {"text": name}, "anchor": "x", "nticks": 5 if HEIGHTS[name] > 1 else 3}
        if number > 1:
            axis |= {"showgrid": True, "gridcolor": theme.grid, "showline": False, "ticks": "", "zeroline": False}
        figure.update_layout({f"yaxis{number if number > 1 else ''}": axis})
    tell_nearest(figure)
    figure.update_layout(hoversubplots="axis", bargap=0)
    room = max(0.5, 0.005 * len(positions))
    figure.update_xaxes(
        range=[positions[0] - room, positions[-1] + room],
        tickformat="d",
        dtick=1 if len(positions) < 8 else None,
        title={"text": "position"},
        anchor=f"y{len(rows)}",
        unifiedhovertitle={"text": "position %{x:d}"},
    )


def _add_ratios(figure: go.Figure, drawn: LineBuckets, scale: Scale, theme: Theme) -> None:
    below, above = scale.place(np.fmin(drawn.low, 0.0)), scale.place(np.fmax(drawn.high, 0.0))
    for places, colour, name in ((above, theme.more, "more likely"), (below, theme.less, "less likely")):
        if drawn.exact:
            _add_bars(figure, drawn, places, colour, name)
        else:
            _add_steps(figure, drawn, places, colour, name)
    known = np.concatenate([below, above, [0.0]])
    known = known[np.isfinite(known)]
    figure.update_layout(yaxis=scale.axis(*padded(float(known.min()), float(known.max()))), barmode="overlay")
    lay_over(figure, [horizontal_line(0, theme.muted, width=0.7)])


def _add_bars(figure: go.Figure, drawn: LineBuckets, places: Floats, colour: str, name: str) -> None:
    figure.add_bar(
        x=drawn.middle,
        y=places,
        width=0.8 if len(drawn.mean) < 120 else 1.0,
        marker={"color": colour, "line": {"width": 0}},
        unselected={"marker": {"opacity": 1}},  # a click chooses a token, and must not fade the others
        name=name,
        hoverinfo="skip",
    )


def _add_steps(figure: go.Figure, drawn: LineBuckets, places: Floats, colour: str, name: str) -> None:
    """Bars of buckets that touch, as one area: a browser draws one outline in a hundredth of the time of 1,000 bars."""
    figure.add_scatter(
        x=np.append(drawn.first, drawn.last[-1] + 1) - 0.5,
        y=np.append(np.nan_to_num(places), 0.0),
        mode="lines",
        line={"width": 0, "shape": "hv"},
        fill="tozeroy",
        fillcolor=colour,
        name=name,
        hoverinfo="skip",
    )


def _add_policies(figure: go.Figure, strip: _Strip, theme: Theme, top: float) -> None:
    shown = []
    readings = 0
    for side in sides_in(strip.tokens.columns):
        drawn = strip.row(f"{side}_logprob")
        if np.isfinite(drawn.mean).any():
            readings += side not in DASHES
            dash = DASHES.get(side, READING if readings == 1 else f"{READING}dot")
            _add_row(figure, drawn, Pen(theme.of_side(side), side, 1.2, dash), "y2")
            mark = "━" if dash == "solid" else "┅"
            shown.append(coloured(f"{mark} {side}", theme.of_side(side)))
    lay_over(figure, texts=[words("   ".join(shown), theme.muted, **on_paper(1, "right", top, "bottom", yshift=-4))])


def _add_row(figure: go.Figure, drawn: LineBuckets, pen: Pen, axis: str) -> None:
    """A line; for buckets of several tokens it goes through the means, and the area from min to max is shaded."""
    if not drawn.exact:
        known = np.isfinite(drawn.low)
        figure.add_scatter(
            x=np.concatenate([drawn.middle[known], drawn.middle[known][::-1]]),
            y=np.concatenate([drawn.high[known], drawn.low[known][::-1]]),
            yaxis=axis,
            mode="lines",
            line={"width": 0},
            fill="toself",
            fillcolor=faded(pen.colour, 0.11),
            hoverinfo="skip",
        )
    figure.add_scatter(
        x=drawn.middle,
        y=drawn.mean,
        yaxis=axis,
        mode="lines+markers" if len(drawn.mean) < 3 else "lines",
        line={"color": pen.colour, "width": pen.width, "dash": pen.dash},
        marker={"size": 4},
        name=pen.name,
        hoverinfo="skip",
    )


def _add_masked(figure: go.Figure, positions: Floats, masked: Booleans, theme: Theme) -> None:
    """A grey band behind each run of masked tokens."""
    changes = np.flatnonzero(np.diff(np.concatenate([[0], masked.astype(np.int8), [0]])))
    grey = faded(theme.muted, 0.14)
    runs = changes.reshape(-1, 2)[:MASKED_RUNS]
    lay_over(figure, [vertical_band(float(positions[a]) - 0.5, float(positions[b - 1]) + 0.5, grey) for a, b in runs])


def _add_hover(figure: go.Figure, strip: _Strip, drawn: LineBuckets, ratios: Floats) -> None:
    """One invisible trace with the words of all rows and the token of a click, for every place of the pointer."""
    facts = _exact_words(strip.tokens) if drawn.exact else _bucket_words(drawn)
    figure.add_scatter(
        x=drawn.middle,
        y=np.zeros(len(drawn.mean)),
        mode="markers",
        marker={"opacity": 0, "size": 1},
        customdata=[list(pair) for pair in zip(facts, _worst_of(drawn, strip.positions, ratios), strict=True)],
        hovertemplate="%{customdata[0]}<extra></extra>",
    )


def _worst_of(drawn: LineBuckets, positions: Floats, ratios: Floats) -> list[int]:
    """The position of each bucket's token with the largest |x|; its first token if no x is known."""
    if drawn.exact:
        return [int(position) for position in positions]
    sizes = np.where(np.isnan(ratios), -1.0, np.abs(ratios))
    starts = np.searchsorted(positions, drawn.first)
    ends = [*starts[1:].tolist(), len(sizes)]
    return [int(positions[a + int(np.argmax(sizes[a:b]))]) for a, b in zip(starts.tolist(), ends, strict=True)]


def _exact_words(tokens: pl.DataFrame) -> list[str]:
    logprobs = (f"{side}_logprob" for side in sides_in(tokens.columns))
    names = (*logprobs, *gaps_in(tokens.columns), "entropy", "advantage")
    shown = [name for name in names if name in tokens.columns]
    texts = []
    for row in tokens.iter_rows(named=True):
        text = "" if row.get("token_text") is None else f"<b>{escaped(row['token_text'], 40)}</b><br>"
        facts = [f"{name.removesuffix('_logprob')} {digits(row[name])}" for name in shown if row[name] is not None]
        texts.append(text + "<br>".join(facts) + ("<br>masked" if row.get("mask") is False else ""))
    return texts


def _bucket_words(drawn: LineBuckets) -> list[str]:
    return [
        f"positions {first:.0f}–{last:.0f}<br>log-ratio {digits(low)} to {digits(high)}"
        for first, last, low, high in zip(drawn.first, drawn.last, drawn.low, drawn.high, strict=True)
    ]
