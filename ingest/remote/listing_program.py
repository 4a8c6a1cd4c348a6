"""The program that lists a store: see listing.py. A request is a line of JSON, an answer a line for each file and a last one."""

import json
import os
import queue
import resource
import signal
import sys
import threading
from typing import IO, Any

from .address import address_of
from .filesystems import every_file, filesystem_of

_MEMORY = 1 << 30
"""Bytes that a listing may take, beside what the packages take."""
_FACTS = (
    "size",
    "type",
    "ETag",
    "etag",
    "md5Hash",
    "generation",
    "blob_id",
    "LastModified",
    "last_modified",
    "mtime",
    "created",
)


def main() -> None:
    """Answers requests until the process that asks has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_receive, args=(asked,), daemon=True).start()
    with os.fdopen(os.dup(1), "wb") as answers:
        opened: tuple[Any, str] | None = None
        answers.write(b".\n")  # it can be asked
        while True:
            answers.flush()
            request = json.loads(asked.get())
            try:
                if opened is None:
                    address = address_of(request["url"])
                    assert address is not None
                    opened = filesystem_of(address, request["seconds"])
                    _bound()
                _tell(answers, _listed(*opened, request["folder"]))
            except Exception as error:  # whatever the many packages behind fsspec raise
                failed = {"kind": type(error).__name__, "words": str(error) or type(error).__name__}
                answers.write(json.dumps(["", failed]).encode() + b"\n")
            answers.write(b".\n")


def _receive(asked: "queue.Queue[bytes]") -> None:
    for line in sys.stdin.buffer:
        asked.put(line)
    os._exit(0)  # whatever request goes on, nobody waits for it


def _bound() -> None:
    if sys.platform != "linux":
        return
    with open("/proc/self/statm") as file:  # pages: all, resident, shared, text, 0, data
        data = int(file.read().split()[5]) * resource.getpagesize()
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (data + _MEMORY, most))


def _listed(filesystem: Any, root: str, folder: str | None) -> dict[str, dict[str, Any]]:
    filesystem.invalidate_cache()
    if folder is None:
        return every_file(filesystem, root)
    entries = filesystem.ls(f"{root}/{folder}".rstrip("/"), detail=True)
    described = (e if is_described(e) else {**e, **filesystem.info(e["name"])} for e in entries)
    return {str(facts["name"]): facts for facts in described}


def is_described(facts: dict[str, Any]) -> bool:
    """False for a file of a web server's listing, which holds names alone."""
    return facts.get("size") is not None or facts.get("type") == "directory"


def _tell(answers: IO[bytes], found: dict[str, dict[str, Any]]) -> None:
    for path, facts in found.items():
        told = {name: facts[name] for name in _FACTS if facts.get(name) is not None}
        answers.write(json.dumps([path, told], default=str).encode() + b"\n")
