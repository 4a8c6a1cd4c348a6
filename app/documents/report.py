"""The report of a run: what its pages have printed, in one HTML file without network and script, or as Markdown."""

from ..blocks import Chart
from ..pages.head import graded_counts, run_facts
from ..presentation.escape import html as escaped
from ..presentation.escape import markdown as escaped_markdown
from ..presentation.labelled_texts import LabelledTexts
from .drawings import Drawing
from .html import Inside, charts_of, live_figure, markup, still_figure
from .markdown import markdown
from .material import Material
from .shell import Shell, demand_plotly, shell


def html_report(read: Material, *, interactive: bool = False) -> str:
    """The document. Equal runs give equal bytes. interactive: with plotly.js and its charts, 3 MB, in place of static ones."""
    demand_plotly()
    printed, head = read.printed, read.head
    drawn: dict[str, Drawing] | None = None
    if interactive:
        drawn = {each.name: each for _, blocks in printed for each in map(read.drawn, charts_of(blocks))}

    def shown(chart: Chart) -> str:
        return still_figure(chart) if drawn is None else live_figure(chart, read.drawn(chart))

    inside = Inside(shown, lambda path: f"#{path}", frozenset())
    links = "".join(
        f'<a href="#{section.name}">{escaped(section.title)}</a>' for section, _ in printed if section.title
    )
    facts = " · ".join(f"{label}: {value}" for label, value in summary(read))
    made = read.reproduction
    return shell(
        Shell(
            title=f"{head.severity}: {escaped(read.view.name)} (ratioscope report)",
            head=f'<h1>{escaped(read.view.name)}</h1>\n<div class="muted">{escaped(facts)}</div>\n'
            f'<nav aria-label="sections">{links}</nav>',
            main="\n".join(
                f'<section><h2 id="{section.name}">{escaped(section.title)}</h2>\n{markup(blocks, inside)}</section>'
                if section.title
                else markup(blocks, inside)
                for section, blocks in printed
            ),
            foot=f"ratioscope {escaped(made.version)} made this from input {escaped(made.digest[:12])}. This file loads nothing"
            " and sends nothing.",
            drawn=drawn,
        )
    )


def markdown_report(read: Material) -> str:
    """The document, for pull requests and job summaries; foreign text in it is escaped, so that it is no markup or link."""
    (_, first), *others = read.printed
    said = " · ".join(f"{label}: {escaped_markdown(value)}" for label, value in summary(read))
    parts = [markdown(first), f"Run **{escaped_markdown(read.view.name)}** · {said}"]
    for section, blocks in others:
        if not section.is_reference and (text := markdown(blocks)):
            parts.append(f"## {escaped_markdown(section.title)}\n\n{text}")
    return "\n\n".join(parts).rstrip() + "\n"


def summary(read: Material) -> LabelledTexts:
    """The run and the data of the report, in a few facts."""
    graded = graded_counts(read.view.grades())
    # the scorecard heads a table with each gap
    return run_facts(read.run.steps, None, read.reproduction.trainer, graded)
