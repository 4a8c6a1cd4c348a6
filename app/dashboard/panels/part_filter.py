"""The filter of the header: a part of the tokens, typed or picked from lists with counts, shown as chips that can be removed.

The token rows that a filter needs: read at once where they are few, else in the background, with progress.
The words on steps without a reading, and the first look at the token rows of a gap with a reading.
"""

from collections.abc import Sequence
from dataclasses import replace

import polars as pl
import streamlit as st

from ratioscope.errors import ConfigError
from ratioscope.ingest.analysis.resolution import coarse_words, too_coarse
from ratioscope.ingest.jobs.part_job import PartResults, PartWork, part_digests
from ratioscope.ingest.rows.part import Only, Part, part_of, part_text
from ratioscope.metrics.analysis.slice_parts import bucket_label

from ...pages.scope import Scope
from ...pages.slice_absences import known_slices, read_rows, slice_frame, steps_shown, wrong_part
from ...pages.step_choice import are_few, names, not_read
from ...pages.view import View, asked_gap
from ...presentation.digits import count
from ...presentation.escape import streamlit_label as label
from ...presentation.escape import visible
from ...presentation.gap_words import direction
from ...presentation.slice_names import BY_NAME, UNFILTERED, key_order, part_words, term_words
from ...presentation.step_words import steps_words
from ..model.view import jobs
from .choices import dropdown
from .controls import field, say_wrong
from .job_progress import job_at_work
from .widgets import WIDGETS

ABOUT = (
    "Shows a part of the tokens only. Type slice=key, such as lag=6, or (lag=6 or lag=7) and replica=a. A slice without a key"
    " lists its keys; ? lists the slices. The button beside it picks from lists."
)
MOST_KEYS = 500
"""Most keys in a list: those with the most tokens."""

REDRAWN = 4
"""Number of progress updates after which the page shows the steps read so far."""


def part_field(view: View, gap: str) -> Part | None:
    """The chosen part of the tokens. It is in the URL as text. A click on a bar of the page Where changes it too.

    The choice is a text field, not a list: the URL holds a list's labels, which differ from keys with invisible characters.
    """
    typed = field("only", "all tokens, or lag=6", 190, help=ABOUT)
    part = part_asked(typed)
    _picker(view, gap, part)
    if typed and (wrong := wrong_part(view, typed)):
        say_wrong(wrong)
    if part is not None:
        _chips(part)
    if typed:
        st.button("", icon=":material/close:", key="only_off", help="all tokens", type="tertiary", on_click=filter_by)
    return part


def part_asked(typed: str) -> Part | None:
    """The part that the text means; None if it is unclear or names a slice that no page can be filtered by."""
    try:
        part = part_of(typed)
    except ConfigError:
        return None
    known = part is not None and all(term.slice in BY_NAME and term.slice not in UNFILTERED for term in part.terms)
    return part if known else None


def filter_by(part: Part | None = None) -> None:
    """Fills the filter field in, or empties it. It must be called before the script runs, from a callback."""
    st.session_state["only"] = "" if part is None else part_text(part)


def _chips(part: Part) -> None:
    """A button for each term, which removes it, with the words between them."""
    number = 0
    for group in part.groups:
        for place, term in enumerate(group):
            if number:
                st.caption("or" if place else "and", width="content")
            st.button(
                label(term_words(term), 60),
                icon=":material/filter_alt_off:",
                key=f"only_off_{number}",
                help="remove this condition",
                on_click=filter_by,
                args=(part.without(term),),
            )
            number += 1


def _picker(view: View, gap: str, part: Part | None) -> None:
    """A drawer with the slices, and the keys of one with their numbers of tokens."""
    drawer = st.popover("filter", icon=":material/filter_alt:", type="tertiary", key="filter", on_change="rerun")
    if not drawer.open:
        return
    with drawer:
        name = dropdown(
            "part of the tokens by", known_slices(view), "filter_slice", width=320, shown=_title, bind=False
        )
        words = BY_NAME[name]
        frame = slice_frame(view, WIDGETS, words, steps_shown(view, WIDGETS, words, None), gap)
        keys, sizes = _keys(frame, name, gap)
        chosen = st.multiselect(
            "show tokens with any of",
            keys,
            key=f"filter_keys_{name}",
            width=320,
            format_func=lambda key: _shown(name, key, sizes),
        )
        if len(frame) > len(keys):
            st.caption(f"the {count(len(keys), 'key')} with the most tokens, of {count(len(frame), 'key')}")
        with st.container(horizontal=True):
            for how in ("and", "or") if part is not None else ("show",):
                st.button(
                    JOINS[how][0],
                    key=f"filter_{how}",
                    help=JOINS[how][1],
                    disabled=not chosen,
                    on_click=_join,
                    args=(part, how, name, tuple(chosen)),
                )


JOINS = {
    "show": ("show only these", "tokens with any of the chosen keys"),
    "and": ("and these", "tokens that have one of these keys and meet the other conditions too"),
    "or": ("or these", "tokens that have one of these keys, or meet the last condition"),
}


def _join(part: Part | None, how: str, name: str, keys: Sequence[str]) -> None:
    """Adds the chosen keys to the filter, and empties their list."""
    chosen = tuple(Only(name, key) for key in keys)
    if part is None:
        filter_by(Part((chosen,)))
    elif how == "or":
        filter_by(Part((*part.groups[:-1], (*part.groups[-1], *chosen))))
    else:
        filter_by(Part((*part.groups, chosen)))
    st.session_state[f"filter_keys_{name}"] = []


def _keys(frame: pl.DataFrame, name: str, gap: str) -> tuple[list[str], dict[str, str]]:
    """(keys in their order, key -> the number of its tokens in words)."""
    tokens = f"{gap}/tokens"
    if name not in frame.columns or tokens not in frame.columns:
        return [], {}
    rows = frame.select(key=pl.col(name).cast(pl.String), tokens=pl.col(tokens)).drop_nulls("key")
    rows = rows.filter(pl.col("tokens") > 0).top_k(MOST_KEYS, by="tokens")
    rows = rows[key_order(rows["key"]).arg_sort().to_list()]
    return rows["key"].to_list(), {key: count(size, "token") for key, size in rows.iter_rows()}


def _shown(name: str, key: str, sizes: dict[str, str]) -> str:
    return f"{visible(bucket_label(name, key), 40)} · {sizes.get(key, 'no token')}"


def _title(name: str) -> str:
    return BY_NAME[name].title


def with_part(scope: Scope) -> Scope:
    """The scope, with the number of steps that were read for its filter. The page shows the progress of a longer reading."""
    part = scope.only
    if part is None or (part.written is not None and not scope.from_rows):
        return scope
    return replace(scope, read=tuple(_read(scope, view, part) for view in (scope.view, *scope.others)))


def _read(scope: Scope, view: View, part: Part) -> int:
    """The number of steps of a run that were read."""
    results = jobs().part(view.path, part, scope.gap)
    digests = view.of(part_digests, scope.gap)
    chosen = [step for step in scope.steps.recorded(view.steps) if step in digests]
    steps = len(scope.steps.recorded(view.steps)) - len(chosen)
    if steps:
        said, them = f"{count(steps, 'step')} {'has' if steps == 1 else 'have'}", "it" if steps == 1 else "them"
        st.caption(f":material/info: {said} no token rows, which this filter needs, so charts leave {them} out.")
    missing = results.ledger.missing(digests, chosen)
    if missing and are_few(view, missing):
        with st.spinner("reading token rows"):
            work = PartWork(view.run, results, missing)
            for step in work.pieces:
                work.do(step)
            work.save()
        missing = results.ledger.missing(digests, chosen)
    elif missing:
        _in_background(view, results, missing)
    if results.sampled(digests):
        st.caption(":material/info: The filter is estimated from the token rows that the budget kept.")
    return len(chosen) - len(missing)


def _in_background(view: View, results: PartResults, missing: Sequence[int]) -> None:
    """The progress of the job that reads these steps, or the button that starts it again after it was cancelled."""
    name = f"part {view.path} {results.gap} {part_text(results.part)}"
    job = jobs().of(name)
    if job is not None and job.progress.state in ("cancelled", "failed"):
        reason = f", because {label(job.progress.reason, 200)}" if job.progress.reason else ""
        with st.container(horizontal=True, vertical_alignment="center"):
            st.caption(f"{count(len(missing), 'step')} not read for the filter{reason}", width="content")
            st.button("read them", key=f"read_{name}", on_click=_start, args=(name, view, results, tuple(missing)))
        return
    if job is None or not job.progress.at_work:
        _start(name, view, results, missing)
    job_at_work(name, f"reading token rows of {label(part_words(results.part), 100)}", redrawn=REDRAWN)


def _start(name: str, view: View, results: PartResults, missing: Sequence[int]) -> None:
    jobs().read_part(name, view.run, results, missing)


def say_digits(scope: Scope) -> None:
    """A caption where the digits of the file are too few for a small gap."""
    known = scope.view.of(too_coarse).get(scope.gap)
    if known is not None:
        st.caption(f":material/info: {label(coarse_words(scope.gap, known), 300)}")


def have_read(scope: Scope) -> bool:
    """True if the gap can be measured at a chosen step; else the page has the reason. It lists steps without a reading.

    The token rows of a gap with a reading are read once, with a bar.
    """
    if not asked_gap(scope.gap):
        return True
    read = set(scope.view.read_steps(scope.gap))
    chosen = scope.recorded
    if not read & set(chosen):
        st.info(f"{label(scope.gap)} is {label(not_read(scope.view, scope.gap, chosen), 400)}")
        return False
    read_rows(scope.view, WIDGETS, ("step",), direction(scope.gap), None, scope.gap)
    if lacking := [step for step in chosen if step not in read]:
        at = f"at {steps_words(lacking, scope.view.steps)} {scope.gap} is not available"
        have = "it has" if len(lacking) == 1 else "they have"
        st.caption(f":material/info: {label(at)}, because {have} no reading {label(names(scope.view, scope.gap))}")
    return True
