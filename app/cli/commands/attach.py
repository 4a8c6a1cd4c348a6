"""`ratioscope attach TRAINER`: the lines to paste; `--list`: every trainer; `--check`: would the installed ones be recorded?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratioscope.errors import ConfigError

from ..blocks_printed import print_pairs, print_table
from ..drift import adapter_of
from ..drift import check as check_trainers
from ..terminal import print_json, say
from .arguments import AsJson

if TYPE_CHECKING:
    from ratioscope.collectors.adapter import Adapter

NOT_FOUND = "not found"


def attach(
    trainer: Annotated[
        str | None,
        typer.Argument(
            metavar="TRAINER", help="A trainer, e.g. verl or nemo-rl; with --check a file of your own, too."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="RUN_DIR", help="The run folder to record into.")] = Path("runs/tonight"),
    everything: Annotated[bool, typer.Option("--list", help="List every trainer instead.")] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Look up what the adapter needs in the source of the trainer, without a run."),
    ] = False,
    source: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Check this checkout, not what is installed here.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the lines that record a trainer, what they record, and the tested versions."""
    if trainer is not None and _is_path(trainer):
        from ..own_file import check_file

        if not (check or source is not None):
            do = f"ratioscope attach {trainer} --check tells what of it would be recorded"
            raise ConfigError(f"{trainer} is a path; wanted the name of a trainer, see ratioscope attach --list; {do}")

        check_file(Path(trainer), source, as_json)
    elif check or source is not None:
        check_trainers(trainer, source, as_json)
    elif trainer is None or everything:
        _list(as_json)
    elif as_json:
        from ...presentation.trainers import to_paste

        print_json(_facts(adapter_of(trainer)) | {"paste": to_paste(adapter_of(trainer), str(out))})
    else:
        _tell(adapter_of(trainer), out)


def _is_path(word: str) -> bool:
    """True for a file or a folder, which no trainer is named like."""
    from ratioscope.collectors.trainers import adapter_named

    return word.endswith((".py", ".ipynb")) or "/" in word or (Path(word).exists() and adapter_named(word) is None)


def _tell(adapter: "Adapter", out: Path) -> None:
    from ...presentation.trainers import objects, sampler_logprobs, tested, ways

    say(adapter.title, "bold")
    takes = f"its {objects(adapter)}, or" if objects(adapter) else "no trainer object:"
    pairs = [
        ("tested with", tested(adapter)),
        ("installed here", adapter.version or NOT_FOUND),
        ("records", adapter.records),
        ("sampler's log-probs", sampler_logprobs(adapter).replace("`", "")),
        ("ratioscope.attach takes", f"{takes} the name {adapter.name!r}, in each process"),
    ]
    print_pairs([pair for pair in pairs if pair[1]])
    for what_for, lines in ways(adapter, str(out)):
        say()
        say(f"{what_for}:", "dim")
        say()
        for line in lines.splitlines():
            say(line)


def _list(as_json: bool) -> None:
    from ratioscope.collectors.trainers import ADAPTERS

    from ...presentation.trainers import ANY_OTHER, against

    if as_json:
        print_json([_facts(adapter) for adapter in ADAPTERS])
        return
    rows = [(a.name, a.version or NOT_FOUND, ", ".join(a.tested), against(a)) for a in ADAPTERS]
    print_table(("trainer", "installed here", "tested with", "tested against"), rows)
    say()
    say(f"ratioscope attach TRAINER prints what to paste; {ANY_OTHER}")


def _facts(adapter: "Adapter") -> dict[str, Any]:
    return {
        "name": adapter.name,
        "title": adapter.title,
        "installed": adapter.version,
        "tested": adapter.tested,
        "against": adapter.against,
        "classes": adapter.classes,
        "records": adapter.records,
    }
