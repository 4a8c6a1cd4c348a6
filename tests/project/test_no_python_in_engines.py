"""No function of ours runs inside polars' engine, where two visitors at once would stop the server for good."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import ROOT

FOLDERS = ("app", "benchmarks", "collectors", "docs", "ingest", "metrics", "ratioscope", "sample_data")
CALLBACKS = {
    "map_elements", "map_batches", "map_groups", "map_rows", "map_columns", "rolling_map", "map_fields", "register_io_source",
    "scan_pyarrow_dataset", "sink_batches", "collect_batches", "sink_csv", "sink_parquet", "sink_ipc", "sink_ndjson", "write_csv",
    "write_ndjson", "write_parquet", "write_ipc",
}  # fmt: skip
"""Methods of polars that call Python from threads of its own: functions, sources and files that are Python objects."""
OF_POLARS = {"fold", "reduce", "cum_fold", "cum_reduce", "defer"}
"""Functions of polars that do; elsewhere the names are innocent."""


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_function_of_ours_runs_inside_an_engine(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.attr}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and _calls_back(node)
    ]
    assert found == [], "change the text or numbers outside of polars: ingest/rows/text_columns.py"


@pytest.mark.parametrize(
    "line",
    ["f.with_columns(pl.col('a').map_elements(g))", "pl.fold(0, g, [])", "frame.group_by('a').map_groups(g)",
     "polars.io.plugins.register_io_source(g, schema=s)", "frame.lazy().sink_csv(buffer)", "e.name.map(g)"],
)  # fmt: skip
def test_the_rule_finds_what_it_is_for(line: str) -> None:
    assert any(isinstance(node, ast.Attribute) and _calls_back(node) for node in ast.walk(ast.parse(line)))


def _calls_back(node: ast.Attribute) -> bool:
    base = node.value
    if node.attr in OF_POLARS:
        return isinstance(base, ast.Name) and base.id in ("pl", "polars")
    if node.attr == "map":  # of names of columns
        return isinstance(base, ast.Attribute) and base.attr == "name"
    return node.attr in CALLBACKS


VISITORS = """
import faulthandler, sys, threading
faulthandler.dump_traceback_later(60, exit=True)
import polars as pl
from pathlib import Path
from ratioscope.app.dashboard.model.export import csv_of
from ratioscope.app.dashboard.panels import charts
from ratioscope.app.presentation.without_texts import on_paper
from ratioscope.ingest.files.cache import Cache
from ratioscope.ingest.analysis.run_comparison import prompt_table
from ratioscope.ingest.run import open_run
from ratioscope.ingest.analysis.sequence_lines import log_ratio_lines

charts.st.dataframe = lambda frame, **_: frame.to_pandas()  # as Streamlit reads a frame
run = open_run(Path(sys.argv[1]))
step, cache = run.steps[14], Cache(Path(sys.argv[2]))
words = [f"token {number}" for number in range(20_000)]
wide = pl.concat([pl.DataFrame({"a": words, "b": words, "c": range(len(words))})] * 2, rechunk=False)
visits = (
    lambda: charts._table(wide, "wide"),
    lambda: csv_of(wide.head(500)),
    lambda: prompt_table(run, range(step, step + 1), "sequence_id", "mismatch", cache=cache),
    lambda: log_ratio_lines(run, step, "mismatch").to_pandas(),
    lambda: on_paper(run, text=True).events,
    lambda: wide.with_columns(pl.col("c") + 1).to_pandas(),
    lambda: wide.with_columns(pl.col("c") + 2).to_pandas(),
)
threads = [threading.Thread(target=lambda visit=visit: [visit() for _ in range(20)]) for visit in visits * 2]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("answered")
"""


TWO_THREADS = {**os.environ, "POLARS_MAX_THREADS": "2"}


def test_visitors_of_every_table_at_once_are_all_answered(tmp_path: Path) -> None:
    run = next((ROOT / "sample_data" / "runs").glob("*stale*"))
    command = [sys.executable, "-c", VISITORS, str(run), str(tmp_path)]
    visited = subprocess.run(command, capture_output=True, text=True, timeout=300, env=TWO_THREADS)
    assert visited.stdout == "answered\n", visited.stderr[-3000:]
