"""`ratioscope baseline`: saves the floor of a run under a name, or pins a run, to compare other runs with."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ratioscope.errors import ConfigError
from ratioscope.ingest.files.reference_file import Pinned, pin, unpin

from ...blocks import Facts
from ..blocks_printed import print_blocks
from ..terminal import print_json, say, working
from .arguments import AsJson, opened

ActionArgument = Annotated[str, typer.Argument(metavar="save|list|show|remove|pin|unpin", help="The action.")]
WordsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RUN as] NAME", help="save RUN as NAME, show NAME, remove NAME, pin RUN, pin NAME in FOLDER."
    ),
]
USES = {
    "save": "ratioscope baseline save RUN as NAME",
    "list": "ratioscope baseline list",
    "show": "ratioscope baseline show NAME",
    "remove": "ratioscope baseline remove NAME",
    "pin": "ratioscope baseline pin RUN, or: ratioscope baseline pin RUN|NAME in FOLDER",
    "unpin": "ratioscope baseline unpin FOLDER",
}


def baseline(action: ActionArgument, words: WordsArgument = None, as_json: AsJson = False) -> int:
    """Save the floor of a run under a name, or pin a run that others are compared with. Other verbs take --baseline NAME.

    save, list, show and remove are of saved baselines. pin has every run in a folder compared with one run of it, or with a
    saved baseline: dashboard, info, diagnose and report do so.

    The floor is the distance of two computations of one policy: referee and referee_again, else the trainer and trainer_again,
    else the gap of a healthy run. It is kept in ~/.config/ratioscope/baselines, with what it was measured on.
    """
    from ...referee.baselines import remove_baseline

    given = tuple(words or ())
    if action == "save" and len(given) == 3 and given[1] == "as":
        return _save(Path(given[0]), given[2], as_json=as_json)
    if action == "list" and not given:
        return _list(as_json=as_json)
    if action == "show" and len(given) == 1:
        return _show(given[0], as_json=as_json)
    if action == "remove" and len(given) == 1:
        remove_baseline(given[0])
        say(f"removed {given[0]}")
        return 0
    if action == "pin" and (len(given) == 1 or (len(given) == 3 and given[1] == "in")):
        return _pin(given[0], Path(given[2]) if len(given) == 3 else None)
    if action == "unpin" and len(given) == 1:
        unpin(Path(given[0]))
        say(f"the runs in {given[0]} are compared with none now")
        return 0
    wanted = USES.get(action) or "; ".join(USES.values())
    raise ConfigError(f"baseline {' '.join((action, *given))[:200]}: wanted {wanted}")


def _save(run: Path, name: str, *, as_json: bool) -> int:
    from ...referee.baselines import demand_name, plain_baseline, write_baseline
    from ...referee.floor_of_run import floor_of_run

    demand_name(name)
    opened_run = opened(run)
    with working(f"measuring the floor of {opened_run.name}"):
        floor = floor_of_run(opened_run, name)
    path = write_baseline(floor)
    if as_json:
        print_json(plain_baseline(floor) | {"path": str(path)})
    else:
        _print(floor)
        say(f"saved as {path}; compare with: ratioscope report RUN --baseline {name}")
    return 0


def _list(*, as_json: bool) -> int:
    from ...presentation.noise_floor import floor_facts
    from ...referee.baselines import baseline as saved
    from ...referee.baselines import baseline_names, baselines_folder, plain_baseline

    rows: list[Any] = []
    for name in baseline_names():
        try:
            rows.append(saved(name))
        except ConfigError as error:
            say(str(error), "watch")
    if as_json:
        print_json([plain_baseline(floor) for floor in rows])
    elif rows:
        print_blocks(
            [Facts([(floor.name, f"{' '.join(floor_facts(floor)[1])}; {floor.how}, of {floor.run}") for floor in rows])]
        )
    else:
        say(f"no baseline in {baselines_folder()}; try: {USES['save']}")
    return 0


def _show(name: str, *, as_json: bool) -> int:
    from ...referee.baselines import baseline as saved
    from ...referee.baselines import plain_baseline

    floor = saved(name)
    if as_json:
        print_json(plain_baseline(floor))
    else:
        _print(floor)
    return 0


def _pin(chosen: str, folder: Path | None) -> int:
    """Pins a run in its own folder or in one above it, or a saved baseline in a folder."""
    from ...referee.baselines import baseline as saved

    if folder is not None and not Path(chosen).is_dir():
        pin(folder, Pinned("baseline", saved(chosen).name))
    else:
        found = opened(Path(chosen), is_reference=True)
        if found.is_remote:
            raise ConfigError(
                f"{found.place} is on a store; wanted a run in a folder of this machine, beside those it is for"
            )
        run = found.path.resolve()
        folder = run.parent if folder is None else folder.resolve()
        if folder not in run.parents:
            raise ConfigError(f"{run} is not below {folder}; wanted a folder that holds the run")
        pin(folder, Pinned("run", run.relative_to(folder).as_posix()))
    say(f"the runs in {folder} are compared with {chosen} now; see: ratioscope dashboard {folder}")
    return 0


def _print(floor: Any) -> None:
    from ...presentation.noise_floor import floor_facts

    say(f"baseline {floor.name}", "bold")
    print_blocks([Facts(floor_facts(floor))])
