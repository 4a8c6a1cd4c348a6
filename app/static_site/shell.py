"""The HTML around every page of a bundle: its policy, its styles and its scripts. Each file holds all it needs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ratioscope.version import __version__

from ..browser.chart_config import EMBEDDED
from ..browser.library import plotly_js
from ..browser.policy import file_policy
from ..presentation.escape import script_json
from ..report.drawings import Drawing, tokens_style
from ..report.html import drawing_script, stylesheet

OWN = Path(__file__).parent


@dataclass(frozen=True)
class Shell:
    """The parts of a file, as HTML: every foreign text in them is escaped."""

    title: str
    """Title of the tab."""
    head: str
    """Heading and navigation."""
    main: str
    """The content of the page."""
    foot: str
    """The line below it."""
    keys: Mapping[str, str]
    """The letter after `g` -> the address that it opens."""
    drawn: Mapping[str, Drawing] = field(default_factory=dict)
    """The charts of the file by their names. A file without one has no plotly.js."""


def shell(parts: Shell) -> str:
    """The file. Its policy names its scripts by their digests and allows nothing to be loaded or sent."""
    scripts = _scripts(parts)
    none = (
        '<noscript><p class="none">Charts need scripts. The tables of these pages show the same numbers.</p></noscript>'
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{file_policy(*scripts)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="generator" content="ratioscope {__version__}">
<title>{parts.title} (ratioscope)</title>
<style>{stylesheet()}{tokens_style()}{(OWN / "site.css").read_text(encoding="utf-8")}</style>
</head>
<body>
<header>
<div>
{parts.head}
</div>
<button id="theme" type="button" hidden></button>
</header>
{none if parts.drawn else ""}
<main>
{parts.main}
</main>
<footer>{parts.foot}</footer>
<script type="application/json" id="figures">{_figures(parts.drawn)}</script>
{"".join(f"<script>{script}</script>" for script in scripts)}
</body>
</html>
"""


def _scripts(parts: Shell) -> tuple[str, ...]:
    """plotly.js, the constants, our own script for the navigation, and the report's script, which draws the charts."""
    config, keys = (script_json(json.dumps(value)) for value in (EMBEDDED, dict(parts.keys)))
    own = (OWN / "site.js").read_text(encoding="utf-8")
    constants = f"const config = {config};const pages = {keys};"
    return *((plotly_js(),) if parts.drawn else ()), constants, own, drawing_script()


def _figures(drawn: Mapping[str, Drawing]) -> str:
    by_name = {figure.name: {"light": figure.light, "dark": figure.dark} for figure in drawn.values()}
    return script_json(json.dumps(by_name, sort_keys=True))
