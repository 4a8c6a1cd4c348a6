"""`ratioscope bundle RUN...`: the dashboard's main pages as files, or the zip file without text for a bug report."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ratioscope.errors import ConfigError

from ...export.site_folder import demand_replaceable, write_folder
from ...export.whole_file import demand_free, whole_files
from ...presentation.digits import count, size_on_disk
from ..terminal import say, stages, working
from .arguments import RunFolders, attempt_asked, opened, runs_at

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="PLACE",
        help="DIR: a folder of pages, of one run or several. FILE.html: all pages of a run in one file. FILE.zip: the file for a "
        "bug report, without text. Without it: RUN.bundle.zip in this folder, or bundle.pages for several runs.",
    ),
]
NoTextOption = Annotated[
    bool, typer.Option("--no-text", help="Leave prompts and token texts out of the pages. A zip file has none anyway.")
]
SequencesOption = Annotated[
    int | None, typer.Option(metavar="N", min=0, help="At most so many sequences in FILE.zip, without their text.")
]


def bundle(
    runs: RunFolders, output: OutputOption = None, no_text: NoTextOption = False, sequences: SequencesOption = None
) -> None:
    """Write the dashboard's pages to send or to put on a web host, or a zip file to attach to a bug report.

    -o DIR and -o FILE.html write pages: the browser opens them from disk, and they load and send nothing. They contain the
    texts of the ten worst sequences of each run unless --no-text is given. DIR takes several runs, and its first page lists
    them, the worst first. -o FILE.zip writes settings, the diagnosis, metrics by step and some sequences, without any text.
    Only you can read what is written; use chmod to share it.
    """
    if output is None and len(runs) > 1 and runs[-1].suffix.lower() in (".zip", ".html") and not runs[-1].is_dir():
        *runs, output = runs  # as `zip` and `tar` are called
    folders = runs_at(runs)
    several = len(folders) > 1
    target = output or Path("bundle.pages" if several else f"{folders[0].resolve().name}.bundle.zip")
    ending = target.suffix.lower()
    if several and ending in (".html", ".zip"):
        raise ConfigError(
            f"-o {target}: one file holds one run, and {len(folders)} runs were named; wanted a folder:"
            f" try: -o {target.stem}, or name one run"
        )
    if sequences is not None and ending != ".zip":
        raise ConfigError(f"-o {target} --sequences: only a zip file takes it; try: --output {target.stem}.zip")
    if several:
        _write_several(folders, target, text=not no_text)
    elif ending == ".zip":
        _write_zip(opened(folders[0]), target, sequences)
    else:
        _write_pages(opened(folders[0]), target, text=not no_text)


def _write_zip(run: "Run", target: Path, sequences: int | None) -> None:
    from ...export.bundle import SEQUENCES
    from ...export.bundle import bundle as bundled

    demand_free([target], force=False)
    with working(f"bundling {run.name}"):
        content = bundled(run, SEQUENCES if sequences is None else sequences)
    with whole_files([target], force=False) as (file,):
        file.write(content)
    say(
        f"wrote {target} ({size_on_disk(len(content))}): settings, diagnosis, metrics by step, and sequences without text"
    )
    say("Read its settings.json before you send it.")
    say(f"For pages that a browser opens: ratioscope bundle RUN -o {target.stem.removesuffix('.bundle')}-pages", "dim")


def _write_pages(run: "Run", target: Path, *, text: bool) -> None:
    from ...documents.document import FIRST, files, one_file
    from ...documents.material import material
    from ...pages.pages import PAGES

    is_file = target.suffix.lower() == ".html"
    if is_file:
        demand_free([target], force=True)
    else:
        demand_replaceable(target)
    with stages("pages", len(PAGES) + 1) as stage:
        read = material(run, text=text, stage=stage)
        if is_file:
            content = one_file(read).encode()
            with whole_files([target], force=True) as (file,):
                size = file.write(content)
        else:
            size = write_folder(target, files(read).items())
    say(read.words.brief, read.verdict.word)
    say(f"wrote {target} ({size_on_disk(size)}): {'one page' if is_file else f'open {target / FIRST}'}")
    _say_who_reads(target, text=read.text)


def _write_several(folders: Sequence[Path], target: Path, *, text: bool) -> None:
    from ratioscope.ingest.run import open_run

    from ...documents.document import FIRST, folder_of
    from ...documents.material import material
    from ...pages.pages import PAGES

    demand_replaceable(target)
    for folder in folders:
        opened(folder)  # a folder that is no run is an error before anything is read
    with stages("pages", (len(PAGES) + 1) * len(folders)) as stage:
        read = (material(open_run(folder, attempt=attempt_asked()), text=text, stage=stage) for folder in folders)
        size = write_folder(target, folder_of(read))
    say(f"wrote {target} ({size_on_disk(size)}): {count(len(folders), 'run')}; open {target / FIRST}")
    _say_who_reads(target, text=text)


def _say_who_reads(target: Path, *, text: bool) -> None:
    texts = "It has the texts of the worst sequences; --no-text leaves them out." if text else "No text is in it."
    say(f"{texts} Only you can read it; chmod -R a+rX {target} lets a web server read it.", "dim")
