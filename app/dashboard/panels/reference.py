"""The reference of the project: the run, or the saved baseline, that the folder of the shown run names as known good."""

import shlex
from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from ratioscope.errors import ConfigError, RatioscopeError
from ratioscope.ingest.files.folder import is_run
from ratioscope.ingest.files.reference_file import Pinned, pin, pinned, unpin

from ...pages.view import View
from ...presentation.escape import streamlit_label as label
from ...presentation.escape import visible
from ...presentation.noise_floor import NoiseFloor
from ...presentation.run_names import shortened, typed_path
from ...referee.baselines import baseline, baseline_names
from ...referee.floor_of_run import reference_floor
from ..model.live import beside
from ..model.served_runs import Served
from .choices import dropdown
from .controls import asked, say_wrong

NO_FLOOR = "no baseline"
SAID = "_reference_said"
ABOUT = "Charts and cards compare with this: the pinned reference of the folder, or a noise floor of `ratioscope baseline save`."


@dataclass(frozen=True)
class ReferenceValues:
    """The values that the charts compare with."""

    floor: NoiseFloor | None = None
    """Its values: a dotted line on charts, words on cards."""
    view: View | None = None
    """The run, whose courses are drawn faintly; None for a saved baseline."""


NOTHING = ReferenceValues()


def reference_picker(served_runs: Served, shown: View, gap: str) -> ReferenceValues:
    """The chosen reference: by default the pinned one. No control where none is pinned and no baseline is saved."""
    known, folder = _pinned_for(served_runs, shown.path)
    names = list(baseline_names())
    word = "" if known is None else known.name if known.kind == "baseline" else f"reference {visible(known.name, 80)}"
    if known is not None and known.kind == "baseline" and known.name not in names:
        say_wrong(f"the folder pins the baseline {known.name[:80]}, which is not saved here")
        word = ""
    options = list(dict.fromkeys([*([word] if word else []), *names]))
    wanted = asked("baseline")
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


def pin_button(served_runs: Served, name: str) -> None:
    """A button that pins the run as the reference of its folder, or takes it away."""
    path = served_runs.runs[name]
    known, folder = _pinned_for(served_runs, path)
    project = _folders(served_runs, Path(path))[-1]
    is_pinned = known is not None and known.kind == "run" and str(folder / known.name) == path
    st.button(
        "unpin the reference" if is_pinned else f"pin {label(shortened(name))} as reference",
        key=f"pin_{name}",
        icon=":material/keep_off:" if is_pinned else ":material/keep:",
        help="Every chart and card of the runs in its folder then compares with it.",
        on_click=_change,
        args=(str(folder), None) if is_pinned else (str(project), Path(path).relative_to(project).as_posix()),
    )
    if said := st.session_state.pop(SAID, ""):
        st.caption(label(said, 400), width="content")


def _change(folder: str, run: str | None) -> None:
    try:
        if run is None:
            unpin(Path(folder))
        else:
            pin(Path(folder), Pinned("run", run))
        st.session_state[SAID] = (
            "No run is the reference now." if run is None else f"{run} is the reference of {folder}."
        )
    except ConfigError as error:
        st.session_state[SAID] = f"Not pinned: {error}"


def _pinned_for(served_runs: Served, path: str) -> tuple[Pinned | None, Path]:
    """(the reference, its folder) of the nearest folder above the run that pins one, up to the served folder."""
    for folder in _folders(served_runs, Path(path)):
        try:
            if (found := pinned(folder)) is not None:
                return found, folder
        except ConfigError as error:
            say_wrong(str(error))
            break
    return None, Path(path).parent


def _folders(served_runs: Served, run: Path) -> list[Path]:
    """The folders above a run, from its own up to the served one; for a run that is served itself its folder alone."""
    root = next((Path(root) for root in served_runs.roots if Path(root) in run.parents), run.parent)
    return [folder for folder in run.parents if folder == root or root in folder.parents]


def _not_compared(why: str, folder: Path) -> ReferenceValues:
    """A grey note with the commands that mend it: the run itself is shown all the same."""
    place = shlex.quote(typed_path(str(folder)))
    mend = f"pin another: ratioscope baseline pin RUN in {place}, or none: ratioscope baseline unpin {place}"
    st.caption(f":material/info: {label(f'{why}; {mend}', 600)}", width="content")
    return NOTHING


def _of_run(served_runs: Served, folder: Path, name: str, shown: View, gap: str) -> ReferenceValues:
    """The reference run, if it can be read: its folder names it, so it need not be served itself. It never lies elsewhere."""
    path = folder / name
    if str(path) == shown.path:
        st.caption(":material/keep: this run is the reference", width="content")
        return NOTHING
    is_served = str(path) in served_runs.runs.values()
    if not is_served and not (is_run(path) and path.resolve().is_relative_to(folder.resolve())):
        return _not_compared(f"the reference {name[:80]} is no run in its folder, or no longer", folder)
    try:
        view = beside(str(path))
        floor = view.of(reference_floor, visible(name, 60), gap)
    except RatioscopeError as error:
        return _not_compared(f"the reference {name[:80]} cannot be read: {str(error)[:200]}", folder)
    if floor is None:
        st.caption(f":material/info: {label(f'the reference {name[:80]} has no {gap}', 200)}", width="content")
    return ReferenceValues(floor, view)
