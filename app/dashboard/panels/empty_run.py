"""The page of a run that has nothing to show yet: the lines that attach to the reader's trainer."""

import streamlit as st

from ...browser.code import code
from ...pages.view import View
from ...presentation.escape import streamlit_label as label
from ...presentation.run_names import typed_path
from ...presentation.sentence import capital
from ..model.looks import state_seen
from ..model.served_runs import Served
from .controls import NOT_SERVED

MOST_OFFERED = 20
"""Most runs that are listed in place of one that is not served."""
FIRST = "TRL"
"""The trainer that is shown first if run.json names none."""
WAITS = "This page updates by itself as soon as there is something to show."


def say_empty(view: View, why: str) -> None:
    """Advice for a run that has no gap to show. why: see why_no_gap."""
    state = state_seen(view.path)
    over = "The run has ended." if state.ended else "The run is dead."
    st.info(f"{label(capital(why), 800)} {WAITS if state.may_grow else over}")
    how_to_attach(view.run.place, view.run.info.get("trainer"))


def say_not_served(served_runs: Served) -> None:
    """The page of an address whose run is not served: the served ones to choose from, and nothing of any of them."""
    wanted = label(str(st.session_state[NOT_SERVED]), 200)
    waits = " This page shows it as soon as it begins there." if served_runs.waits else ""
    st.warning(f"The run **{wanted}** of this address is not served here, or no longer.{waits}")
    names = list(served_runs.runs)
    more = f", {MOST_OFFERED} of {len(names):,}" if len(names) > MOST_OFFERED else ""
    st.caption(f"Served here{more}:")
    for name in names[:MOST_OFFERED]:
        st.button(label(name, 200), key=f"open_{name}", type="tertiary", on_click=_open, args=(name,))


def _open(name: str) -> None:
    st.session_state["run"] = name


def say_no_run() -> None:
    """Advice for a list of runs of which none has a gap."""
    st.info(f"No run here has the log-probs of two policies for the same tokens yet. {WAITS}")
    how_to_attach()


def say_no_tokens(view: View) -> None:
    """The page about tokens of a run that can have none."""
    st.info(
        f"Not available, because {view.run.no_tokens}. Overview and Metrics show what the log holds. "
        "`ratioscope.attach(trainer, run_dir)` records tokens in the next run."
    )


def how_to_attach(path: str = "", trainer: object = None) -> None:
    """The lines to paste for a trainer: the run's own if it is known, else the one that the reader chooses."""
    from ...presentation.trainers import (  # imports the collectors' table of trainers
        OTHER,
        TITLES,
        chosen_lines,
        title_of,
    )

    titles = [*TITLES, OTHER]
    known = title_of(trainer) or FIRST
    chosen = st.selectbox(
        "your trainer", titles, index=titles.index(known), key="attach_to", bind="query-params", width=280
    )
    for place, (what_for, lines) in enumerate(chosen_lines(chosen or known, typed_path(path) or "runs/my-run")):
        st.caption(what_for)
        code(lines, f"attach_{place}", language="python" if lines.startswith("import") else "bash")
