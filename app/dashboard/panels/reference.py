"""The run, or the saved baseline, that the folder of the shown run pins, and the saved baselines beside it."""

import shlex
from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from ratioscope.errors import ConfigError, RatioscopeError
from ratioscope.ingest.files.folder import is_run
from ratioscope.ingest.files.reference_file import pinned_above

from ...pages.view import View
from ...presentation.escape import streamlit_label as label
from ...presentation.escape import visible
from ...presentation.noise_floor import NoiseFloor
from ...presentation.run_names import typed_path
from ...referee.baselines import baseline, baseline_names
from ...referee.floor_of_run import reference_floor
from ..model.live import beside
from ..model.served_runs import Served
from .choices import dropdown
from .controls import asked, say_wrong

NO_FLOOR = "no baseline"
ABOUT = "Charts and cards compare with this: the pinned run of the folder, or a baseline of `ratioscope baseline save`."


@dataclass(frozen=True)
class ReferenceValues:
    """The values that the charts compare with."""

    floor: NoiseFloor | None = None
    """Its values: a dotted line on charts, words on cards."""
    view: View | None = None
    """The run, whose courses are drawn faintly; None for a saved baseline."""


NOTHING = ReferenceValues()


def reference_picker(served_runs: Served, shown: View, gap: str) -> ReferenceValues:
    """The chosen run or baseline: by default the pinned one. No control where none is pinned and no baseline is saved."""
    known, folder = None, Path(shown.path).parent
    try:
        known, folder = pinned_above(Path(shown.path), served_runs.roots)
    except ConfigError as error:
        say_wrong(str(error))
    names = list(baseline_names())
    word = "" if known is None else known.name if known.kind == "baseline" else f"pinned run {visible(known.name, 80)}"
    if known is not None and known.kind == "baseline" and known.name not in names:
        say_wrong(f"the folder pins the baseline {known.name[:80]}, which is not saved here")
        word = ""
    options = list(dict.fromkeys([*([word] if word else []), *names]))
    wanted = asked("baseline")
    if known is not None and word and wanted == f"reference {visible(known.name, 80)}":  # a link of an older version
        st.session_state["baseline"] = wanted = word
    if wanted is not None and wanted not in (NO_FLOOR, *options):
        say_wrong(f"no baseline {str(wanted)[:80]} is saved here")
        if options:
            st.session_state["baseline"] = NO_FLOOR
    if not options:
        return NOTHING
    options = [word, NO_FLOOR, *(name for name in options if name != word)] if word else [NO_FLOOR, *options]
    chosen = dropdown("baseline", options, "baseline", width=200, help=ABOUT, label_visibility="collapsed")
    if chosen == NO_FLOOR:
        return NOTHING
    if known is not None and known.kind == "run" and chosen == word:
        return _of_run(served_runs, folder, known.name, shown, gap)
    try:
        return ReferenceValues(baseline(chosen))
    except ConfigError as error:
        say_wrong(str(error))
        return NOTHING


def _not_compared(why: str, folder: Path) -> ReferenceValues:
    """A grey note with the commands that mend it: the run itself is shown all the same."""
    place = shlex.quote(typed_path(str(folder)))
    mend = f"pin another: ratioscope baseline pin RUN in {place}, or none: ratioscope baseline unpin {place}"
    st.caption(f":material/info: {label(f'{why}; {mend}', 600)}", width="content")
    return NOTHING


def _of_run(served_runs: Served, folder: Path, name: str, shown: View, gap: str) -> ReferenceValues:
    """The pinned run, if it can be read: its folder names it, so it need not be served itself. It never lies elsewhere."""
    path = folder / name
    if str(path) == shown.path:
        st.caption(":material/keep: this is the pinned run", width="content")
        return NOTHING
    is_served = str(path) in served_runs.runs.values()
    if not is_served and not (is_run(path) and path.resolve().is_relative_to(folder.resolve())):
        return _not_compared(f"the pinned run {name[:80]} is no run in its folder, or no longer", folder)
    try:
        view = beside(str(path))
        floor = view.of(reference_floor, visible(name, 60), gap)
    except RatioscopeError as error:
        return _not_compared(f"the pinned run {name[:80]} cannot be read: {str(error)[:200]}", folder)
    if floor is None:
        st.caption(f":material/info: {label(f'the pinned run {name[:80]} has no {gap}', 200)}", width="content")
    return ReferenceValues(floor, view)
