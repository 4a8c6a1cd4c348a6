"""A response as HTML, each token tinted by its log-ratio on a fixed two-sided scale, with all that is known of it on hover.

The tint has fixed steps, so that two sequences can be compared by eye: orange where the later policy finds the token less
likely, blue where it finds it more likely. Tokens outside the mask carry no tint, and a dotted line under muted text.
No script: the hover is CSS (an anchored ::after), so the same HTML serves the page, the report and a notebook.
"""

import math
from collections.abc import Iterator

import polars as pl

from ratioscope.record import GAPS, POLICIES

from ..digits import digits, percent
from ..escape import html as escaped
from ..theme import CODE_FONT, FONT, LIGHT, Theme, faded

STEPS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""|log-ratio| from which the next stronger tint is used, in nats."""
OPACITIES = (0.07, 0.13, 0.2, 0.3, 0.42, 0.56, 0.72)
LONGEST = 200
"""Characters of one token's text that are shown."""
TALLEST = 460
"""Pixels of text shown before it scrolls in its own frame, so that the chart under it stays in reach."""


def token_text(tokens: pl.DataFrame, gap: str, *, theme: Theme = LIGHT, legend: bool = True) -> str:
    """One element holding the text of `tokens` (a frame with a row per token, see Run.sequence), tinted by the gap.

    Ids stand in where no text was recorded, positions where there are no ids either.
    """
    rows = tokens.iter_rows(named=True)
    body = "".join(_token(row, gap) for row in rows)
    scale = _legend(gap) if legend else ""
    return f'<div class="rs-{theme.name}"><style>{_style(theme)}</style>{scale}<div class="rs-text">{body}</div></div>'


def tint(log_ratio: float | None) -> str:
    """The tint's class: less or more, and its step from 0 (weakest) to 6; empty below the first step.

    >>> tint(-0.3), tint(0.04), tint(float("inf")), tint(None)
    ('l2', '', 'm6', 'u')
    """
    if log_ratio is None or math.isnan(log_ratio):
        return "u"
    step = sum(abs(log_ratio) >= edge for edge in STEPS) - 1
    return f"{'l' if log_ratio < 0 else 'm'}{step}" if step >= 0 else ""


def _token(row: dict[str, object], gap: str) -> str:
    text, broken = _text(row)
    masked = row.get("mask") is False
    dropped = row.get("loss_mask") is False
    names = " ".join(filter(None, ("x" if masked else tint(_number(row, gap)), "d" if dropped and not masked else "")))
    return f'<i class="{names}" data-h="{_facts(row)}">{text}</i>{"<br>" if broken else ""}'


def _text(row: dict[str, object]) -> tuple[str, bool]:
    """What stands for the token, and whether the line breaks after it."""
    text = row.get("token_text")
    if text is not None:
        raw = str(text)
        return escaped(raw, LONGEST) or "∅", raw.endswith("\n")
    token = row.get("token_id")
    return (f"{token} " if token is not None else f"#{row['position']} "), False


def _facts(row: dict[str, object]) -> str:
    """Everything known of the token, one fact a line, escaped for an attribute."""
    return "&#10;".join(escaped(line) for line in _fact_lines(row))


def _fact_lines(row: dict[str, object]) -> Iterator[str]:
    token = "" if row.get("token_id") is None else f" · id {row['token_id']}"
    text = "" if row.get("token_text") is None else f" · '{str(row['token_text'])[:40]}'"
    yield f"position {row['position']}{token}{text}"
    for policy in (*POLICIES, "reference"):
        logprob = _number(row, f"{policy}_logprob")
        if logprob is not None:
            yield f"{policy} {digits(logprob)} nats · {percent(_exp(logprob))}"
    for gap in GAPS:
        log_ratio = _number(row, gap)
        if log_ratio is not None:
            yield f"{gap} x {_signed(log_ratio)} · weight {digits(_exp(log_ratio))}"
    for name in ("entropy", "advantage", "turn", "rollout_version"):
        value = _number(row, name)
        if value is not None:
            yield f"{name.replace('_', ' ')} {digits(value)}"
    if row.get("mask") is False:
        yield "masked: not sampled by the policy"
    elif row.get("loss_mask") is False:
        yield "not in the loss: filtered or rejected"


def _number(row: dict[str, object], name: str) -> float | None:
    value = row.get(name)
    return float(value) if isinstance(value, int | float) else None


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _signed(value: float) -> str:
    return f"+{digits(value)}" if value > 0 else digits(value)


def _legend(gap: str) -> str:
    earlier, later = GAPS[gap]
    weakest_last = [f'<i class="l{step}"></i>' for step in reversed(range(len(STEPS)))]
    cells = weakest_last + [f'<i class="m{step}"></i>' for step in range(len(STEPS))]
    edges = "".join((*cells[: len(STEPS)], '<i class="z"></i>', *cells[len(STEPS) :]))
    steps = ", ".join(digits(edge) for edge in STEPS)
    return (
        f'<div class="rs-legend"><span>{later} less likely than {earlier}</span><b>{edges}</b><span>more likely</span>'
        f"<span>tint by log-ratio {later} − {earlier}, steps at {steps} nats</span>"
        '<span><i class="x">masked</i></span></div>'
    )


def _style(theme: Theme) -> str:
    """The rules, all below the theme's own class, so that both appearances can stand in one document."""
    root = f".rs-{theme.name}"
    tints = "".join(
        f"{root} .{side}{step}{{background:{faded(colour, opacity)}}}"
        for side, colour in (("l", theme.less), ("m", theme.more))
        for step, opacity in enumerate(OPACITIES)
    )
    rules = f"""
{{color:{theme.text};font:13px/1.75 {CODE_FONT}}}
 i{{font-style:normal}}
 .rs-text{{white-space:pre-wrap;overflow-wrap:anywhere;max-height:{TALLEST}px;overflow-y:auto}}
 .rs-text i{{border-radius:2px;padding:1px 0;margin-right:1px}}
 i.x{{color:{theme.muted};border-bottom:1px dotted {theme.muted};border-radius:0}}
 i.u{{outline:1px dashed {theme.border};outline-offset:-1px}}
 .rs-text i.d{{text-decoration:line-through {theme.muted} 1px}}
 .rs-text i:hover{{outline:1px solid {theme.text};outline-offset:-1px;position:relative;anchor-name:--rs}}
 .rs-text i:hover::after{{content:attr(data-h);position:absolute;left:0;top:1.7em;z-index:9;width:max-content;\
max-width:22rem;white-space:pre-wrap;font:12px/1.45 {FONT};color:{theme.text};background:{theme.panel};\
border:1px solid {theme.border};border-radius:4px;padding:6px 9px;pointer-events:none;box-shadow:0 3px 12px rgba(0,0,0,.18)}}
 .rs-legend{{display:flex;flex-wrap:wrap;align-items:center;gap:2px 10px;font:11.5px/1.6 {FONT};color:{theme.muted};\
margin-bottom:10px}}
 .rs-legend b{{display:inline-flex}}
 .rs-legend b i{{width:13px;height:11px;display:inline-block}}
 .rs-legend b i.z{{width:9px;border:solid {theme.border};border-width:0 1px}}"""
    anchored = (
        f"@supports (position-try-fallbacks:flip-inline){{{root} .rs-text i:hover{{position:static}}"
        f"{root} .rs-text i:hover::after{{position:fixed;position-anchor:--rs;left:anchor(left);top:anchor(bottom);"
        "margin:4px 0;position-try-fallbacks:flip-inline,flip-block,flip-inline flip-block}}"
    )
    lines = rules.replace("\\\n", "").strip("\n").split("\n")
    return "".join(f"{root}{line}" for line in lines) + tints + anchored
