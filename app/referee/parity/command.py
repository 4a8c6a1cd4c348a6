"""A scorer that is a command: it reads sequences as JSON lines on its standard input, and writes a line of log-probs for each.

A line in has `prompt_ids` and `token_ids`. A line out is a JSON list with the log-prob of each of the `token_ids`, in nats at
temperature 1, in the same order. The command runs once for all sequences, without a shell and without the servers' key.
"""

import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np

from ratioscope.arrays import Singles
from ratioscope.errors import ConfigError, SourceError

from ..inputs import ModelBounds, Sequence_
from ..likeliest import ABOVE
from ..server import KEY

BYTES_OF_TOKEN = 64
"""Bytes of an answer for each token, at most: a number in JSON takes about 20."""
SAID, MOST_SAID = 300, 1 << 24
"""The last characters of its standard error that are shown, and bytes of it that are kept meanwhile."""
LOOK = 0.05
"""Seconds between two looks at a command that runs."""


@dataclass(frozen=True)
class Command:
    """A command that scores."""

    words: tuple[str, ...]
    """The program and its arguments, which may hold a secret: the program alone is shown."""
    seconds: float
    """The time that all sequences may take."""
    room = ModelBounds(1 << 31, None, "the command")
    """The sequences that it can read: all."""

    @property
    def name(self) -> str:
        return f"the command {os.path.basename(self.words[0])}"

    @property
    def made_of(self) -> dict[str, Any]:
        return {"command": os.path.basename(self.words[0])}

    def scores(self, sequences: Sequence[Sequence_], how: object = None) -> Iterator[tuple[int, Singles]]:
        """(index of a sequence, log-probs of its response tokens in nats). SourceError for all that is no such answer."""
        own = ({"prompt_ids": sequence.prompt, "token_ids": sequence.response} for sequence in sequences)
        room = (1 << 20) + BYTES_OF_TOKEN * sum(sequence.length for sequence in sequences)
        asked = "".join(f"{json.dumps(each)}\n" for each in own)
        lines = [line for line in output_of(self.words, asked, room, self.seconds).split(b"\n") if line.strip()]
        if len(lines) != len(sequences):
            raise SourceError(
                f"{self.name} wrote {len(lines)} lines for {len(sequences)} sequences; wanted a line of log-probs for each"
            )
        for index, (line, sequence) in enumerate(zip(lines, sequences, strict=True)):
            yield index, _logprobs(line, len(sequence.response), f"{self.name}, line {index + 1}")


def _logprobs(line: bytes, tokens: int, at: str) -> Singles:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise SourceError(f"{at}: wanted a JSON list of log-probs, found {line[:60]!r}") from None
    if not isinstance(found, list) or len(found) != tokens:
        what = f"{len(found)} values" if isinstance(found, list) else f"a {type(found).__name__}"
        raise SourceError(f"{at}: {what}; wanted a list with {tokens} log-probs, one for each token id")
    for place, number in enumerate(found):
        if type(number) not in (float, int) or not -1e30 < number <= ABOVE:
            raise SourceError(
                f"{at}, place {place}: {str(number)[:40]}; wanted a finite log-prob of at most 0, in nats"
            )
    return np.array(found, np.float32)


def command_of(text: str, seconds: float) -> Command:
    """The command after `cmd:`. ConfigError if it cannot be split into words."""
    try:
        words, fault = tuple(shlex.split(text)), "there is no command behind it"
    except ValueError as error:
        words, fault = (), str(error)
    if not words:
        raise ConfigError(f"cmd:{text}: {fault}; wanted a command such as cmd:'python score.py'")
    return Command(words, seconds)


def output_of(words: Sequence[str], asked: str, most_bytes: int, seconds: float) -> bytes:
    """The standard output of a command. SourceError if it fails, is too slow, or writes more than `most_bytes`.

    The command and all processes that it started in its group have ended when this returns.
    """
    name = words[0]
    with ExitStack() as stack:
        given, found, said = (stack.enter_context(TemporaryFile()) for _ in range(3))
        try:
            given.write(asked.encode())
            given.seek(0)
            own = {name: value for name, value in os.environ.items() if name != KEY}
            process = subprocess.Popen(words, stdin=given, stdout=found, stderr=said, env=own, start_new_session=True)
        except (OSError, ValueError) as error:
            raise SourceError(f"{name} cannot be started: {error}; wanted a program") from None
        code = _ended(process, found, said, most_bytes, time.monotonic() + seconds)
        if os.fstat(found.fileno()).st_size > most_bytes:
            raise SourceError(
                f"{name} wrote more than {most_bytes:,} bytes; wanted log-probs alone on its standard output"
            )
        if code is None:
            raise SourceError(
                f"{name} had not ended after {seconds:g} s and was ended; wanted an answer: --timeout gives more"
            )
        if code:
            said.seek(max(0, os.fstat(said.fileno()).st_size - 4 * SAID))
            words_said = " ".join(said.read().decode(errors="replace").split())[-SAID:]
            raise SourceError(f"{name} ended with code {code}: {words_said or 'it wrote no error'}; wanted code 0")
        found.seek(0)
        return found.read()


def _ended(
    process: "subprocess.Popen[bytes]", found: IO[bytes], said: IO[bytes], most_bytes: int, until: float
) -> int | None:
    """The exit code; None for a command that was ended because it was late, or had written more than `most_bytes`."""
    code = None
    try:
        while code is None and time.monotonic() < until and os.fstat(found.fileno()).st_size <= most_bytes:
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(LOOK)
            if os.fstat(said.fileno()).st_blocks * 512 > MOST_SAID:
                said.truncate(0)  # it goes on at its place: what was before takes no room
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return code
