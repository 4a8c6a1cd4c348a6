"""A program of its own: adds one metric to a family of definitions before anything else is imported, then asks every face for it.

python -m support.added_metric RUN OUT: prints a JSON object, place -> whether the metric is there. Nothing else of the program
is told about the metric.
"""

import importlib.util
import json
import os
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from ratioscope.metrics.definitions import structure
from ratioscope.metrics.definitions.divergence import SUM_LOG_RATIO
from ratioscope.metrics.definitions.validity import FINITE
from ratioscope.metrics.metric import Metric, clustered_error, ratio

NAME = "added_mean"
REPORTS = ("report.html", "report.json")
"""Markdown has the metrics with a chart alone."""
ADDED = Metric(
    NAME, "1", "a formula of the test", "A meaning of the test.", needs=(SUM_LOG_RATIO, FINITE), value=ratio,
    error=clustered_error(SUM_LOG_RATIO, FINITE), estimator="mean", kind="mean", topic="faults", title="Added mean",
)  # fmt: skip


def said_by(*arguments: str) -> str:
    """What a verb prints."""
    from ratioscope.app.cli import main

    with redirect_stdout(StringIO()) as printed:
        assert main(list(arguments)) == 0, arguments
    return printed.getvalue()


def places(run: str, out: Path) -> dict[str, bool]:
    from ratioscope.app.dashboard.model.opened_runs import RUNS
    from support.pages_open import charts, unopened
    from support.paths import ROOT

    rows = json.loads(said_by("metrics", run, "--json"))
    for name in REPORTS:
        said_by("report", run, "-o", str(out / name))
    sys.path.insert(0, str(ROOT / "docs"))
    page = importlib.util.spec_from_file_location("tables", ROOT / "docs/tables.py")
    assert page is not None and page.loader is not None
    tables = importlib.util.module_from_spec(page)
    page.loader.exec_module(tables)
    os.environ |= {RUNS: json.dumps([run]), "PAGE": "charts"}
    app = unopened()
    app.query_params["groups"] = ["faults"]
    app.run()
    return {
        "metrics --json": rows[0][f"mismatch/{NAME}"] is not None and rows[0][f"mismatch/{NAME}_se"] is not None,
        "metrics --metric": NAME in said_by("metrics", run, "--metric", NAME),
        "explain": ADDED.meaning in said_by("explain", NAME),
        **{name: NAME in (out / name).read_text().replace("<wbr>", "") for name in REPORTS},
        "page Charts": not app.exception and any(NAME in chart for chart in charts(app)),
        "docs": f"## {NAME}\n" in tables.pages()["metrics.md"],
    }


if __name__ == "__main__":
    setattr(structure, "METRICS", (*structure.METRICS, ADDED))  # noqa: B010
    print(json.dumps(places(sys.argv[1], Path(sys.argv[2]))))
