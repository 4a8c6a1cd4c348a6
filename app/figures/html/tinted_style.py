"""The style sheet of tinted tokens: the tints on their scale, the frame, the hover and the legend."""

from ...presentation.theme import CODE_FONT, FONT, READABLE, Theme, channels, contrast, faded
from .hover_box import hover_box

OPACITIES = (0.07, 0.13, 0.2, 0.3, 0.42, 0.56, 0.72)
"""Opacity of the tint at each step of the scale."""
TALLEST = 460
"""Pixels of text shown before it scrolls in its own frame, so that the chart under it stays in reach."""


def style(theme: Theme) -> str:
    """The rules, all below the theme's own class, so that both appearances can stand in one document."""
    root = f".rs-{theme.name}"
    tints = "".join(
        f"{root} .{side}{step}{{background:{faded(colour, opacity)}{_ink(colour, opacity, theme)}}}"
        for side, colour in (("l", theme.less), ("m", theme.more), ("a", theme.gaps["drift"]))
        for step, opacity in enumerate(OPACITIES)
    )
    rules = f"""
{{color:{theme.text};font:13px/1.75 {CODE_FONT}}}
 i{{font-style:normal}}
 .rs-text{{white-space:pre-wrap;overflow-wrap:anywhere;max-height:{TALLEST}px;overflow-y:auto}}
 .rs-text h6{{margin:10px 0 4px;padding:3px 0 0;border-top:1px solid {theme.border};font:500 11.5px/1.5 {FONT};\
color:{theme.muted};white-space:normal}}
 .rs-text h6:first-child{{margin-top:0}}
 .rs-text i{{border-radius:2px;padding:1px 0;margin-right:1px}}
 i.x{{color:{theme.muted};border-bottom:1px dotted {theme.muted};border-radius:0}}
 i.u{{outline:1px dashed {theme.border};outline-offset:-1px}}
 .rs-text i.d{{text-decoration:line-through {theme.muted} 1px}}
 i.c{{border-bottom:2.5px solid {theme.text};border-radius:2px 2px 0 0}}
 .rs-text i.t{{outline:2px solid {theme.primary};outline-offset:0}}
 .rs-text i.s{{display:inline-block;scroll-initial-target:nearest}}
 .rs-text i:hover{{outline:1px solid {theme.text};outline-offset:-1px;position:relative;anchor-name:--rs}}
 .rs-text i:hover::after{{content:attr(data-h);position:absolute;left:0;top:1.7em;width:max-content;\
max-width:22rem;white-space:pre-wrap;{hover_box(theme)}}}
 .rs-legend{{display:flex;flex-wrap:wrap;align-items:center;gap:2px 10px;font:11.5px/1.6 {FONT};color:{theme.muted};\
margin-bottom:10px}}
 .rs-legend b{{display:inline-flex;font-weight:400}}
 .rs-legend b i{{min-width:19px;padding:0 2px;font-size:9.5px;line-height:15px;text-align:center;color:{theme.text};\
display:inline-block}}
 .rs-legend b i.z{{min-width:9px;border:solid {theme.border};border-width:0 1px}}"""
    hatch = f"repeating-linear-gradient(135deg,{faded(theme.text, 0.2)} 0 1px,transparent 1px 5px)"
    hatched = f"{root} i.o{{background-image:{hatch}}}"
    anchored = (
        f"@supports (position-try-fallbacks:flip-inline){{{root} .rs-text i:hover{{position:static}}"
        f"{root} .rs-text i:hover::after{{position:fixed;position-anchor:--rs;left:anchor(left);top:anchor(bottom);"
        "margin:4px 0;position-try-fallbacks:flip-inline,flip-block,flip-inline flip-block}}"
        f"@media (max-width:640px){{{root} .rs-text i:hover::after{{left:12px;right:12px;width:auto;max-width:none}}}}"
    )
    lines = rules.replace("\\\n", "").strip("\n").split("\n")
    return "".join(f"{root}{line}" for line in lines) + tints + hatched + anchored


def _ink(colour: str, opacity: float, theme: Theme) -> str:
    """Black text where the tint is so strong that the theme's own would be hard to read on it."""
    behind = [
        opacity * over + (1 - opacity) * under
        for over, under in zip(channels(colour), channels(theme.background), strict=True)
    ]
    own, black = (contrast(behind, text) for text in (channels(theme.text), (0.0, 0.0, 0.0)))
    return ";color:#000" if own < READABLE < black else ""
