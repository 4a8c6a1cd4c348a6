"""The report as one HTML file: no network and no script, in light and dark, fit for print. Plotly's charts on request.

The template engine calls `escape.html` on every value that a template prints (finalize).
Only values that this file wraps in Markup are not escaped again: styles, scripts, the figures' JSON and the tokens.
"""

import json
from pathlib import Path
from typing import Any

from ratioscope.errors import MissingExtra

from ..browser.chart_config import EMBEDDED
from ..browser.library import plotly_js
from ..browser.policy import file_policy, static_policy
from ..browser.scripts import script
from ..presentation.digits import count, digits
from ..presentation.escape import html as escaped
from ..presentation.escape import script_json
from ..presentation.gap_words import difference_words, direction
from ..presentation.theme import CODE_FONT, DARK, FONT, LIGHT, MARKS, css_variables
from . import sparkline, texts
from .data import ReportData

FOLDER = Path(__file__).parent
MOST_SPELLS = 60
MOST_EVENTS = 100
FEW_EVENTS = 8


def html_report(data: ReportData, *, interactive: bool = False) -> str:
    """The document. Equal data gives equal bytes. interactive: with plotly.js and its charts, 3 MB, in place of static ones."""
    try:
        import jinja2
        from markupsafe import Markup
    except ImportError:
        raise MissingExtra("an HTML report", "dashboard") from None
    from .drawings import evidence_picture, tokens_html, tokens_legend, tokens_style

    environment = jinja2.Environment(
        autoescape=True,
        finalize=lambda value: value if hasattr(value, "__html__") else Markup(escaped(str(value))),
        undefined=jinja2.StrictUndefined,
        loader=jinja2.FileSystemLoader(FOLDER),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(digits=digits, count=count, sparkline=sparkline.svg_path)
    style = stylesheet() + tokens_style()
    charts = _interactive_charts(data) if interactive else _static_charts(data, style)
    return environment.get_template("page.html").render(
        **charts,
        data=data,
        evidence=Markup(evidence_picture(data)),
        few_events=FEW_EVENTS,
        difference_words=difference_words,
        direction=direction,
        interactive=interactive,
        legend=Markup(tokens_legend(data.gap)),
        marks=MARKS,
        most_events=MOST_EVENTS,
        most_spells=MOST_SPELLS,
        texts=texts,
        spark=sparkline,
        style=Markup(style),
        tokens=[Markup(tokens_html(item.tokens, data.gap)) for item in data.worst],
    )


def _static_charts(data: ReportData, style: str) -> dict[str, Any]:
    """The values that the template takes for a page without scripts. Any: values for a template."""
    from markupsafe import Markup

    from .drawings import pictures

    figures = [
        {"name": p.name, "section": p.section, "gap": p.gap, "wide": p.wide, "svg": Markup(p.svg)}
        for p in pictures(data)
    ]
    return {"figures": figures, "policy": static_policy(style), "scripts": (), "figures_json": ""}


def _interactive_charts(data: ReportData) -> dict[str, Any]:
    """The values that the template takes for a page that draws its charts by plotly.js. Any: values for a template."""
    from markupsafe import Markup

    from .drawings import drawings

    config = f"const config = {script_json(json.dumps(EMBEDDED))};"
    scripts = (plotly_js(), config, drawing_script())
    figures = drawings(data)
    by_name = {figure.name: {"light": figure.light, "dark": figure.dark} for figure in figures}
    return {
        "figures": figures,
        "figures_json": Markup(script_json(json.dumps(by_name, sort_keys=True))),
        "policy": file_policy(*scripts),
        "scripts": [Markup(script) for script in scripts],
    }


def drawing_script() -> str:
    """The script that draws the charts of a file as wide as they may be, and makes each ? reachable by keyboard."""
    return script("definition.js") + script("fitted.js") + (FOLDER / "page.js").read_text(encoding="utf-8")


def stylesheet() -> str:
    """The page's style: colours as variables, light by default and in print, dark if the reader or the system prefers it."""
    light, dark = css_variables(LIGHT), css_variables(DARK)
    pictures = ".chart .dark{display:inline}.chart .light{display:none}"
    chosen, system = ":root[data-theme=dark]", ":root:not([data-theme])"
    return (
        f":root{{{light};--font:{FONT};--code-font:{CODE_FONT}}}\n"
        f"@media screen{{{chosen}{{{dark};color-scheme:dark;{pictures}}}:root[data-theme=light]{{color-scheme:light}}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{{system}{{{dark};{pictures}}}}}\n"
        + (FOLDER / "page.css").read_text(encoding="utf-8")
    )
