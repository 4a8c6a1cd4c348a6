"""The tokens of one sequence on one axis: the gap's log-ratio, the log-probs of every recorded policy, the entropy."""

import numpy as np
import plotly.graph_objects as go
import polars as pl

from ratioscope.record import POLICIES

from ..digits import count, digits
from ..escape import plotly as escaped
from ..theme import LIGHT, Theme, faded
from .canvas import canvas, saying, tell_nearest
from .over_steps import gap_words
from .overlay import Overlay, across, column, lay_over, words
from .scale import PLAIN, Floats, Scale, padded, signed_log
from .thinned import Thinned, thinned

POINTS = 1500
MASKED_RUNS = 500
"""More runs of masked tokens than this are not shaded; the text and the hover still say so."""
DASHES = {"rollout": "solid", "old": "dot", "current": "dash", "reference": "dashdot"}
DOMAINS = ((0.62, 1.0), (0.24, 0.56), (0.0, 0.18))
"""From top to bottom: log-ratio, log-probs, entropy; shares of the height."""


def token_strip(
    tokens: pl.DataFrame, gap: str, *, theme: Theme = LIGHT, height: int = 380, points: int = POINTS
) -> go.Figure:
    """The strip chart of `tokens` (a frame with a row per token, see Run.sequence)."""
    ratios = _column(tokens, gap)
    positions = _column(tokens, "position")
    drawn = thinned(positions, ratios, points=points)
    scale = _scale(ratios)
    thin = "" if drawn.exact else f"showing {count(points, 'bucket')} of {count(len(tokens), 'token')}, extremes kept"
    notes = (count(len(tokens), "token"), "nats", scale.word, thin)
    figure = canvas(f"tokens <i>{gap_words(gap)}</i>", notes, theme=theme, height=height)
    if tokens.is_empty():
        return saying(figure, "the sequence has no tokens", theme)
    _lay_out(figure, positions, theme)
    _add_ratios(figure, drawn, scale, theme)
    _add_policies(figure, tokens, positions, theme, points)
    _add_entropy(figure, tokens, positions, theme, points)
    _add_masked(figure, tokens, positions, theme)
    _add_hover(figure, tokens, drawn, positions)
    return figure


def _column(tokens: pl.DataFrame, name: str) -> Floats:
    if name not in tokens.columns:
        return np.full(len(tokens), np.nan)
    return tokens[name].cast(pl.Float64).fill_null(np.nan).to_numpy()


def _scale(ratios: Floats) -> Scale:
    """Signed-log once the worst token is twenty times the typical one."""
    sizes = np.abs(ratios[np.isfinite(ratios) & (ratios != 0)])
    if len(sizes) < 2 or sizes.max() < 20 * np.median(sizes):
        return PLAIN
    return signed_log(float(np.median(sizes)), float(sizes.max()))


def _lay_out(figure: go.Figure, positions: Floats, theme: Theme) -> None:
    names = ("log-ratio", "log-prob", "entropy")
    for number, (domain, name) in enumerate(zip(DOMAINS, names, strict=True), start=1):
        figure.update_layout(
            {f"yaxis{number if number > 1 else ''}": {"domain": domain, "title": {"text": name}, "anchor": "x"}}
        )
    for number in (2, 3):
        figure.layout[f"yaxis{number}"].update(showgrid=True, gridcolor=theme.grid, showline=False, ticks="")
    tell_nearest(figure)
    figure.update_layout(hoversubplots="axis", bargap=0)
    room = max(0.5, 0.005 * len(positions))
    figure.update_xaxes(
        range=[positions[0] - room, positions[-1] + room], tickformat="d", title={"text": "position"}, anchor="y3"
    )


def _add_ratios(figure: go.Figure, drawn: Thinned, scale: Scale, theme: Theme) -> None:
    below, above = scale.place(np.fmin(drawn.low, 0.0)), scale.place(np.fmax(drawn.high, 0.0))
    width = max(1.0, float(np.median(drawn.last - drawn.first + 1))) * (0.8 if len(drawn.mean) < 120 else 1.0)
    for places, colour, name in ((above, theme.more, "more likely"), (below, theme.less, "less likely")):
        figure.add_bar(
            x=drawn.middle,
            y=places,
            width=width,
            marker={"color": colour, "line": {"width": 0}},
            name=name,
            hoverinfo="skip",
        )
    known = np.concatenate([below, above, [0.0]])
    known = known[np.isfinite(known)]
    figure.update_layout(yaxis=scale.axis(*padded(float(known.min()), float(known.max()))), barmode="overlay")
    lay_over(figure, [across(0, theme.muted, width=0.7)])


def _add_policies(figure: go.Figure, tokens: pl.DataFrame, positions: Floats, theme: Theme, points: int) -> None:
    for policy in (*POLICIES, "reference"):
        logprobs = _column(tokens, f"{policy}_logprob")
        if np.isfinite(logprobs).any():
            _add_row(
                figure,
                thinned(positions, logprobs, points=points),
                policy,
                theme.policies[policy],
                "y2",
                DASHES[policy],
            )
    shown = [policy for policy in (*POLICIES, "reference") if np.isfinite(_column(tokens, f"{policy}_logprob")).any()]
    names = (
        f'<span style="color:{theme.policies[p]}">{"━" if DASHES[p] == "solid" else "┅"} {p}</span>' for p in shown
    )
    place: Overlay = {
        "x": 1,
        "xref": "paper",
        "xanchor": "right",
        "y": DOMAINS[1][1],
        "yref": "paper",
        "yanchor": "bottom",
    }
    lay_over(figure, texts=[words("   ".join(names), theme.muted, **place)])


def _add_entropy(figure: go.Figure, tokens: pl.DataFrame, positions: Floats, theme: Theme, points: int) -> None:
    entropy = _column(tokens, "entropy")
    if np.isfinite(entropy).any():
        _add_row(figure, thinned(positions, entropy, points=points), "entropy", theme.muted, "y3", "solid")
    else:
        figure.update_layout(yaxis3={"range": [0, 1], "tickvals": []})
        absent = words("entropy was not recorded", theme.muted, x=0.5, xref="paper", y=0.5, yref="y3")
        lay_over(figure, texts=[absent])


def _add_row(figure: go.Figure, drawn: Thinned, name: str, colour: str, axis: str, dash: str) -> None:
    figure.add_scatter(
        x=drawn.middle,
        y=drawn.mean,
        yaxis=axis,
        mode="lines+markers" if len(drawn.mean) < 3 else "lines",
        line={"color": colour, "width": 1.2, "dash": dash},
        marker={"size": 4},
        name=name,
        hoverinfo="skip",
    )


def _add_masked(figure: go.Figure, tokens: pl.DataFrame, positions: Floats, theme: Theme) -> None:
    """A grey band behind each run of masked tokens."""
    if "mask" not in tokens.columns:
        return
    masked = ~tokens["mask"].fill_null(True).to_numpy()
    changes = np.flatnonzero(np.diff(np.concatenate([[0], masked.astype(np.int8), [0]])))
    grey = faded(theme.muted, 0.14)
    runs = changes.reshape(-1, 2)[:MASKED_RUNS]
    lay_over(figure, [column(float(positions[a]) - 0.5, float(positions[b - 1]) + 0.5, grey) for a, b in runs])


def _add_hover(figure: go.Figure, tokens: pl.DataFrame, drawn: Thinned, positions: Floats) -> None:
    """One invisible trace that carries the words of all three rows, wherever the pointer is."""
    facts = _exact_words(tokens) if drawn.exact else _bucket_words(drawn)
    figure.add_scatter(
        x=drawn.middle,
        y=np.zeros(len(drawn.mean)),
        mode="markers",
        marker={"opacity": 0, "size": 1},
        customdata=facts,
        hovertemplate="%{customdata}<extra></extra>",
    )


def _exact_words(tokens: pl.DataFrame) -> list[str]:
    shown = [
        n
        for n in (*(f"{p}_logprob" for p in (*POLICIES, "reference")), "mismatch", "total", "drift", "entropy")
        if n in tokens.columns
    ]
    found = []
    for row in tokens.iter_rows(named=True):
        text = "" if row.get("token_text") is None else f"<b>{escaped(row['token_text'], 40)}</b><br>"
        facts = [f"{name.removesuffix('_logprob')} {digits(row[name])}" for name in shown if row[name] is not None]
        found.append(text + "<br>".join(facts) + ("<br>masked" if row.get("mask") is False else ""))
    return found


def _bucket_words(drawn: Thinned) -> list[str]:
    return [
        f"positions {first:.0f}–{last:.0f}<br>log-ratio {digits(low)} to {digits(high)}"
        for first, last, low, high in zip(drawn.first, drawn.last, drawn.low, drawn.high, strict=True)
    ]
