"""The command line: `ratioscope VERB`. Verbs live in commands/. This file lists them and turns their exceptions into exit codes.

    0 ok    1 findings (of verify, check, parity, weights, import; else with --fail-on)    2 usage    3 unreadable
    4 not measured (of check and parity; else with --fail-on)    70 a defect of ratioscope

An error is one line on standard error, without a traceback: what was found, what was wanted and what to try.
"""

import inspect
import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from ratioscope.app import end_in_silence
from ratioscope.errors import ConfigError, MissingExtra, RatioscopeError
from ratioscope.pandas_guard import keep_pandas_out
from ratioscope.version import __version__

from . import terminal
from .commands.arguments import with_attempt
from .exit_codes import DEFECT as DEFECT
from .exit_codes import FINDINGS as FINDINGS
from .exit_codes import INTERRUPTED as INTERRUPTED
from .exit_codes import OK as OK
from .exit_codes import UNMEASURED as UNMEASURED
from .exit_codes import UNREADABLE as UNREADABLE
from .exit_codes import USAGE as USAGE

PANELS: dict[str, tuple[str, ...]] = {
    "Record": ("run", "attach", "import", "estimate", "note"),
    "Look": ("ls", "info", "dashboard", "watch", "metrics", "explain", "demo", "mcp"),
    "Act": ("diagnose", "diff", "corrections", "check", "parity", "rescore", "weights", "identity", "baseline"),
    "Keep": ("report", "bundle", "export", "sync", "wandb", "push", "index", "verify", "repair", "compact", "prune"),
}
"""The verbs as the help groups them, the main ones first."""
VERBS = tuple(verb for verbs in PANELS.values() for verb in verbs)
WITHOUT_PANDAS = frozenset(VERBS) - {
    "demo", "run", "import", "dashboard", "rescore", "parity", "identity", "export", "wandb", "sync", "mcp",
}  # fmt: skip
"""The verbs that call nothing but pyarrow that would import pandas. The others start programs or call other packages."""
OF_ONE_ATTEMPT = (
    "baseline", "bundle", "check", "corrections", "dashboard", "diagnose", "diff", "estimate", "export", "identity", "index",
    "info", "metrics", "report", "rescore", "sync", "verify", "watch",
)  # fmt: skip
"""The verbs that read runs and take --attempt; `wandb sync` does, too."""
KEYWORDS = {"import": "import_dump"}
"""Verb -> its module and function, where the verb is a keyword of Python."""
_CLICK_EXCEPTION = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

HELP = (
    "Measure how far the policy that sampled is from the policy that trains, per step, sequence and token; find the cause, and"
    " what to do."
)
EPILOG = (
    "Exit codes: 0 ok, 1 findings (of verify, check, parity, weights and import; else with --fail-on), 2 usage, 3 unreadable,"
    " 4 not measured. Start with: ratioscope demo"
)


def main(argv: Sequence[str] | None = None, also: Sequence[Callable[..., Any]] = ()) -> int:
    """Runs one command and returns its exit code. Never raises for anything that a user can cause. also: further verbs."""
    code = _run(argv, also)
    deadline: Any = sys.modules.get("ratioscope.ingest.remote.store")
    if argv is None and deadline and deadline.going_on():  # at its end the client of S3 would wait for the store
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _run(argv: Sequence[str] | None, also: Sequence[Callable[..., Any]]) -> int:
    try:
        if signal.getsignal(signal.SIGINT) is end_in_silence:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if argv is None and WITHOUT_PANDAS.intersection(sys.argv[1:2]):
            keep_pandas_out()
        for stream in (sys.stdout, sys.stderr):
            if reconfigure := getattr(stream, "reconfigure", None):
                reconfigure(errors="backslashreplace")  # a terminal without Unicode shows what it can
        code = application(also)(
            args=list(sys.argv[1:] if argv is None else argv), prog_name="ratioscope", standalone_mode=False
        )
        sys.stdout.flush()
        return int(code or OK)
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except (
        SystemExit
    ) as ended:  # typer's answer to a broken pipe, after it has wrapped stdout; and to a completion request
        return OK if type(sys.stdout).__name__ == "PacifyFlushWrapper" else int(ended.code or OK)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as found:
        return _explained(found)


def application(also: Sequence[Callable[..., Any]] = ()) -> typer.Typer:
    """The verbs as a typer application. also: further verbs, by the names of their functions."""
    app = typer.Typer(name="ratioscope", help=HELP, epilog=EPILOG, no_args_is_help=True, pretty_exceptions_enable=False)
    app.callback()(_options)
    for panel, verb in ((panel, verb) for panel, verbs in PANELS.items() for verb in verbs):
        name = KEYWORDS.get(verb, verb)
        module = import_module(f".commands.{name}", __package__)
        command: Callable[..., Any] | typer.Typer = getattr(module, name)
        if isinstance(command, typer.Typer):  # a verb of several verbs
            for part in command.registered_commands:
                part.help = _help_of(part.callback)
            app.add_typer(command, name=verb, rich_help_panel=panel)
        else:
            command = with_attempt(command) if verb in OF_ONE_ATTEMPT else command
            context = getattr(module, "CONTEXT", None)
            app.command(verb, help=_help_of(command), context_settings=context, rich_help_panel=panel)(command)
    for command in also:
        app.command(command.__name__)(command)
    return app


def _help_of(command: Callable[..., Any] | None) -> str:
    """The docstring with a line per paragraph, because a terminal would keep the breaks of the source beside its own."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    return "\n\n".join(text if "\n " in text else text.replace("\n", " ") for text in paragraphs)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"ratioscope {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def _explained(error: Exception) -> int:
    if isinstance(error, _CLICK_EXCEPTION):
        if message := _usage(error):
            terminal.error(message)
        return USAGE
    if isinstance(error, (ConfigError, MissingExtra)):
        terminal.error(str(error))
        return USAGE
    if isinstance(error, RatioscopeError):
        terminal.error(str(error))
        return UNREADABLE
    if isinstance(error, OSError):
        terminal.error(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}; check the path")
        return UNREADABLE
    if isinstance(error, MemoryError):
        terminal.error(f"there is not enough memory for this run ({error}); try fewer steps, or a machine with more")
        return UNREADABLE
    import traceback  # a defect of ours: its code is one that no script takes for findings

    traceback.print_exception(error)
    terminal.error(f"this is a defect of ratioscope {__version__}, not of your run; please report the lines above")
    return DEFECT


def _usage(error: Any) -> str:
    """typer's own message with the command that prints the help; empty if the help itself was printed."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "ratioscope"
    message = error.format_message().strip().rstrip(".")
    return f"{message}; try: {command} --help" if message else ""
