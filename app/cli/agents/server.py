"""The server: it speaks the Model Context Protocol on standard input and output, and reads nothing outside one folder."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import mcp_types as types
from anyio.abc import ByteReceiveStream
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from ratioscope.errors import ConfigError, RatioscopeError, SourceError
from ratioscope.version import __version__

from ..exit_codes import OK
from .bounds import NOTICE, bounded_answer, bounded_error
from .questions import NO_TEXT, QUESTIONS, RUNS, TEXT, Question, run_named

MOST_READ = 64 << 20
"""Bytes that a verb may print. A convention: a hundred times the answer on a long run."""
AT_ONCE = 2
"""Questions that are answered at the same time; others wait."""
_BY_NAME = {question.name: question for question in QUESTIONS}
_HINTS = types.ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)


@dataclass(frozen=True)
class Served:
    """The folder that a server reads, and the bounds of an answer."""

    root: Path
    """The folder, without links."""
    text: bool
    """True if prompts and token texts are shown."""
    seconds: float
    """Time of one answer."""


def serve(served: Served) -> None:
    """Answers on standard input and output until the client leaves."""
    anyio.run(_serve, served)


async def _serve(served: Served) -> None:
    free = anyio.CapacityLimiter(AT_ONCE)

    async def listed(context: Any, page: Any) -> types.ListToolsResult:  # Any: the SDK's own, which are not read
        return types.ListToolsResult(tools=[_tool(question) for question in QUESTIONS])

    async def called(context: Any, asked: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            async with free:
                return _result(bounded_answer(await _answer(served, asked.name, asked.arguments or {})))
        except RatioscopeError as error:
            return _result(bounded_error(str(error)), is_error=True)

    server = Server("ratioscope", version=__version__, instructions=NOTICE, on_list_tools=listed, on_call_tool=called)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def _tool(question: Question) -> types.Tool:
    return types.Tool(name=question.name, description=question.about, input_schema=question.schema, annotations=_HINTS)


def _result(text: str, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=is_error)


async def _answer(served: Served, name: str, asked: Mapping[str, Any]) -> Any:
    """The JSON that the verb prints. ConfigError for a wrong question; SourceError where there is no answer."""
    if (question := _BY_NAME.get(name)) is None:
        raise ConfigError(f"there is no tool {name[:80]!r}; wanted one of {', '.join(_BY_NAME)}")
    try:
        jsonschema.validate(dict(asked), question.schema)
    except jsonschema.ValidationError as error:
        raise ConfigError(f"{name}: {error.message}; wanted the arguments {', '.join(question.arguments)}") from error
    paths = {each: str(run_named(served.root, asked[each])) for each in RUNS if each in asked}
    command = question.command({**asked, **paths, "root": served.root})
    child = [
        sys.executable,
        "-P",
        "-m",
        "ratioscope.app.cli.commands.agent_reading",
        TEXT if served.text else NO_TEXT,
        *command,
    ]
    code, printed, told = await _ended(child, served.seconds)
    if code != OK:
        lines = told.decode(errors="replace").strip().splitlines() or [f"{name} ended with exit code {code}"]
        raise SourceError(lines[-1].removeprefix("error: "))
    return question.part(json.loads(printed), asked)


async def _ended(command: list[str], seconds: float) -> tuple[int, bytes, bytes]:
    """(exit code, standard output, standard error) of a process, which is gone in the end, with all that it started."""
    printed, told = bytearray(), bytearray()
    process = await anyio.open_process(command, stdin=subprocess.DEVNULL, start_new_session=True)
    assert process.stdout and process.stderr
    try:
        with anyio.fail_after(seconds):
            async with anyio.create_task_group() as both:
                both.start_soon(_read, process.stdout, printed)
                both.start_soon(_read, process.stderr, told)
            code = await process.wait()
    except TimeoutError as error:
        raise SourceError(
            f"the answer took more than {seconds:g} seconds; ask for fewer steps, or start: ratioscope mcp --seconds N"
        ) from error
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with anyio.CancelScope(shield=True):
            await process.aclose()
    if len(printed) > MOST_READ:
        raise SourceError(f"the verb printed more than {MOST_READ:,} bytes; ask for fewer steps or metrics")
    return code, bytes(printed), bytes(told)


async def _read(stream: ByteReceiveStream, into: bytearray) -> None:
    """All that the stream holds; what comes after MOST_READ bytes is thrown away."""
    async for part in stream:
        if len(into) <= MOST_READ:
            into += part
