"""The frame around a page: the choice of run, gap and page, and a message if there is nothing to show."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from ratioscope.errors import RatioscopeError
from ratioscope.ingest.analysis.copies import judged_first
from ratioscope.ingest.analysis.feature_requirements import why_no_gap

from ..blocks import Block
from ..browser.listener import body_begins, listen, made_choices, page_begins
from ..pages.empty_run import no_gap_yet, no_tokens, none_served, not_served
from ..pages.folder import MOST_OTHERS, chosen_runs, opened
from ..pages.logged_numbers import no_metric
from ..pages.pages import LETTERS, MOVED, PAGES, TOPICS, Page, ScopeChoice, address_of, lead_of, tabs_of
from ..pages.running_scripts import at_work
from ..pages.scope import Scope, Steps
from ..pages.view import View
from ..presentation.escape import streamlit_label as label
from .blocks_drawn import drawn
from .model.live import follow_beside, followed, live_line, may_grow, note_drawn, pause_button
from .model.served_folder import served_folder
from .model.served_runs import Served, served, watch
from .model.view import SERVED
from .panels.charts import LOG_X, begin_page, page_contents, show_numbers
from .panels.controls import NOT_SERVED, gap_picker, log_x_switch, run_picker, steps_field
from .panels.layout import IN_HEADER, elsewhere, go_to
from .panels.part_filter import have_read, part_field, say_digits, with_part
from .panels.reference import NOTHING, reference_picker
from .panels.share import keys_button, note_button, share, views_button
from .panels.tab import name_tab
from .panels.widgets import WIDGETS

FEW = 3
"""Most runs of a server whose address opens a run; that of a server of more opens the list."""
NO_RUN = "No run was given. Start the dashboard with one: `ratioscope dashboard RUN`"
PAUSES = "_pauses"
"""True if the header of the page has a button that pauses updates."""


def main() -> None:
    """The script of every interaction: the choices that all pages share, then the page.

    The choices are made outside the page, so that they keep their place in the URL when the page changes.
    """
    name_tab()
    draw: list[Callable[[], object]] = []
    run = partial(_call_first, draw)
    pages = {card.path: _page(run, card) for card in PAGES}
    moved = {old: st.Page(run, title=old, url_path=old, visibility="hidden") for old in MOVED}
    in_order = sorted(PAGES, key=lambda card: TOPICS.index(card.topic))
    current = st.navigation([*(pages[card.path] for card in in_order), *moved.values()], position="top")
    for old, page in moved.items():
        if page is current:
            go_to(MOVED[old], **{key: st.query_params.get_all(key) for key in st.query_params})
    card = next(card for card in PAGES if pages[card.path] is current)
    is_first_look = card is PAGES[0] and not st.query_params and "_path" not in st.session_state
    if is_first_look and len(served().runs) > FEW:
        go_to(lead_of("Runs").path)
    with at_work():
        draw.append(prepared(card))
        current.run()


def _page(run: Callable[[], None], card: Page) -> Any:
    """The page as Streamlit's navigation has it: the first of a topic by the name of the topic, the others hidden.

    Any: a class that Streamlit names by a function.
    """
    leads = lead_of(card.topic) is card
    return st.Page(
        run, title=card.topic if leads else card.title, url_path=card.path,
        visibility="visible" if leads else "hidden", default=card is PAGES[0],
    )  # fmt: skip


def _call_first(draw: list[Callable[[], object]]) -> None:
    draw[0]()
    note_drawn()


@st.fragment(key="body")
def _body(draw: Callable[[], object], tools: "_Tools", made: Mapping[str, str], chosen: Mapping[str, object]) -> None:
    """The page below its header. A choice that is made here draws this part alone: a third of the time is the header's.

    made: the choices that the header made for the reader. chosen: the reader's in the header, which a click here can change.
    """
    if chosen != _chosen_in_header():
        st.rerun()
    body_begins(made)
    page_contents().clear()
    with at_work():
        draw()
        if tools.shown is not None:
            if tools.shown.run.unkept:  # the reason why every visit computes results of this run again
                st.caption(f":material/info: {label(tools.shown.run.unkept, 400)}")
            if may_grow(tools.shown) and not st.session_state[PAUSES]:  # the reader has put another run beside this one
                st.rerun()
    letters = {letter: address_of(path) for letter, path in LETTERS.items()}
    listen(letters, {address_of(each.path): each.help for each in PAGES}, show_numbers, go_to)


def prepared(card: Page) -> Callable[[], object]:
    """Draws the header of a page. Returns the function that draws the rest: the page on the chosen run, or an error."""
    page_begins(address_of(card.path), address_of(lead_of(card.topic).path))
    served_runs = served()
    if not served_runs.roots:
        return partial(_drawn, NO_TOOLS, partial(st.info, NO_RUN))
    if not served_runs.runs:
        watch(served_runs)
        nowhere = partial(none_served, served_runs.roots)
        return partial(_drawn, NO_TOOLS, partial(drawn, nowhere, Scope(View("", 0, SERVED))))
    header = st.container(horizontal=True, vertical_alignment="center", gap="small", key="header")
    with header:
        name = run_picker(served_runs)
    if card.about == "runs":
        watch(served_runs)
        with header:
            _tabs(card)
            tools = _tools(card, name or "", None)
        return partial(
            _drawn, tools, partial(drawn, card.blocks, Scope(View(served_runs.runs.get(name or "", ""), 0, SERVED)))
        )
    if name is None:
        watch(served_runs)
        waits = " This page shows it as soon as it begins there." if served_runs.waits else ""
        elsewhere = partial(not_served, str(st.session_state[NOT_SERVED]), [*served_runs.runs], waits)
        return partial(_drawn, NO_TOOLS, partial(drawn, elsewhere, Scope(View("", 0, SERVED))))
    try:
        chosen = followed(served_runs.runs[name])
    except RatioscopeError as error:
        return partial(_drawn, NO_TOOLS, partial(st.error, label(str(error), 600)))
    return _on_run(card, served_runs, name, chosen, header)


def _on_run(card: Page, served_runs: Served, name: str, chosen: View, header: DeltaGenerator) -> Callable[[], object]:
    """Draws the choices for a run. Returns the function that draws the page, or why there is nothing to draw."""
    heeds = _heeded(card, chosen)
    with header:
        gap = ""
        if "gap" in heeds:
            gaps = chosen.of(judged_first)
            gap = gap_picker(gaps, chosen.run.reading_gaps, takes_readings="readings" in heeds)
        line = st.container(width="content")
        tools = _tools(card, name, chosen)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="header_choices"):
        _tabs(card, chosen)
        steps = steps_field() if "steps" in heeds else Steps()
        only = part_field(chosen, gap) if "only" in heeds else None
        reference = reference_picker(served_runs, chosen, gap) if "floor" in heeds else NOTHING
        st.session_state[LOG_X] = "steps" in heeds and log_x_switch(chosen)
        others = _others(served_runs, name) if "others" in heeds else []
    left_out: list[Block] = []
    beside = tuple(opened(served_folder(), others, left_out).values())
    drawn(lambda _: left_out, Scope(chosen))
    with line:
        live_line(chosen, partial(name_tab, chosen))
    if (reason := _reason_for_nothing(card, chosen)) is not None:
        return partial(_drawn, tools, reason)
    scope = Scope(
        chosen,
        gap,
        steps,
        only,
        reference.floor,
        beside,
        from_rows=only is not None and "histograms" in card.choices,
        reference=reference.view,
    )
    return partial(_drawn, tools, partial(_rendered, card, scope))


def _tabs(card: Page, shown: View | None = None) -> None:
    """Links to the pages of the topic; grey where the run lacks what the page shows, which the page then says."""
    tabs = tabs_of(card)
    if len(tabs) == 1:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="xsmall", width="content", key="tabs"):
        for each in tabs:
            lacks = shown is not None and _reason_for_nothing(each, shown) is not None
            title = f":gray[{each.title}]" if lacks else each.title
            st.page_link(_page(elsewhere, each), label=title)


def _others(served_runs: Served, shown: str) -> list[str]:
    """Names of the runs to lay over the one that is shown."""
    title, names = "compare with", [name for name in served_runs.runs if name != shown]
    look = {"placeholder": title, "most": MOST_OTHERS, "width": 230, "has_title": False}
    return chosen_runs(WIDGETS, names, "with", title, **look) if names else []


def _reason_for_nothing(card: Page, chosen: View) -> Callable[[], object] | None:
    """The function that says why the page has nothing to show on this run; None if it has something."""
    if card.reads_tokens and chosen.run.no_tokens:
        return partial(drawn, no_tokens, Scope(chosen))
    if chosen.run.steps and not chosen.run.gaps and chosen.run.no_tokens:
        if card.about == "beside":
            return None
        return partial(drawn, no_metric, Scope(chosen))
    if not card.shows_empty and (why := chosen.of(why_no_gap)):
        return partial(drawn, partial(no_gap_yet, why), Scope(chosen))
    return None


def _heeded(card: Page, shown: View) -> frozenset[ScopeChoice]:
    """The choices that the page can offer for this run: a run without tokens has none to filter."""
    if not (shown.run.steps and shown.run.gaps):
        return frozenset()
    return card.choices - {"only"} if shown.run.no_tokens else card.choices


def _rendered(card: Page, scope: Scope) -> None:
    if "readings" in card.choices:
        say_digits(scope)
    if "steps" not in card.choices or have_read(scope):
        drawn(card.blocks, with_part(scope) if "steps" in card.choices else scope)


@dataclass(frozen=True)
class _Tools:
    """The end of the header of a page on `shown`: places that are filled after the page is drawn."""

    shown: View | None = None
    pausing: bool = False
    """True if the pause button is drawn already."""
    pause: DeltaGenerator | None = None
    """Place of the button that stops the refresh."""


NO_TOOLS = _Tools()
"""A header without a run has none."""


def _tools(card: Page, name: str, shown: View | None) -> _Tools:
    """The tools of every page: pause, link and downloads."""
    with st.container(
        horizontal=True, horizontal_alignment="right", vertical_alignment="center", gap="xsmall", key="tools"
    ):
        pause = st.container(width="content")
        pausing = shown is not None and may_grow(shown)
        if pausing:
            pause_button(pause)
        place = shown.run.place if shown is not None and shown.run.steps else ""
        share(begin_page(name, card.path), place)
        if shown is not None:
            note_button(shown)
            views_button(shown, {address_of(each.path) for each in PAGES}, MOVED)
        keys_button()
    return _Tools(shown, pausing, pause)


def _drawn(tools: _Tools, draw: Callable[[], object]) -> None:
    """Draws the page below its header, then what the header can show only by then."""
    st.session_state[PAUSES] = True
    with st.container(key="body_place"):
        _body(draw, tools, made_choices(), _chosen_in_header())
    if tools.shown is None or tools.pause is None:
        return
    name_tab(tools.shown)
    if not tools.pausing and may_grow(tools.shown):  # a run beside the page's own may grow
        pause_button(tools.pause)
        follow_beside(tools.shown, partial(name_tab, tools.shown))
    st.session_state[PAUSES] = may_grow(tools.shown)


def _chosen_in_header() -> dict[str, object]:
    return {key: st.session_state.get(key) for key in IN_HEADER}
