"""The HTML around a report and around every page of a bundle: its policy, its style and its scripts."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ratioscope.errors import MissingExtra
from ratioscope.version import __version__

from ..browser.library import EMBEDDED, font_face, plotly_js
from ..browser.policy import file_policy, static_policy
from ..browser.scripts import script
from ..figures.html.tinted_text import style
from ..presentation.escape import script_json
from ..presentation.theme import CODE_FONT, DARK, FONT, LIGHT, css_variables
from .drawings import Drawing

OWN = Path(__file__).parent


@dataclass(frozen=True)
class Shell:
    """The parts of a file, as HTML: every foreign text in them is escaped."""

    title: str
    head: str
    """Heading and navigation."""
    main: str
    """The content of the page."""
    foot: str
    """The line below it."""
    keys: Mapping[str, str] | None = None
    """The letter after `g` -> the address that it opens; None for a file that is no page of a bundle."""
    drawn: Mapping[str, Drawing] | None = field(default_factory=dict)
    """The charts of the file by their names; a file without one has no plotly.js. None for a file without scripts."""


def shell(parts: Shell) -> str:
    """The file. Its policy names its style or its scripts by their digests and allows nothing to be loaded or sent."""
    scripts, own = _scripts(parts), _stylesheet(is_bundle=parts.keys is not None)
    policy = static_policy(own) if parts.drawn is None else file_policy(*scripts)
    none = '<noscript><p class="none">Charts need scripts. The tables here show the same numbers.</p></noscript>'
    figures = f'<script type="application/json" id="figures">{_figures(parts.drawn or {})}</script>'
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="generator" content="ratioscope {__version__}">
<title>{parts.title}</title>
<style>{own}</style>
</head>
<body>
<header>
<div>
{parts.head}
</div>
{'<button id="theme" type="button" hidden></button>' if scripts else ""}
</header>
{none if parts.drawn else ""}
<main>
{parts.main}
</main>
<footer>{parts.foot}</footer>
{figures if scripts else ""}
{"".join(f"<script>{script}</script>" for script in scripts)}
</body>
</html>
"""


def demand_plotly() -> None:
    """MissingExtra if plotly, by which all charts are drawn, is not installed."""
    try:
        import plotly.graph_objects  # noqa: F401
    except ImportError:
        raise MissingExtra("an HTML report", "dashboard") from None


def _scripts(parts: Shell) -> tuple[str, ...]:
    """plotly.js, the constants, the navigation of a bundle, and what draws the charts; nothing for a file without scripts."""
    if parts.drawn is None:
        return ()
    constants = f"const config = {script_json(json.dumps(EMBEDDED))};"
    library = (plotly_js(),) if parts.drawn else ()
    drawing = script("definition.js") + script("fitted.js") + _file("page.js")
    if parts.keys is None:
        return *library, constants, drawing
    pages = f"const pages = {script_json(json.dumps(dict(parts.keys)))};"
    return *library, constants + pages, _file("site.js"), drawing


def _file(name: str) -> str:
    return (OWN / name).read_text(encoding="utf-8")


def _figures(drawn: Mapping[str, Drawing]) -> str:
    by_name = {figure.name: {"light": figure.light, "dark": figure.dark} for figure in drawn.values()}
    return script_json(json.dumps(by_name, sort_keys=True))


def _stylesheet(*, is_bundle: bool) -> str:
    """Colours as variables, light by default and in print, dark if the reader or the system prefers it; and tinted tokens."""
    light, dark = css_variables(LIGHT), css_variables(DARK)
    pictures = ".chart .dark{display:inline}.chart .light{display:none}"
    chosen, system = ":root[data-theme=dark]", ":root:not([data-theme])"
    own, other = style(LIGHT), style(DARK)
    return (
        f"{font_face()}\n:root{{{light};--font:{FONT};--code-font:{CODE_FONT}}}\n"
        f"@media screen{{{chosen}{{{dark};color-scheme:dark;{pictures}}}:root[data-theme=light]{{color-scheme:light}}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{{system}{{{dark};{pictures}}}}}\n"
        f"{_file('page.css')}{own}\n@media screen{{{other.replace('.rs-dark', f'{chosen} .rs-light')}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{{other.replace('.rs-dark', f'{system} .rs-light')}}}"
        f"{_file('site.css') if is_bundle else ''}"
    )
