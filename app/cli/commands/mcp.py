"""`ratioscope mcp RUN_OR_FOLDER`: lets an agent read runs over the Model Context Protocol."""

from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from ratioscope.errors import ConfigError, MissingExtra, SourceError

USUAL_SECONDS = 120.0

FolderArgument = Annotated[
    str | None,
    typer.Argument(metavar="RUN_OR_FOLDER", help="A run folder, or a folder that contains runs. Nothing else is read."),
]
TextOption = Annotated[bool, typer.Option("--text", help="Show prompts and token texts too.")]
SecondsOption = Annotated[float, typer.Option(metavar="N", min=1, max=3600, help="Most seconds of one answer.")]
SkillOption = Annotated[bool, typer.Option("--skill", help="Print the skill file for an agent, and exit.")]


def mcp(
    folder: FolderArgument = None,
    text: TextOption = False,
    seconds: SecondsOption = USUAL_SECONDS,
    skill: SkillOption = False,
) -> int:
    """Serve runs to an agent, read-only, over standard input and output.

    An agent's program starts this command: docs/agents.md has the lines to paste. The answers are those of the verbs.
    """
    if skill:
        print(files("ratioscope.app.cli.agents").joinpath("SKILL.md").read_text(encoding="utf-8"), end="")
        return 0
    if folder is None or "://" in folder:
        raise ConfigError(
            f"ratioscope mcp {folder or ''}: wanted a folder on this machine, with runs in it or below it"
        )
    if not Path(folder).is_dir():
        raise SourceError(f"{folder} is no folder; wanted a run folder, or a folder that contains runs")
    if find_spec("mcp") is None:
        raise MissingExtra("ratioscope mcp", "mcp")
    from ..agents.server import Served, serve

    serve(Served(Path(folder).resolve(), text, seconds))
    return 0
