"""A store that lists without end takes neither memory nor time: the process that lists it is ended."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from weakref import finalize

import pytest
from fsspec import AbstractFileSystem

from ratioscope.errors import SourceError
from ratioscope.ingest.remote import listing
from ratioscope.ingest.remote import store as deadline
from ratioscope.ingest.remote.address import Address, address_of
from ratioscope.ingest.remote.listing import Lister, is_apart
from ratioscope.ingest.remote.store import Store, Unreachable

PAGE = """<?xml version="1.0"?><ListBucketResult><Name>b</Name><Prefix>run/</Prefix><KeyCount>{count}</KeyCount>
<MaxKeys>1000</MaxKeys><IsTruncated>true</IsTruncated><NextContinuationToken>{page}</NextContinuationToken>{names}</ListBucketResult>"""
NAME = (
    "<Contents><Key>run/{page}/{n}-{long}</Key><Size>1</Size><ETag>x</ETag>"
    "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
)


class Endless(BaseHTTPRequestHandler):
    """The part of S3 that lists a bucket, which has always one more page."""

    pages = 0

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""

    def do_HEAD(self) -> None:
        self.send_response(404)
        self.end_headers()

    def do_GET(self) -> None:
        type(self).pages += 1
        page = type(self).pages
        names = "".join(NAME.format(page=page, n=n, long="x" * 200) for n in range(1000))
        body = PAGE.format(page=page, count=1000, names=names).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[Address]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endless)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    yield address_of("s3://b/run") or pytest.fail()
    server.shutdown()
    server.server_close()


class Dripping(Endless):
    """A store with one file, of which it sends a byte now and then."""

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "100000")
        self.send_header("ETag", '"a"')
        self.send_header("Last-Modified", "Wed, 21 Oct 2015 07:28:00 GMT")
        self.end_headers()

    def do_GET(self) -> None:
        if "list-type" in self.path:
            name = (
                NAME.format(page="log", n="r0.jsonl", long="x")
                .replace("log/r0.jsonl-x", "run.json")
                .replace("<Size>1<", "<Size>100000<")
            )
            body = PAGE.format(page="", count=1, names=name).replace("<IsTruncated>true", "<IsTruncated>false").encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        self.send_response(206)
        self.send_header("Content-Length", "100000")
        self.send_header("Content-Range", "bytes 0-99999/100000")
        self.end_headers()
        with suppress(OSError):
            while not self.server.over.wait(0.2):  # type: ignore[attr-defined]
                self.wfile.write(b"x")
                self.wfile.flush()


def test_a_read_that_drips_is_given_up_and_the_command_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Dripping)
    server.daemon_threads, server.over = True, threading.Event()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("RATIOSCOPE_STORE_SECONDS", "1")
    command = [
        sys.executable,
        "-c",
        "import sys; from ratioscope.app.cli import main; sys.exit(main())",
        "info",
        "s3://b/run",
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 3 and "no answer within 1 seconds" in ended.stderr, ended.stderr
    server.over.set()
    server.shutdown()
    server.server_close()


def test_no_request_is_made_beside_many_that_were_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "MOST_GIVEN_UP", 2)
    over = threading.Event()
    for _ in range(2):
        with pytest.raises(TimeoutError, match="no answer"):
            deadline.answered(over.wait, 0.01)
    with pytest.raises(TimeoutError, match="2 requests were given up"):
        deadline.answered(lambda: 1, 1.0)
    over.set()
    for thread in list(deadline._GIVEN_UP):
        thread.join()
    assert deadline.going_on() == 0 and deadline.answered(lambda: 1, 60.0) == 1


def test_a_listing_without_end_ends_at_its_deadline_and_so_do_its_requests(address: Address) -> None:
    store = Store(address, seconds=2.0)
    with pytest.raises(Unreachable, match="no whole listing within"):
        store.files()
    assert Endless.pages > 1, "the store was asked"
    lister = store._lister
    assert lister is not None and lister._process is None


def _process_of(line: str) -> Any:
    return subprocess.Popen([sys.executable, "-c", line], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


@pytest.mark.parametrize(
    ("program", "words"),
    [("n = 0\nwhile True:\n    print('[\"a%d\", {}]' % n)\n    n += 1", "no run has so many"), ("pass", "larger than")],
)
def test_names_without_number_and_a_process_that_ends_are_refused(
    program: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_started", lambda: _process_of(f"print('.', flush=True)\ninput()\n{program}"))
    monkeypatch.setattr(listing, "MOST_NAMES", 5000)
    store = Store(address_of("s3://b/run") or pytest.fail())
    store._opened = (AbstractFileSystem(), "b/run")
    with pytest.raises(SourceError, match=words):
        store.files()
    assert store._lister is not None and store._lister._process is None


def test_a_lister_ends_with_what_holds_it(address: Address) -> None:
    lister = Lister(address, 5.0)
    lister._process = process = _process_of("input()")
    lister._end = finalize(lister, listing._ended, process)
    del lister
    assert process.poll() is not None


def test_files_of_this_process_are_listed_in_it() -> None:
    assert not is_apart(address_of("memory://a/b") or pytest.fail()) and is_apart(
        address_of("s3://a/b") or pytest.fail()
    )
