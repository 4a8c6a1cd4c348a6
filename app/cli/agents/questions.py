"""The questions that an agent may ask, as data: each is a verb with --json; and the runs that it may name.

`commands/agent_reading.py` adds two verbs that only agents use.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratioscope.collectors.batch.text_policy import name_or_digest
from ratioscope.errors import SourceError
from ratioscope.ingest.files.run_tree import RunTree, runs_below

from ...presentation.escape import visible
from ...presentation.metric_places import names_at

Arguments = Mapping[str, Any]
"""Name -> text or whole number, as the schema of the question allows. Runs are paths of folders here."""
RUNS = ("run", "before", "after")
"""Arguments that name a run of the served folder."""
TEXT, NO_TEXT = "text", "no-text"
"""The first argument of the process that answers."""
MOST_ROWS, USUAL_ROWS = 200, 20
MOST_SEQUENCES = 5
LONGEST_ARGUMENT = 200
"""Characters."""
_CORE = ",".join(dict.fromkeys((*names_at("core", "mismatch"), *names_at("core", "drift"))))


def _text(about: str) -> dict[str, Any]:
    return {"type": "string", "maxLength": LONGEST_ARGUMENT, "description": about}


def _number(about: str, least: int, most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most, "description": about}


_RUN = _text("The run, by a name that list_runs gives.")
_GAP = _text("mismatch, total or drift, or A:B of any two policies or readings; else the one of the verdict.")


@dataclass(frozen=True)
class Question:
    """A tool."""

    name: str
    about: str
    """When to call it, and what its answer holds."""
    arguments: Mapping[str, Mapping[str, Any]]
    """Name -> its JSON schema."""
    needed: tuple[str, ...]
    """Arguments that must be given."""
    command: Callable[[Arguments], Sequence[str]]
    """The arguments of the command line that answers."""
    part: Callable[[Any, Arguments], Any] = lambda answer, asked: answer
    """The part of the verb's answer that was asked for."""

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of all arguments."""
        own = {name: dict(schema) for name, schema in self.arguments.items()}
        return {"type": "object", "properties": own, "required": list(self.needed), "additionalProperties": False}


def _options(asked: Arguments, *names: str) -> list[str]:
    return ["--json", *(f"--{name}={asked[name]}" for name in names if name in asked)]


def _newest(rows: list[dict[str, Any]], asked: Arguments) -> list[dict[str, Any]]:
    """The rows of the asked steps, the newest if there are more than asked for."""
    low, high = asked.get("from_step", 0), asked.get("to_step", 2**62)
    return [row for row in rows if low <= row.get("step", low) <= high][-asked.get("rows", USUAL_ROWS) :]


QUESTIONS = (
    Question(
        "list_runs",
        "Every run of the served folder: name, steps, severity of the verdict, since which step, size of the gap, state.",
        {"first": _number("Place of the first run of the answer, from 0.", 0, 1000)},
        (),
        lambda asked: ["runs", str(asked["root"]), f"--first={asked.get('first', 0)}"],
    ),
    Question(
        "verdict",
        "The state of a run in one answer: verdict, size of the gap, likely cause, what is not measured and why.",
        {"run": _RUN},
        ("run",),
        lambda asked: ["info", asked["run"], "--json"],
    ),
    Question(
        "diagnose",
        "Why the sampling and the training policy are apart: likely causes with their share and remedies, what is ruled out,"
        " what the record cannot tell.",
        {"run": _RUN, "gap": _GAP, "steps": _text("A:B, only these steps, both included.")},
        ("run",),
        lambda asked: ["diagnose", asked["run"], *_options(asked, "gap", "steps")],
    ),
    Question(
        "metrics",
        f"Numbers per step, the newest {USUAL_ROWS} rows unless asked otherwise; null is not available, and never 0.",
        {
            "run": _RUN,
            "metric": _text(f"Names, comma separated; else {_CORE}."),
            "gap": _GAP,
            "by": _text("step, run, or a slice: lag, replica, position, probability, turn; step,lag for both."),
            "from_step": _number("First step.", 0, 2**62),
            "to_step": _number("Last step.", 0, 2**62),
            "rows": _number("Rows of the answer.", 1, MOST_ROWS),
        },
        ("run",),
        lambda asked: ["metrics", asked["run"], *_options({"metric": _CORE, **asked}, "metric", "gap", "by")],
        _newest,
    ),
    Question(
        "worst_sequences",
        "The sequences with the largest |log-ratio| of a token, and their tokens around it.",
        {"run": _RUN, "gap": _GAP, "most": _number("Sequences of the answer.", 1, MOST_SEQUENCES)},
        ("run",),
        lambda asked: ["worst", asked["run"], *_options(asked, "gap", "most")[1:]],
    ),
    Question(
        "corrections",
        "The effects that importance-sampling corrections would have had: effective sample size, bias, what is clipped.",
        {"run": _RUN, "gap": _GAP, "dialect": _text("A trainer, such as verl: its own presets instead.")},
        ("run",),
        lambda asked: ["corrections", asked["run"], *_options(asked, "gap", "dialect")],
    ),
    Question(
        "compare",
        "Whether a change helped: the difference of two runs with its error, where they part, settings that differ.",
        {"before": _RUN, "after": _RUN, "gap": _GAP},
        ("before", "after"),
        lambda asked: ["diff", asked["before"], asked["after"], *_options(asked, "gap")],
    ),
    Question(
        "explain",
        "The card of a metric or signal: formula, unit, direction, bands, and its name in every trainer.",
        {"name": _text("A metric, a signal, or a trainer's own name for a number.")},
        ("name",),
        lambda asked: ["explain", "--json", "--", asked["name"]],
    ),
)  # fmt: skip


LONGEST = 200
"""Characters of an asked name in an error."""


def served(root: Path) -> tuple[dict[str, Path], RunTree]:
    """(name -> folder, the search). A name is the path below the folder, or its digest where that is a sentence."""
    tree = runs_below(root)
    return {name_or_digest(path.relative_to(root).as_posix()): path for path in tree.runs}, tree


def run_named(root: Path, name: str) -> Path:
    """The folder of this run. SourceError for any name that `served` does not give."""
    known = served(root)[0]
    if name not in known:
        some = ", ".join(list(known)[:5]) or "no run"
        raise SourceError(
            f"no run is named {visible(name, LONGEST)!r} in the served folder, which has {some}; wanted a name that"
            " list_runs gives"
        )
    return known[name]
