"""Facts side by side, as HTML: a card for each, with its name, its value, and its meaning behind a question mark.

They are one element of the page. Streamlit's own cards are one each, and it tells every element when a script begins or ends.
The box of words that a hover opens, as rules of a style sheet: alike over tokens and over facts.
"""

from collections.abc import Iterable

from ...presentation.escape import html as escaped
from ...presentation.theme import FONT, LIGHT, Theme

Fact = tuple[str, str, str]
"""Name, value and meaning, as plain text."""


def fact_cards(facts: Iterable[Fact], *, narrowest: int = 150, theme: Theme = LIGHT) -> str:
    """The cards, as many in a row as there is room for. narrowest: the least width of a card, in pixels."""
    root = f"rs-fact-cards-{theme.name}"
    cards = "".join(map(_card, facts))
    style = f"<style>{_style(f'.{root}', theme)}</style>"
    return f'<div class="{root}" style="--least:{narrowest}px">{style}<dl>{cards}</dl></div>'


def fact_list(rows: Iterable[tuple[str, str]], theme: Theme = LIGHT) -> str:
    """Names and values below each other."""
    root = f"rs-fact-list-{theme.name}"
    inside = "".join(f"<dt>{escaped(name)}</dt><dd>{escaped(value)}</dd>" for name, value in rows)
    style = (
        f".{root} dl{{display:grid;grid-template-columns:minmax(7em,max-content) minmax(0,1fr);gap:5px 18px;margin:0;padding:0;"
        f"font:13px/1.45 {FONT};color:{theme.text}}}.{root} dl>*{{margin:0;padding:0}}"
        f".{root} dt{{color:{theme.muted};max-width:18em}}.{root} dl>*{{overflow-wrap:anywhere}}.{root} dd{{max-width:70em}}"
    )
    return f'<div class="{root}"><style>{style}</style><dl>{inside}</dl></div>'


def _card(fact: Fact) -> str:
    name, value, about = map(escaped, fact)
    meaning = f'<i tabindex="0" role="note" aria-label="{about}" data-about="{about}"></i>' if about else ""
    return f"<div><dt>{name}{meaning}</dt><dd>{value}</dd></div>"


def _style(root: str, theme: Theme) -> str:
    """The rules. A meaning is as wide as its card, so that it stays on the page wherever the card stands."""
    return (
        f"{root} dl{{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,var(--least)),1fr));gap:10px;"
        f"margin:0;padding:0;font:13px/1.4 {FONT};color:{theme.text}}}"
        f"{root} dl>div{{position:relative;min-width:0;border:1px solid {theme.border};border-radius:5px;padding:9px 12px}}"
        f"{root} dt{{display:flex;justify-content:space-between;gap:6px;font-weight:400;overflow-wrap:anywhere}}"
        f"{root} dd{{margin:3px 0 0;font-size:20px;font-weight:500;line-height:1.3;overflow-wrap:anywhere}}"
        f"{root} i{{flex:none;align-self:start;width:17px;border:1px solid {theme.border};border-radius:9px;text-align:center;"
        f"font:11px/15px {FONT};color:{theme.muted};cursor:help}}"
        f"{root} i::before{{content:'?'}}"
        f"{root} i:is(:hover,:focus)::after{{content:attr(data-about);position:absolute;left:-1px;right:-1px;"
        f"top:calc(100% + 4px);text-align:left;{hover_box(theme)}}}"
    )


def hover_box(theme: Theme) -> str:
    """The look of the box. Its place and its words are the caller's."""
    return (
        f"z-index:9;font:12px/1.45 {FONT};color:{theme.text};background:{theme.panel};border:1px solid {theme.border};"
        "border-radius:4px;padding:6px 9px;pointer-events:none;box-shadow:0 3px 12px rgba(0,0,0,.18)"
    )
