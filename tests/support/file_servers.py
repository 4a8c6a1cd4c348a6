"""Servers of a folder on the loopback: a web server with or without ranges, and the part of the Hugging Face Hub that is read."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


@dataclass
class Served:
    """A server of a folder, and what it was asked for."""

    folder: Path
    address: str = ""
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    """(method, path, range) of each request for a file."""
    logins: set[str] = field(default_factory=set)
    """The values of Authorization that came."""


class _Answers(BaseHTTPRequestHandler):
    """Answers of both servers."""

    served: Served

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""

    def _said(self, body: bytes, kind: str = "application/json", **headers: str) -> None:
        self.send_response(206 if "Content_Range" in headers else 200)
        for name, value in {"Content_Type": kind, "Content_Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _file(self, path: Path, **headers: str) -> None:
        """A file, or the range of it that is asked for."""
        stated = self.headers.get("Range") or ""
        self.served.asked.append((self.command, path.name, stated))
        self.served.logins.add(self.headers.get("Authorization") or "")
        data, found = path.read_bytes(), _RANGE.fullmatch(stated)
        headers |= {"Accept_Ranges": "bytes"}
        if found is None:
            self._said(data, "application/octet-stream", **headers)
            return
        start, end = int(found[1]), min(int(found[2] or len(data)) + 1, len(data))
        if start >= len(data):
            self.send_error(416)
            return
        headers["Content_Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        self._said(data[start:end], "application/octet-stream", **headers)


class _WithRanges(_Answers, SimpleHTTPRequestHandler):
    """Python's web server, which knows no ranges, with ranges."""

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        if path.is_file():
            self._file(path)
        else:
            super().do_GET()


class _WithoutRanges(_Answers, SimpleHTTPRequestHandler):
    """Python's web server."""


class _Hub(_Answers):
    """A dataset of the Hub, `team/runs`, at one revision."""

    commit = "0" * 40

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if (found := re.fullmatch(r"/api/datasets/team/runs/tree/[^/]+/?(.*)", path)) is not None:
            self._tree(found[1], "recursive=True" in self.path or "recursive=true" in self.path)
        elif (found := re.fullmatch(r"/datasets/team/runs/resolve/[^/]+/(.+)", path)) is not None:
            self._resolved(self.served.folder / found[1])
        elif re.fullmatch(r"/api/datasets/team/runs(?:/revision/[^/]+)?", path):
            self._said(json.dumps({"id": "team/runs", "sha": self.commit, "siblings": [], "private": False}).encode())
        else:
            self._missing()

    do_HEAD = do_GET

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        names = json.loads(asked)["paths"] if asked.startswith("{") else re.findall(r"paths=([^&]+)", asked)
        paths = [self.served.folder / unquote(name) for name in names]
        self._said(json.dumps([self._entry(path) for path in paths if path.exists()]).encode())

    def _tree(self, name: str, is_deep: bool) -> None:
        folder = self.served.folder / name
        if not folder.is_dir():
            self._missing()
            return
        self._said(
            json.dumps(
                [self._entry(path) for path in sorted(folder.rglob("*") if is_deep else folder.iterdir())]
            ).encode()
        )

    def _entry(self, path: Path) -> dict[str, Any]:
        name = path.relative_to(self.served.folder).as_posix()
        if path.is_dir():
            return {"type": "directory", "path": name, "oid": "1"}
        facts = path.stat()
        return {"type": "file", "path": name, "size": facts.st_size, "oid": f"{facts.st_size}-{facts.st_mtime_ns}"}

    def _resolved(self, path: Path) -> None:
        if path.is_file():
            self._file(path, X_Repo_Commit=self.commit, ETag=f'"{path.stat().st_mtime_ns}"')
        else:
            self._missing("EntryNotFound")

    def _missing(self, code: str = "EntryNotFound") -> None:
        self.send_response(404)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextmanager
def _serving(folder: Path, kind: Any, **options: Any) -> Iterator[Served]:
    served = Served(folder)
    own: Callable[..., Any] = partial(type("Own", (kind,), {"served": served}), **options)
    server = ThreadingHTTPServer(("127.0.0.1", 0), own)
    served.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def web(folder: Path, *, ranges: bool) -> Any:
    """A web server of the folder, as a context."""
    return _serving(folder, _WithRanges if ranges else _WithoutRanges, directory=os.fspath(folder))


def hub(folder: Path) -> Any:
    """The Hub with the folder as the dataset team/runs, as a context. Nothing of it is Hugging Face's code."""
    return _serving(folder, _Hub)
