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
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import IO, Any

import numpy as np

from ratioscope.arrays import Singles
from ratioscope.errors import ConfigError, SourceError

from ..engines import ABOVE
from ..inputs import ModelBounds, Sequence_
from ..server import KEY

BYTES_OF_TOKEN = 64
"""Bytes of an answer for each token, at most: a number in JSON takes about 20."""
SAID = 300
"""The last characters of its standard error that are shown."""


@dataclass(frozen=True)
class Command:
    """A command that scores."""

    words: tuple[str, ...]
    """The program and its arguments."""
    seconds: float
    """The time that all sequences may take."""
    room: ModelBounds = field(default_factory=lambda: ModelBounds(1 << 31, None, "the command"))
    """The sequences that it can read: all."""
    at_once: int = 1 << 31
    """Sequences that are read together: all."""

    @property
    def name(self) -> str:
        return f"the command {os.path.basename(self.words[0])}"

    @property
    def made_of(self) -> dict[str, Any]:
        """The program alone: its arguments may hold a secret."""
        return {"command": os.path.basename(self.words[0])}

    def scores(self, sequences: Sequence[Sequence_], how: object = None) -> Iterator[tuple[int, Singles]]:
        """(index of a sequence, log-probs of its response tokens in nats). SourceError for all that is no such answer."""
        asked = "".join(
            json.dumps({"prompt_ids": sequence.prompt, "token_ids": sequence.response}) + "\n" for sequence in sequences
        )
        room = (1 << 20) + BYTES_OF_TOKEN * sum(sequence.length for sequence in sequences)
        lines = [line for line in output_of(self.words, asked, room, self.seconds).split(b"\n") if line.strip()]
        if len(lines) != len(sequences):
            raise SourceError(
                f"{self.name} wrote {len(lines)} lines for {len(sequences)} sequences; wanted a line of log-probs for each"
            )
        for index, (line, sequence) in enumerate(zip(lines, sequences, strict=True)):
            yield index, self._logprobs(line, sequence, index)

    def _logprobs(self, line: bytes, sequence: Sequence_, index: int) -> Singles:
        at = f"{self.name}, line {index + 1}"
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            raise SourceError(f"{at}: wanted a JSON list of log-probs, found {line[:60]!r}") from None
        if not isinstance(found, list) or len(found) != len(sequence.response):
            what = f"{len(found)} values" if isinstance(found, list) else f"a {type(found).__name__}"
            raise SourceError(
                f"{at}: {what}; wanted a list with {len(sequence.response)} log-probs, one for each token id"
            )
        for place, number in enumerate(found):
            if type(number) not in (float, int) or not -1e30 < number <= ABOVE:
                raise SourceError(
                    f"{at}, place {place}: {str(number)[:40]}; wanted a finite log-prob of at most 0, in nats"
                )
        return np.array(found, np.float32)


def command_of(text: str, seconds: float) -> Command:
    """The command after `cmd:`. ConfigError if it cannot be split into words."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError(f"cmd:{text}: {error}; wanted a command such as cmd:'python score.py'") from None
    if not words:
        raise ConfigError("cmd: has no command behind it; wanted one such as cmd:'python score.py'")
    return Command(words, seconds)


def output_of(words: Sequence[str], asked: str, most_bytes: int, seconds: float) -> bytes:
    """The standard output of a command. SourceError if it fails, is too slow, or writes more than `most_bytes`.

    The command and all processes that it started in its group have ended when this returns.
    """
    own = {name: value for name, value in os.environ.items() if name != KEY}
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, env=own, start_new_session=True)
    except (OSError, ValueError) as error:
        raise SourceError(f"{words[0]} cannot be started: {error}; wanted a program") from None
    assert process.stdin and process.stdout and process.stderr
    found, said, until = bytearray(), bytearray(), time.monotonic() + seconds
    _begun(_give, process.stdin, asked.encode())
    read = _begun(_take, process.stdout, found, most_bytes)
    heard = _begun(_hear, process.stderr, said)
    try:
        read.join(seconds)
        is_late = read.is_alive()
        if not is_late and len(found) <= most_bytes:
            process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        is_late = True
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        heard.join(1)
    words_said = " ".join(said.decode(errors="replace").split())[-SAID:]
    _demand(process.returncode, len(found), most_bytes, words[0], words_said, seconds if is_late else None)
    return bytes(found)


def _demand(code: int, found: int, most: int, name: str, said: str, late: float | None) -> None:
    """SourceError unless the command ended well, in time and within its bytes."""
    if late is not None:
        raise SourceError(
            f"{name} had not ended after {late:g} s and was ended; wanted an answer: --timeout gives more"
        )
    if found > most:
        raise SourceError(f"{name} wrote more than {most:,} bytes; wanted log-probs alone on its standard output")
    if code:
        raise SourceError(f"{name} ended with code {code}: {said or 'it wrote no error'}; wanted code 0")


def _give(to: IO[bytes], content: bytes) -> None:
    """Writes and closes. A command that reads no further is judged by its answer."""
    with suppress(OSError, ValueError), to:
        to.write(content)


def _take(source: IO[bytes], found: bytearray, most: int) -> None:
    with suppress(OSError, ValueError), source:
        while len(found) <= most and (piece := os.read(source.fileno(), 1 << 16)):
            found += piece


def _hear(source: IO[bytes], said: bytearray) -> None:
    """Keeps the last bytes of standard error."""
    with suppress(OSError, ValueError), source:
        while piece := os.read(source.fileno(), 1 << 16):
            said += piece
            del said[: -4 * SAID]


def _begun(function: Callable[..., None], *arguments: Any) -> Thread:
    thread = Thread(target=function, args=arguments, daemon=True)
    thread.start()
    return thread
