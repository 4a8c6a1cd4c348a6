"""A stand-in for W&B's server on the loopback: the GraphQL that wandb 0.31's own client asks for when it reads the rows of a run.

It answers for one run, team/project/abc, from memory, or with the addresses of Parquet files as the service does for runs that
have ended. Questions are told apart by the field that they want. Nothing of it is W&B's code.
"""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

KEY = "0123456789" * 4
"""A login of the right form."""


@dataclass
class StandIn:
    """What the server holds, and what it was asked for."""

    rows: Sequence[dict[str, Any]]
    in_parquet: int = 0
    """The number of rows, from the first on, that it has as a Parquet file."""
    address: str = ""
    pages: list[tuple[int, int]] = field(default_factory=list)
    """(first, end) of the pages of rows that were asked for."""
    logins: set[str] = field(default_factory=set)
    """The values of Authorization that came."""

    def answer(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        viewer = {"id": "u", "entity": "team", "username": "u", "email": "e", "flags": "{}", "teams": {"edges": []}}
        if "project(" not in query:
            return {"viewer": viewer}
        if (variables.get("name") or variables.get("run") or variables.get("runName")) != "abc":
            return {"project": {"run": None}}
        return {"project": {"run": self._run(query, variables)}}

    def _run(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        last = max((row["_step"] for row in self.rows), default=-1)
        run: dict[str, Any] = dict.fromkeys(("sweepName", "group", "jobType", "commit", "host"))
        run |= {"id": "abc", "name": "abc", "displayName": "theirs", "state": "finished", "config": "{}", "tags": [],
                "createdAt": "2026-01-01T00:00:00Z", "heartbeatAt": "2026-01-01T00:00:00Z", "description": "", "notes": "",
                "readOnly": True, "systemMetrics": "{}", "summaryMetrics": "{}", "user": {"name": "u", "username": "u"},
                "projectId": "1", "historyLineCount": len(self.rows), "historyKeys": {"lastStep": last, "keys": {}}}  # fmt: skip
        if "parquetHistory(" in query:
            stored = [f"{self.address}/history.parquet"] if self.in_parquet else []
            run["parquetHistory"] = {
                "parquetUrls": stored,
                "liveData": list(self.rows[self.in_parquet :]) if stored else [],
            }
        elif "history(" in query:
            first, end = variables["minStep"], variables["maxStep"]
            self.pages.append((first, end))
            run["history"] = [json.dumps(row) for row in self.rows if first <= row["_step"] < end]
        return run

    def parquet(self) -> bytes:
        file = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(list(self.rows[: self.in_parquet])), file)
        return file.getvalue()


@contextmanager
def serving(stand_in: StandIn) -> Iterator[StandIn]:
    """The stand-in, at an address of the loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            stand_in.logins.add(self.headers.get("Authorization", ""))
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._send(json.dumps({"data": stand_in.answer(asked["query"], asked.get("variables") or {})}).encode())

        def do_HEAD(self) -> None:
            self._send(b"" if not self.path.endswith(".parquet") else stand_in.parquet())

        def do_GET(self) -> None:
            self._send(stand_in.parquet())

        def _send(self, content: bytes) -> None:
            first, end = 0, len(content)
            if (wanted := self.headers.get("Range", "")).startswith("bytes="):
                start, _, stop = wanted.removeprefix("bytes=").partition("-")
                first, end = (int(start), int(stop) + 1 if stop else end) if start else (end - int(stop), end)
            self.send_response(206 if wanted else 200)
            if wanted:
                self.send_header("Content-Range", f"bytes {first}-{min(end, len(content)) - 1}/{len(content)}")
            part = content[first:end]
            self.send_header("Content-Length", str(len(part)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(part)

        def log_message(self, format: str, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stand_in.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield stand_in
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
