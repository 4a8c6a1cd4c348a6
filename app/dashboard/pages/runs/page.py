"""The Runs page: a row per served run, with its state, its verdict and the verdict's first step."""

import time
from dataclasses import dataclass
from typing import Any

import polars as pl
import streamlit as st

from ratioscope.ingest.rows.text_columns import changed
from ratioscope.metrics.grading.coverage import NOT_MEASURED
from ratioscope.process import here

from ....pages.scope import Scope
from ....presentation.digits import count
from ....presentation.escape import streamlit_label as label
from ....presentation.metric_places import SPOKEN, metrics_at
from ....presentation.run_list import LARGEST, LEAST, NOT_READ, UNREADABLE, WORDS, graded
from ....presentation.run_names import shortened
from ....presentation.run_state import RunState
from ...model.served_runs import Served, served
from ...panels.charts import table
from ...panels.controls import MOST_OTHERS
from ...panels.empty_run import say_no_run
from ...panels.links import go_to
from ...panels.reference import pin_button
from .summaries import Summary, summaries

BUDGET = 1.0
"""Seconds of reading between two drawings of the table, so that it fills while the page stays usable."""
TALLEST, MOST_AT_ONCE = 720, 24
"""Height in pixels of a table with more rows; it scrolls."""
COLOURS = ("red", "orange", "yellow", "gray", "gray", "green", "gray")
"""The colour of each, of the theme."""
WHOLE = st.column_config.NumberColumn(format="localized")
DRAWN = metrics_at("runs", "mismatch")[0]
"""The metric of the table, in the first gap of a run that has it."""
COLUMNS: dict[str, Any] = {
    # This column is not pinned, because the text of a pinned column is drawn faded.
    "run": st.column_config.TextColumn(width=186, help="the path below the served folder"),
    "verdict": st.column_config.MultiselectColumn(
        width=132, help="the worst grade of any step", options=WORDS, color=COLOURS
    ),
    "worst signal": st.column_config.TextColumn(width=310),
    "since": st.column_config.NumberColumn("since step", format="localized"),
    DRAWN.name: st.column_config.NumberColumn(
        f"{DRAWN.title}, newest step",
        format="%.3g",
        help=f"{SPOKEN[DRAWN.name]} of the gap in this row, at the last step, in {DRAWN.unit}",
    ),
    "gap": st.column_config.TextColumn(width=78),
    "± se": st.column_config.NumberColumn(format="%.2g", width=74, help="its standard error, clustered by sequence"),
    "course": st.column_config.LineChartColumn(
        "over steps",
        width=92,
        y_min=LEAST,
        y_max=LARGEST,
        help=f"log10 of {DRAWN.title} over the steps, from 10^{LEAST} to 10^{LARGEST} in every row, so that runs compare",
    ),
    "state": st.column_config.TextColumn(
        width=68,
        help="live: a writer is running; ended: every writer closed its log; silent: no commit for two minutes, and this machine "
        "cannot check the process; dead: the writer's process is gone",
    ),
    "newest": st.column_config.NumberColumn("newest step", format="localized", help="the newest committed step"),
    "age": st.column_config.TextColumn("last commit", width=100),
    "records": st.column_config.TextColumn(help="statistics: no token rows were kept, so no token can be shown"),
    "steps": WHOLE,
    "tokens": st.column_config.NumberColumn(format="compact", help="tokens measured in this gap, over all steps"),
    "started": st.column_config.DatetimeColumn(format="YYYY-MM-DD HH:mm"),
    "size": st.column_config.NumberColumn("size on disk", format="bytes"),
}


def render(scope: Scope) -> None:
    served_runs = served()
    find = st.text_input(
        "find",
        key="find",
        bind="query-params",
        placeholder="search name, trainer, verdict, signal, state",
        width=340,
        label_visibility="collapsed",
    )
    _listed(served_runs, find or "")
    if served_runs.note:
        st.caption(f":material/info: {label(served_runs.note, 300)}")
    summarised = [summaries().known(path) for path in served_runs.runs.values()]
    if not any(known is None or known.gaps or known.error for known in summarised):
        say_no_run()


@st.fragment(run_every="2s")
def _listed(shown: Served, find: str) -> None:
    """The table as a fragment: it redraws itself while runs are read, grow or appear."""
    served_runs = served()
    if served_runs.runs != shown.runs:
        st.rerun()
    waiting = summaries().read_some(_wanted_first(served_runs, find), BUDGET)
    rows = rows_of(served_runs, time.time())
    matching = _in_place(rows.filter(matches(rows, find)), find)
    _say_how_many(len(matching), len(rows), waiting)
    table(
        changed(matching.drop("path"), shortened, "run")
        .with_columns(pl.concat_list("verdict"), pl.col("course").list.eval(pl.element().log10().clip(LEAST, LARGEST)))
        .select("run", "verdict", pl.exclude("run", "verdict")),  # a narrow window shows the first two
        f"{len(matching)} runs",
        key=_listing().key,
        on_select=_chosen,
        selection_mode=["multi-row", "single-cell"],
        height="content" if len(matching) <= MOST_AT_ONCE else TALLEST,
        placeholder="",
        column_config=COLUMNS,
    )
    _offer_overlay()


@dataclass(frozen=True)
class RunList:
    """The runs that a session's table lists, in its order."""

    find: str = ""
    """The searched words."""
    names: tuple[str, ...] = ()
    number: int = 0
    """Number of the table. A new table begins if rows change places."""

    @property
    def key(self) -> str:
        return f"runs_table_{self.number}"

    @property
    def ticked(self) -> list[str]:
        chosen = st.session_state.get(self.key)
        return [self.names[row] for row in chosen.selection.rows if row < len(self.names)] if chosen else []


def _listing() -> RunList:
    listing = st.session_state.get("_listing")
    return listing if isinstance(listing, RunList) else RunList()


def _in_place(matching: pl.DataFrame, find: str) -> pl.DataFrame:
    """The rows in their order. While runs are ticked, listed rows keep their places and new rows come below them, because a tick
    is known by its place alone. If a listed row is gone, a new table begins."""
    before = _listing()
    names = matching["run"].to_list()
    places = {name: place for place, name in enumerate(before.names)}
    stays = before.find == find and set(places) <= set(names)
    if stays and before.ticked:
        matching = matching.sort(pl.col("run").replace_strict(places, default=len(places)), maintain_order=True)
    number = before.number + (bool(before.ticked) and not stays)
    st.session_state["_listing"] = RunList(find, tuple(matching["run"]), number)
    return matching


def rows_of(served_runs: Served, now: float) -> pl.DataFrame:
    """One row per run, the worst verdict first, then as served. A run that was not read yet has only a name, and comes last."""
    known = summaries()
    asking = here()
    rows = [
        _row(name, path, known.known(path), known.state(path, asking, now)) for name, path in served_runs.runs.items()
    ]
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    frame = frame.sort(_rank(pl.col("verdict")), maintain_order=True)
    named_apart = (frame["name"] != "") & (frame["name"] != frame["run"].str.split("/").list.last())
    return frame if named_apart.any() else frame.drop("name")


def _rank(verdict: pl.Expr) -> pl.Expr:
    """The place of a verdict among all: what needs a look comes first."""
    return verdict.replace_strict({word: rank for rank, word in enumerate(WORDS)}, return_dtype=pl.Int8)


SCHEMA: dict[str, Any] = {
    "run": pl.String, "state": pl.String, "newest": pl.Int64, "age": pl.String, "verdict": pl.String,
    "worst signal": pl.String, "since": pl.Int64, "gap": pl.String,
    DRAWN.name: pl.Float64, "± se": pl.Float64, "course": pl.List(pl.Float64), "steps": pl.Int64,
    "tokens": pl.Int64, "gaps": pl.String, "records": pl.String, "trainer": pl.String, "started": pl.Datetime("us"),
    "size": pl.Int64, "attempts": pl.Int64, "name": pl.String, "path": pl.String,
}  # fmt: skip


def _row(name: str, path: str, known: Summary | None, state: RunState) -> tuple[Any, ...]:
    stands = (state.brief, state.step, state.ago)
    if known is None or known.error:
        word = NOT_READ if known is None else UNREADABLE
        why = "" if known is None else known.error
        return (name, *stands, word, why, *[None] * (len(SCHEMA) - 8), "", path)
    verdict = graded(known.severity or NOT_MEASURED)
    healthy = known.severity == "healthy"
    return (
        name, *stands, verdict, "" if healthy else known.title, None if healthy else known.since, known.gap, known.kl_k3,
        known.error_of_kl_k3, list(known.course), known.steps, known.tokens, ", ".join(known.gaps),
        "" if not known.steps else "tokens" if known.has_rows else "statistics", known.trainer,
        None if known.started is None else known.started.replace(tzinfo=None), known.bytes, known.attempts, known.name, path,
    )  # fmt: skip


def matches(rows: pl.DataFrame, find: str) -> pl.Expr:
    """True for rows that contain every word, in any case."""
    columns = [name for name, kind in rows.schema.items() if kind == pl.String and name not in ("path", "age")]
    text = pl.concat_str(columns, separator="\n", ignore_nulls=True).str.to_lowercase()
    words = [text.str.contains(word, literal=True) for word in find.lower().split()]
    return pl.all_horizontal(words) if words else pl.lit(True)


def _wanted_first(served_runs: Served, find: str) -> list[str]:
    """The paths of all runs, those first whose names match the search."""
    words = find.lower().split()
    ranked = sorted(served_runs.runs.items(), key=lambda run: not all(word in run[0].lower() for word in words))
    return [path for _, path in ranked]


def _say_how_many(matching: int, rows: int, waiting: int) -> None:
    which = f"{matching:,} of {count(rows, 'run')}" if matching < rows else count(rows, "run")
    reading = f" · {waiting:,} not yet read; this page keeps reading them" if waiting else ""
    st.caption(f"{which}{reading} · click a run to open it; tick several to compare them")


def _chosen() -> None:
    """Opens the run whose cell was clicked. For ticked rows the reader uses the button."""
    shown = _listing()
    cells = st.session_state[shown.key].selection.cells
    if cells:
        st.session_state["run"] = shown.names[cells[0][0]]
        go_to("overview")


def _offer_overlay() -> None:
    """The button for the ticked runs."""
    ticked = _listing().ticked
    if not ticked:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        most = MOST_OTHERS + 1
        st.button(
            f"compare {min(len(ticked), most)} runs" if len(ticked) > 1 else "show its metrics",
            key="overlay",
            on_click=_overlay,
            args=(tuple(ticked[:most]),),
        )
        if len(ticked) == 1:
            pin_button(served(), ticked[0])
        names = ", ".join(shortened(name) for name in ticked[:most])
        more = f" · at most {most}; {len(ticked) - most} more are ticked" if len(ticked) > most else ""
        st.caption(f"{label(names)}{more}")


def _overlay(names: tuple[str, ...]) -> None:
    st.session_state["run"] = names[0]
    go_to("metrics", **({"with": list(names[1:])} if names[1:] else {}))
