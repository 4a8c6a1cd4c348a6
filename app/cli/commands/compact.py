"""`ratioscope compact RUN`: fewer, larger files, for runs of many ranks and steps. A Run shows the same data as before."""

from dataclasses import asdict

from ...presentation.digits import count
from ..terminal import first_of, print_json, say, working
from .arguments import AsJson, OwnRun, WritersEnded


def compact(run: OwnRun, writers_ended: WritersEnded = False, as_json: AsJson = False) -> int:
    """Merge the token files of each step and the statistics of many steps; `prune` then deletes the old ones."""
    from ...upkeep.maintenance import compact as merge

    with working(f"compacting {run}"):
        done = merge(run, writers_ended=writers_ended)
    if as_json:
        print_json(asdict(done))
        return 0
    if done.written:
        merged = f"{count(done.replaced, 'file')} merged into {len(done.written)}"
        say(f"{merged}; to delete the old files: ratioscope prune {run} --yes")
    else:
        say("nothing to merge")
    if done.condensed:
        say(f"shortened {count(done.condensed, 'commit log')} for readers")
    for line in first_of([f"{item.what} was left as it is: {item.reason}" for item in done.skipped]):
        say(line)
    return 0
