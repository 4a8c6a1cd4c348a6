"""The choices that pages share: run, gap, step. Each is in the URL, so that every view is a link."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import streamlit as st

from ratioscope.metrics.metric import SAMPLED
from ratioscope.record import GAPS

from .escape import streamlit_label as label
from .escape import visible
from .figures.over_steps import gap_words
from .view import View

NOT_SAMPLED = "means over rollout samples, no divergence: the tokens were not sampled from old"
SEVERITIES = ("healthy", "watch", "act")


def run_picker(paths: Sequence[str]) -> str:
    """The chosen one of the runs this server was started for; no other path can be reached, whatever the URL says."""
    names = distinct_names(paths)
    if len(paths) == 1:
        st.markdown(f"**{label(names[paths[0]], 80)}**")
        return paths[0]
    by_name = {name: path for path, name in names.items()}
    chosen = st.selectbox(
        "run",
        list(by_name),
        key="run",
        bind="query-params",
        label_visibility="collapsed",
        width=340,
        format_func=visible,
    )
    return by_name[chosen or names[paths[0]]]


def distinct_names(paths: Sequence[str]) -> dict[str, str]:
    """Path -> the shortest end of it that no other path shares."""
    names = {}
    for path in paths:
        parts = Path(path).parts
        ends = ("/".join(parts[-size:]) for size in range(1, len(parts) + 1))
        others = [other for other in paths if other != path]
        names[path] = next((end for end in ends if not any(f"/{other}".endswith(f"/{end}") for other in others)), path)
    return names


def gap_picker(gaps: Sequence[str]) -> str:
    """The gap to look at: the first on record unless chosen."""
    known = [gap for gap in GAPS if gap in gaps]
    chosen = st.segmented_control(
        "gap", known, key="gap", bind="query-params", default=known[0], required=True, label_visibility="collapsed"
    )
    gap = chosen if chosen in known else known[0]
    sides = gap_words(gap).partition(" ")[2].strip("()")
    st.caption(sides if gap in SAMPLED else f"{sides} · {NOT_SAMPLED}", width="content")
    return gap


def step_picker(view: View) -> int:
    """A recorded step: the worst one unless chosen; a step between recorded ones gives the nearest.

    Its default is no step at all, so that the step that is shown always stands in the URL, also once the run has grown.
    """
    steps = view.run.steps
    if asked("step") is None:
        st.session_state["step"] = worst_step(view.grades(), steps)
    chosen = st.number_input(
        "step",
        min_value=steps[0],
        max_value=steps[-1],
        value=None,
        step=_apart(steps),
        key="step",
        bind="query-params",
        width=170,
    )
    return worst_step(view.grades(), steps) if chosen is None else nearest(steps, int(chosen))


def asked(key: str) -> str | int | None:
    """The choice that was made for this key, by hand or by the URL; None where none was."""
    chosen = st.session_state.get(key)
    return st.query_params.get(key) if chosen is None else chosen


def worst_step(grades: pl.DataFrame, steps: Sequence[int]) -> int:
    """The first of the steps with the worst grade; the last step where none is worse than healthy."""
    bad = grades.filter(pl.col("severity") != SEVERITIES[0])
    if bad.is_empty():
        return steps[-1]
    worst = bad.sort("severity", "value", descending=True, nulls_last=True)
    return nearest(steps, worst["step"][0])


def nearest(steps: Sequence[int], step: int) -> int:
    """The recorded step next to this one."""
    return min(steps, key=lambda recorded: (abs(recorded - step), recorded))


def severity_of(view: View, step: int) -> dict[str, object] | None:
    """The step's row of the grades, where it could be graded."""
    rows = view.grades().filter(pl.col("step") == step)
    return rows.row(0, named=True) if len(rows) else None


def _apart(steps: Sequence[int]) -> int:
    """The smallest distance between recorded steps, so that + and - reach each of them."""
    return min((later - earlier for earlier, later in zip(steps, steps[1:], strict=False)), default=1)
