"""Every metric that a text of ours names is one of the registry: advice that names none sends its reader searching."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.paths import ROOT

from ratioscope.metrics.corrections.effect import EFFECTS
from ratioscope.metrics.definitions.registry import METRICS, STATISTICS
from ratioscope.metrics.dialects import NAMES, dialect
from ratioscope.metrics.grading.signals import SIGNALS
from ratioscope.record import FIELDS

PROSE = ("*.md", "docs/*.md", "app/browser/*.js", "app/documents/*.js")
CODE = (
    "app/**/*.py",
    "metrics/*.py",
    "metrics/[!d]*/*.py",
    "metrics/definitions/*.py",
    "collectors/**/*.py",
    "ingest/**/*.py",
    "ratioscope/*.py",
    "docs/*.py",
)
KNOWN = {metric.name for metric in METRICS}
OTHER = {
    *(f"{name}_se" for name in KNOWN),
    *(signal.name for signal in SIGNALS),
    *(statistic.name for statistic in STATISTICS),
    *FIELDS,
    *(effect.name for effect in EFFECTS),
    *(theirs.rsplit("/", 1)[-1] for name in NAMES for theirs in dialect(name).CANONICAL),
    "kl_cov",
}
"""Words that look like a metric and are none: signals, sums, effects, columns, names of the trainers, and a loss of theirs."""
WORD = re.compile(r"(?<![\w/.{}*-])[a-z][a-z0-9]*(?:_[a-z0-9][a-z0-9.]*|_[+-]\d)+(?![\w{}*(=/])")
OWN = {"kl", "chi2", "ess", "pareto", "ppl", "surprisal", "shift", "variance", "excess"}
"""First words that only metrics have."""


def like_a_metric(word: str) -> bool:
    """Whether it begins as only metrics do, or is a metric's name cut short or drawn out."""
    near = any(name.startswith(f"{word}_") or ("_" in name and word.startswith(f"{name}_")) for name in KNOWN)
    return near or word.split("_")[0] in OWN


def unknown(text: str) -> set[str]:
    words = {word.rstrip(".") for word in WORD.findall(text)}
    return {word for word in words if word not in KNOWN | OTHER and like_a_metric(word)}


def texts_of(path: Path) -> Iterator[str]:
    """Strings with a space in them: sentences, not keys. A value put into one stands as {}."""
    if path.suffix != ".py":
        yield re.sub(r"\(#[^)]*\)", "", path.read_text())  # where a link within the page leads
        return
    inside: set[ast.AST] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            inside |= set(node.values)
            found = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in inside:
            found = node.value
        else:
            continue
        if " " in found:
            yield found


@pytest.mark.parametrize("pattern", [*PROSE, *CODE])
def test_every_metric_in_a_text_is_in_the_registry(pattern: str) -> None:
    paths = [path for path in sorted(ROOT.glob(pattern)) if "vendor" not in path.parts]
    found = {(path.name, word) for path in paths for text in texts_of(path) for word in unknown(text)}
    assert paths and not found, "name a metric of the registry, or all of its family"


def test_a_name_cut_short_or_made_up_is_found_out() -> None:
    assert unknown("Look at shift_correlation: near 1") == {"shift_correlation"}
    assert unknown("see `ess_tokens`, kl_k4 and pareto_k.") == {"ess_tokens", "kl_k4", "pareto_k"}
    assert not unknown(
        "`kl_k3`, ess_token_se, shift_correlation_-2 … shift_correlation_+2, mean_weight, share_outside_0.5_2."
    )
