"""The bounds of a process that decodes strangers' bytes: its memory, time and files, and on Linux what it may ask the system.

Linux bounds memory as it is asked for. Another system may not: there the parent looks at the memory of its child.
"""

import ctypes
import os
import platform
import resource
import signal
import struct
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratioscope.errors import UnsafeFile


@dataclass(frozen=True)
class FileLimits:
    """The most that one file may ask for."""

    nbytes: int = 8 << 30
    """Memory, all values of a file together."""


def too_large(limits: FileLimits) -> UnsafeFile:
    """The refusal of a file that takes more memory than it may."""
    return UnsafeFile(
        f"it decodes to more than {limits.nbytes} bytes, the most that one file may take; if the file is"
        " yours and really so large, allow more with --most-memory"
    )


SECONDS = 60
"""Processor time that a child may take until its next answer, beside a second for each megabyte of the file that it reads."""
BESIDE = 1 << 28
"""Bytes of memory beside the limit: stacks of threads, and what an allocator keeps."""
IS_BOUND = sys.platform == "linux"
"""True where the system bounds memory."""
_ADDRESSES = 1 << 33
"""Bytes of addresses beside the limit: allocators reserve more than they use."""
_FILES = 256
_CALLS = {  # socket, connect, execve, execveat, ptrace, io_uring_setup: the mark of the processor, and the numbers of the calls
    "x86_64": (0xC000003E, (41, 42, 59, 322, 101, 425)),
    "aarch64": (0xC00000B7, (198, 203, 221, 281, 117, 425)),
}
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOWED, _DENIED = 0x7FFF0000, 0x00050001
"""Answers of a filter: go on, or the error EPERM."""


def confine(limits: FileLimits, mapped: int, parent: int) -> None:
    """Bounds this process, the child of `parent`. mapped: bytes of the largest file whose pages may be its memory."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers Ctrl+C and ends its child
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    if IS_BOUND:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(1, ctypes.c_ulong(signal.SIGKILL))  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(0)
        _at_most(resource.RLIMIT_DATA, _held("VmData:") + limits.nbytes + BESIDE)
        _at_most(resource.RLIMIT_AS, _held("VmSize:") + limits.nbytes + mapped + _ADDRESSES)
        with suppress(OSError):  # if memory ends all the same, it is this process that the system ends
            Path("/proc/self/oom_score_adj").write_text("1000")
        _forbid(libc)
    _at_most(resource.RLIMIT_FSIZE, limits.nbytes + (1 << 20))
    _at_most(resource.RLIMIT_NOFILE, _FILES + max(map(int, os.listdir("/dev/fd"))))
    _at_most(resource.RLIMIT_CORE, 0)
    allow(0)


def allow(size: int) -> None:
    """Begins the processor time anew in which this process must have answered next. size: bytes of the file that it reads."""
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    until = int(time.process_time() + SECONDS + size / 1e6) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (until if most == resource.RLIM_INFINITY else min(until, most), most))


def _held(name: str) -> int:
    """Bytes of this process under a name of /proc."""
    return int(Path("/proc/self/status").read_text().partition(name)[2].split()[0]) << 10


def _at_most(kind: int, amount: int) -> None:
    _, most = resource.getrlimit(kind)
    least = amount if most == resource.RLIM_INFINITY else min(amount, most)
    resource.setrlimit(kind, (least, least))


def _forbid(libc: Any) -> None:
    """Refuses sockets and programs to this process for good, on processors whose numbers of these calls are known."""
    known = _CALLS.get(platform.machine())
    if known is None or struct.calcsize("P") != 8:
        return
    machine, calls = known
    last = len(calls) + 1  # the place of the refusal, counted from the first comparison of a call
    steps = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, machine), (_RETURN, 0, 0, _DENIED), (_LOAD, 0, 0, 0)]
    steps += [(_AT_LEAST, last, 0, 0x40000000)]  # calls of 32 bits under the mark of 64
    steps += [(_EQUAL, last - 1 - place, 0, call) for place, call in enumerate(calls)]
    steps += [(_RETURN, 0, 0, _ALLOWED), (_RETURN, 0, 0, _DENIED)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HP", len(steps), ctypes.addressof(code)))
    none = ctypes.c_ulong(0)
    libc.prctl(38, ctypes.c_ulong(1), none, none, none)  # PR_SET_NO_NEW_PRIVS
    libc.prctl(22, ctypes.c_ulong(2), program, none, none)  # PR_SET_SECCOMP with a filter
