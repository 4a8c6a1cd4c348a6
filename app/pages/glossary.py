"""The glossary of the report: what each metric with a chart of its own is."""

from collections.abc import Iterator, Sequence

from ratioscope.metrics.definitions.registry import BY_NAME

from ..blocks import Facts, Paragraph, Section
from ..presentation.metric_places import names_at

ABOUT = (
    "x is the log-ratio of a token: log-prob of the later policy minus log-prob of the earlier one. S is its sum over a sequence,"
    " m its mean. `ratioscope explain NAME` has every metric with its estimator, its weighting, its range and its limits."
)


def glossary(gaps: Sequence[str]) -> Iterator[Section]:
    """The metrics with a chart of one of these gaps."""
    metrics = [BY_NAME[name] for name in dict.fromkeys(name for gap in gaps for name in names_at("chart", gap))]
    rows = [(f"{each.title} ({each.name})", f"{each.formula}. {each.meaning}") for each in metrics]
    yield Section("glossary", "Glossary", lambda: (Paragraph(ABOUT, "muted"), Facts(rows)), is_reference=True)
