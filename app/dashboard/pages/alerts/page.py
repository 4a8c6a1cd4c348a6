"""The Alerts page: steps out of bounds by signal, the rules that open alerts, and the alerts under other rules."""

from collections.abc import Sequence

import numpy as np
import polars as pl
import streamlit as st

from ratioscope.metrics.grading.alerts import RULES, Alert, Rules, alert_frame, alerts, merged_gaps
from ratioscope.metrics.grading.finding import Finding
from ratioscope.metrics.grading.run_rules import RULES_FILE

from ....browser.code import code
from ....figures.alert_lanes import alert_lanes
from ....figures.html.reasons import reasons
from ....pages.scope import Scope
from ....presentation.alert_words import counted, in_order, none_words, not_graded, passed_checks, passed_words
from ....presentation.digits import count, digits
from ....presentation.escape import streamlit_label as label
from ....presentation.metric_places import titled
from ....presentation.theme import MARKS
from ...model.acknowledgement import acknowledged
from ...panels.charts import appearance, clicked, draw, page_contents, table
from ...panels.choices import choice, dropdown
from ...panels.layout import control_row
from ...panels.links import go_to
from ...panels.verdict_box import cause_line
from .alert_table import alert_table
from .rules import moved, rules_table, rules_toml

AS_IS = "none"
"""The entry of the signal picker for no signal."""
ALL, MINE = "all gaps", "this gap"


def render(scope: Scope) -> None:
    graded = scope.view.events_and_alerts().graded
    with control_row("alerts"):
        which = choice("alerts of", (ALL, MINE), "of", label_visibility="collapsed")
        in_force = scope.view.rules.rules
        with st.popover("try other rules", icon=":material/tune:", key="other_rules"):
            rules = _rules(in_force)
    if not scope.recorded:
        st.info("The run has none of the chosen steps.")
        return
    shown = _within(scope, graded if which != MINE else graded.filter(gap=scope.gap))
    run_alerts = merged_gaps(alerts(shown, rules))
    if changed := scope.view.rules.sentence:
        st.warning(label(changed, 2000))
    _say(run_alerts, rules, in_force, shown, scope.view.verdict())
    cause_line(scope.view)
    if run_alerts:
        known = acknowledged(scope.view)
        ordered = in_order(run_alerts, known)
        _timeline(scope, ordered)
        alert_table(scope, ordered, known)
    _silent(shown, run_alerts, rules, scope.view.verdict())
    _in_force(rules, in_force)


def _within(scope: Scope, graded: pl.DataFrame) -> pl.DataFrame:
    """The grades of the chosen steps, as if the run consisted of them."""
    if scope.steps.whole:
        return graded
    return graded.filter(scope.within)


def _rules(in_force: Rules) -> Rules:
    """The rules of the run, or the reader's changes of them, which apply to this page and its link alone."""
    opens = "An alert opens after this many graded steps in a row out of bounds."
    open_after = _whole("open after", RULES.open_after, "open_after", opens)
    closes = "An alert closes after this many calm graded steps in a row."
    close_after = _whole("close after", RULES.close_after, "close_after", closes)
    hysteresis = st.number_input(
        "hysteresis", 0.0, 0.95, RULES.hysteresis, 0.05, key="hysteresis", bind="query-params", width=120,
        help="A signal is calm when it is this share below its watch threshold.",
    )  # fmt: skip
    names = [AS_IS, *(signal.name for signal in in_force.signals)]
    name = dropdown("try other thresholds for", names, "moved", width=340, shown=lambda name: _title(name, in_force))
    signals = in_force.signals
    if name != AS_IS:
        own = in_force.signal(name)
        watch = st.number_input("watch from", value=own.watch, min_value=0.0, key=f"watch_{name}", bind="query-params",
                                format="%.4g", width=130)  # fmt: skip
        act = st.number_input("act from", value=own.act, min_value=0.0, key=f"act_{name}", bind="query-params", format="%.4g",
                              placeholder="never", width=130)  # fmt: skip
        signals = moved(in_force.signals, name, watch, act)
    return Rules(open_after, close_after, float(hysteresis), signals)


def _title(name: str, in_force: Rules) -> str:
    return name if name == AS_IS else titled(in_force.signal(name).title, name)


def _whole(name: str, default: int, key: str, about: str) -> int:
    return int(st.number_input(name, 1, 1000, default, key=key, bind="query-params", width=120, help=about))


def _say(run_alerts: Sequence[Alert], rules: Rules, in_force: Rules, shown: pl.DataFrame, verdict: Finding) -> None:
    """Prints the number of alerts, and under changed rules the number under the rules of the run too."""
    number = counted(run_alerts, none_words(verdict, rules))
    if rules == in_force:
        st.markdown(f"**{number}**")
        return
    asis = merged_gaps(alerts(shown, in_force))
    before = counted(asis, none_words(verdict, in_force))
    known = {(alert.signal.name, alert.gap, alert.first_step) for alert in asis}
    fresh = sum((alert.signal.name, alert.gap, alert.first_step) not in known for alert in run_alerts)
    st.markdown(f"**With these rules: {number}**, {fresh} of them new. With {_named(in_force)}: {before}.")
    st.button(
        f"back to {_named(in_force)}",
        key="as_is",
        on_click=_back,
        args=(in_force,),
        type="tertiary",
        icon=":material/undo:",
    )


def _named(in_force: Rules) -> str:
    """The rules of the run in words."""
    return "the default rules" if in_force == RULES else f"the rules of {RULES_FILE}"


def _back(run_rules: Rules) -> None:
    """Sets every rule to that of the run. A deleted choice would be read from the URL again."""
    in_force: dict[str, object] = {
        "open_after": RULES.open_after,
        "close_after": RULES.close_after,
        "hysteresis": RULES.hysteresis,
        "moved": AS_IS,
    }
    for signal in run_rules.signals:
        in_force |= {f"watch_{signal.name}": signal.watch, f"act_{signal.name}": signal.act}
    for name, value in in_force.items():
        if name in st.session_state:
            st.session_state[name] = value


def _timeline(scope: Scope, run_alerts: Sequence[Alert]) -> None:
    """The lanes in the order of the table below them."""
    frame = alert_frame(run_alerts)
    chosen = scope.range
    ends = np.array([chosen[0], chosen[-1]] if chosen else [], np.float64)
    noted = scope.view.events().filter(~pl.col("kind").is_in(["watch", "act"]))
    noted = noted.filter(scope.within)
    st.session_state["_peaks"] = frame["peak_step"].to_list()
    draw(
        alert_lanes(frame, ends, [alert.outside for alert in run_alerts], events=noted, theme=appearance()),
        "lanes",
        f"Alerts over the steps, by signal: {counted(run_alerts)}",
        numbers=lambda: frame,
        on_click=_bar_chosen,
    )


def _bar_chosen() -> None:
    if (bar := clicked("lanes")) is not None:
        go_to("sequences", step=st.session_state["_peaks"][int(bar[1])])


def _silent(shown: pl.DataFrame, run_alerts: Sequence[Alert], rules: Rules, verdict: Finding) -> None:
    """The signals without an alert with their largest values and limits, and the signals that could not be graded."""
    passed = passed_checks(shown, run_alerts, rules)
    if len(passed):
        st.markdown(f"**{MARKS[verdict.coverage.word]} {passed_words(passed)}**")
        rows = [[digits(each) if isinstance(each, float) else each for each in row] for row in passed.rows()]
        page_contents().tables["Checks without an alert"] = lambda: passed
        st.html(reasons(passed.columns, rows, theme=appearance()))
    if absent := not_graded(shown, verdict):
        st.caption(f"Not graded: {label(' · '.join(absent), 1200)}")


def _in_force(rules: Rules, in_force: Rules) -> None:
    title = _named(in_force) if rules == in_force else "the changed rules"
    drawer = st.expander(title, key="rules", on_change="rerun", bind="query-params")
    if drawer.open:
        with drawer:
            st.caption(
                f"An alert opens after {count(rules.open_after, 'graded step')} in a row out of bounds and closes after"
                f" {rules.close_after} in a row that lie {digits(100 * rules.hysteresis)}% below the watch threshold."
                " Two standard errors are subtracted before a value is graded, so that a small sample alone opens no alert."
            )
            table(
                rules_table(rules),
                title,
                column_config={
                    name: st.column_config.NumberColumn(format="%.3g") for name in ("watch from", "act from")
                },
            )
            code(rules_toml(rules), "rules_file", language="toml")
            st.caption(f"Thresholds of signals stay in force if they lie in the file {RULES_FILE} of the run folder.")
