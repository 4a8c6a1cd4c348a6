"""A dashboard that others can reach: who is let in, with what, and what cannot be loosened from outside."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from email.message import Message
from pathlib import Path
from select import select
from typing import Any
from urllib.parse import urlsplit

import pytest
from support.browser import Chromium, chromium
from support.edge_runs import made
from support.serving import DEADLINE, Serving, refused, serving

from ratioscope.app.cli.commands.server_options import TOKEN, place_of, server_options
from ratioscope.app.dashboard.server.guard import LOOPBACK, Guard
from ratioscope.app.dashboard.server.options import ServerOptions, checked_options
from ratioscope.app.dashboard.server.sign_in import SHORTEST, SignIn, generated, way_in, without_token
from ratioscope.errors import ConfigError

SECRET = "correct-horse-battery-staple"
NAME = "gpu-7.example.org"


def test_a_cookie_a_bearer_and_a_link_let_in_and_nothing_else_does() -> None:
    sign_in = SignIn(SECRET)
    name, _, value = sign_in.set_cookie.split(";")[0].partition("=")
    assert sign_in.state_of({"cookie": [f"a=b; {name}={value}"]}, "") == "in"
    assert sign_in.state_of({"authorization": [f"Bearer {SECRET}"]}, "") == "in"
    assert sign_in.state_of({}, f"run=a&token={SECRET}") == "link"
    assert sign_in.state_of({"cookie": [f"{name}={value}"]}, "token=old") == "link"
    for fields, query in (
        ({}, ""),
        ({}, "token="),
        ({}, f"token={SECRET[:-1]}"),
        ({}, f"Token={SECRET}"),
        ({"authorization": [f"Basic {SECRET}"]}, ""),
        ({"authorization": ["Bearer \u00e9"]}, ""),
        ({"cookie": [f"{name}={SECRET}"]}, ""),
        ({"cookie": [f"other={value}"]}, ""),
    ):
        assert sign_in.state_of(fields, query) == "out"


def test_the_cookie_does_not_tell_the_token_and_no_script_or_other_site_gets_it() -> None:
    sent = SignIn(SECRET).set_cookie
    assert SECRET not in sent and "HttpOnly" in sent and "SameSite=Strict" in sent and "Domain" not in sent
    assert SECRET not in repr(SignIn(SECRET)) and SECRET not in repr(ServerOptions(token=SECRET))


def test_wrong_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def noting(left: bytes, right: bytes) -> bool:
        compared.append((left, right))
        return False

    monkeypatch.setattr("ratioscope.app.dashboard.server.sign_in.hmac.compare_digest", noting)
    assert SignIn(SECRET).state_of({"authorization": ["Bearer wrong"]}, "token=wronger") == "out"
    assert compared == [(b"wrong", SECRET.encode()), (b"wronger", SECRET.encode())]


def test_whoever_has_the_token_is_let_in_whatever_others_guess() -> None:
    sign_in = SignIn(SECRET)
    assert {sign_in.state_of({}, f"token=guess-{guess}") for guess in range(500)} == {"out"}
    assert sign_in.state_of({}, f"token={SECRET}") == "link"
    assert sign_in.state_of({"authorization": [f"Bearer {SECRET}"]}, "") == "in"


def test_what_is_asked_for_stays_in_the_url_and_the_token_does_not() -> None:
    assert without_token("run=a%20b&token=x&step=3&token=y&only=") == "run=a+b&step=3&only="


@pytest.mark.parametrize("path", ["//evil.example/x", "/\\evil.example", "/tokens"])
def test_the_way_in_leads_to_this_server_only(path: str) -> None:
    start = _asked(path, f"token={SECRET}&step=3")[0]
    location = dict(start["headers"])[b"location"].decode()
    assert start["status"] == 303 and location.startswith("/") and location[1] not in "/\\"
    assert location.endswith("?step=3") and SECRET not in location


def test_a_link_on_another_site_signs_in_from_a_page_of_ours() -> None:
    cross = [(b"sec-fetch-site", b"cross-site"), (b"sec-fetch-mode", b"navigate")]
    start, body = _asked("/tokens", f"token={SECRET}&x=%22%3E%3Cscript%3E", *cross)
    assert start["status"] == 200 and b"set-cookie" in dict(start["headers"])
    assert b"<script" not in body["body"] and SECRET.encode() not in body["body"] and b"url=/tokens?x=" in body["body"]


def test_a_websocket_without_a_token_is_closed_before_it_is_accepted() -> None:
    (closed,) = _asked("/_stcore/stream", "", kind="websocket")
    assert closed["type"] == "websocket.close"
    name = SignIn(SECRET).set_cookie.split(";")[0].encode()
    assert _asked("/_stcore/stream", "", (b"cookie", name), kind="websocket") == [{"type": "reached"}]


@pytest.mark.parametrize(
    "token",
    ["short", "with spaces in it all over", "é" * SHORTEST, "a" * (SHORTEST - 1), "\n" * 20, "a" * 40, "abc12" * 8],
)
def test_a_weak_token_is_refused(token: str) -> None:
    with pytest.raises(ConfigError, match="--token generate") as error:
        checked_options(ServerOptions(token=token))
    assert token not in str(error.value)


@pytest.mark.parametrize(
    ("given", "name"),
    [("GPU-7.Example.org.", "gpu-7.example.org"), ("gpu:8501", "gpu"), ("2001:db8::1", "[2001:db8::1]"),
     ("[2001:DB8::1]:80", "[2001:db8::1]"), ("10.0.0.7", "10.0.0.7")],
)  # fmt: skip
def test_an_allowed_host_is_a_name_whatever_way_it_is_written(given: str, name: str) -> None:
    assert checked_options(ServerOptions("0.0.0.0", token=SECRET, hosts=(given,))).hosts == (name,)


@pytest.mark.parametrize("given", ["*", "http://gpu", "a b", "", "gpu/x", "a@b"])
def test_an_allowed_host_that_is_none_is_explained(given: str) -> None:
    with pytest.raises(ConfigError, match="--allow-host"):
        checked_options(ServerOptions("0.0.0.0", token=SECRET, hosts=(given,)))


def test_the_token_comes_from_a_file_or_the_environment_and_not_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{SECRET}\n")
    assert server_options("127.0.0.1", 0, str(file), None).token == SECRET
    monkeypatch.setenv(TOKEN, SECRET)
    assert server_options("127.0.0.1", 0, None, None).token == SECRET
    assert server_options("127.0.0.1", 0, None, None).token is None, "it is taken out of the environment"
    first, second = (server_options("127.0.0.1", 0, "generate", None).token for _ in range(2))
    assert first != second and len(first or "") >= 40 and len(generated()) >= 40
    with pytest.raises(ConfigError, match=TOKEN) as error:
        server_options("127.0.0.1", 0, SECRET, None)
    assert SECRET not in str(error.value)


def test_a_page_and_its_choices_make_a_place() -> None:
    assert place_of(None, {}, None) == "" and place_of("overview", {"gap": "total"}, None) == "?gap=total"
    assert place_of("tokens", {"step": 12, "sequence": "a b&c", "gap": None}, ["minibatch=1"]) == (
        "tokens?step=12&sequence=a%20b%26c&minibatch=1"
    )
    with pytest.raises(ConfigError, match="overview, "):
        place_of("nowhere", {}, None)
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        place_of("tokens", {}, ["order"])


@pytest.fixture(scope="module")
def run(runs: Path) -> Path:
    return made(runs, "stale")


@pytest.fixture(scope="module")
def open_to_all(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Started under a user configuration and an environment that would loosen all there is."""
    home = tmp_path_factory.mktemp("home")
    (home / ".streamlit").mkdir()
    (home / ".streamlit" / "config.toml").write_text(LOOSE)
    file = home / "token"
    file.write_text(SECRET)
    loose = {"HOME": str(home), "STREAMLIT_SERVER_ALLOWED_HOSTS": "*", "STREAMLIT_CLIENT_SHOW_ERROR_DETAILS": "full"}
    arguments = ("--host", "0.0.0.0", "--token", str(file), "--allow-host", NAME, "--allow-host", "[::1]")
    with serving(str(run), *arguments, environment=loose) as started:
        yield started


LOOSE = """
[global]
developmentMode = true
[server]
address = "0.0.0.0"
port = 8501
allowedHosts = ["*"]
enableCORS = false
enableXsrfProtection = false
corsAllowedOrigins = ["*"]
enableStaticServing = true
enableAgentApi = true
[browser]
gatherUsageStats = true
[client]
showErrorDetails = "full"
toolbarMode = "developer"
"""


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [(["--host", "0.0.0.0"], "--token generate and --allow-host"), (["--host", "::", "--token", "generate"], "--allow-host"),
     (["--host", "0.0.0.0", "--allow-host", "gpu"], "--token generate")],
)  # fmt: skip
def test_others_are_let_in_only_with_a_token_and_names(run: Path, arguments: list[str], missing: str) -> None:
    code, said = refused(str(run), *arguments)
    assert code == 2 and missing in said and "ssh -L 8501" in said and said.count("\n") == 1


def test_the_link_is_printed_with_the_token_and_the_process_list_does_not_show_it(open_to_all: Serving) -> None:
    assert open_to_all.url.startswith(f"http://{NAME}:") and open_to_all.url.endswith(f"?token={SECRET}")
    listed = Path(f"/proc/{open_to_all.process.pid}/cmdline").read_bytes()
    assert SECRET.encode() not in listed


@pytest.mark.parametrize(
    "path", ["/", "/_stcore/health", "/tokens", "/media/x", "/static/x.js", "/_stcore/agent/openapi.json"]
)
def test_without_the_token_every_path_is_closed(open_to_all: Serving, path: str) -> None:
    for header in ({}, {"Authorization": "Bearer wrong-wrong-wrong"}):
        assert _status(open_to_all, path, header) == 401
    assert _status(open_to_all, path, {"Authorization": f"Bearer {SECRET}", "Host": "evil.example"}) == 421
    assert _status(open_to_all, path, {"Authorization": f"Bearer {SECRET}", "Origin": "http://evil.example"}) == 403


def test_with_the_token_the_names_are_answered_however_they_are_written(open_to_all: Serving) -> None:
    port = urlsplit(open_to_all.url).port
    for host in (NAME, NAME.upper(), f"{NAME}.", f"{NAME}:{port}", "[::1]", f"[::1]:{port}", "localhost"):
        assert _status(open_to_all, "/_stcore/health", {"Authorization": f"Bearer {SECRET}", "Host": host}) == 200


def test_wrong_tokens_are_answered_without_detail_and_keep_nobody_out(open_to_all: Serving) -> None:
    answers = [_answer(open_to_all, f"/?token=guess-number-{guess}") for guess in range(30)]
    assert {status for status, _, _ in answers} == {401} and len({body for _, _, body in answers}) == 1
    assert all("connect-src" in (headers["content-security-policy"] or "") for _, headers, _ in answers)
    assert _status(open_to_all, "/_stcore/health", {"Authorization": f"Bearer {SECRET}"}) == 200


@pytest.mark.skipif(chromium() is None, reason="no chromium: install it with the system's packages")
def test_a_browser_signs_in_by_the_link_and_the_token_leaves_the_url(open_to_all: Serving) -> None:
    root = f"http://127.0.0.1:{urlsplit(open_to_all.url).port}"
    with Chromium() as browser:
        opened = browser.visit(f"{root}/tokens?token={SECRET}&step=6")
        assert "token=" not in opened.page.url and "step=6" in opened.page.url
        assert opened.page.locator(".rs-text i").count() > 3 and opened.errors == [] and opened.foreign == []
        assert SECRET not in opened.page.evaluate("document.cookie")
        again = browser.visit(f"{root}/samples?step=6")
        assert again.page.locator("[data-testid=stDataFrame]").count() == 1 and again.errors == []


def test_no_configuration_from_outside_loosens_it(open_to_all: Serving) -> None:
    bearer = {"Authorization": f"Bearer {SECRET}"}
    assert (
        urlsplit(open_to_all.url).port != 8501
        and _status(open_to_all, "/_stcore/health", {**bearer, "Host": "x"}) == 421
    )
    status, headers, body = _answer(open_to_all, "/_stcore/host-config", bearer)
    assert status == 200 and "streamlit.app" not in body and headers["access-control-allow-origin"] in (None, "")
    assert '"gatherUsageStats":true' not in body.replace(" ", "")
    assert (
        _status(open_to_all, "/_stcore/agent/sessions", bearer) in (404, 405)
        or "disabled" in _answer(open_to_all, "/_stcore/agent/sessions", bearer)[2].lower()
    )
    code, _, page = _answer(open_to_all, "/app/static/token", bearer)
    assert SECRET not in page and code in (200, 404)


BROWSER = """#!{python}
import os, pathlib, stat, sys, urllib.parse
(address,) = sys.argv[1:]
file = pathlib.Path(urllib.parse.unquote(address.removeprefix("file://")))
modes = [oct(stat.S_IMODE(os.stat(path).st_mode)) for path in (file, file.parent)]
pathlib.Path({seen!r} + ".part").write_text("\\n".join([address, *modes, file.read_text()]))
os.rename({seen!r} + ".part", {seen!r})
"""


def test_a_browser_that_is_started_gets_the_token_from_a_file_that_only_its_reader_can_read(
    run: Path, tmp_path: Path
) -> None:
    seen, program = tmp_path / "seen", tmp_path / "browser"
    program.write_text(BROWSER.format(python=sys.executable, seen=str(seen)))
    program.chmod(0o700)
    environment = {**os.environ, "DISPLAY": ":9", "BROWSER": f"{program} %s", "TMPDIR": str(tmp_path)}
    environment.pop("SSH_CONNECTION", None)
    command = [sys.executable, "-m", "ratioscope", "dashboard", str(run), "--token", "generate"]
    terminal, theirs = os.openpty()
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        said = ""
        while not seen.exists():
            said += os.read(terminal, 4096).decode() if select([terminal], [], [], 0.1)[0] else ""
            assert process.poll() is None, said
        process.send_signal(signal.SIGINT)
        while select([terminal], [], [], 60)[0]:
            try:
                said += os.read(terminal, 4096).decode()
            except OSError:  # the other end is closed
                break
    os.close(terminal)
    token = re.search(r"token=([\w-]+)", said)
    address, file_mode, folder_mode, page = seen.read_text().split("\n", 3)
    assert token is not None and token[1] not in address and (file_mode, folder_mode) == ("0o600", "0o700")
    assert f"?token={token[1]}" in page and "<script" not in page
    assert not Path(address.removeprefix("file://")).exists()


def test_the_file_is_gone_after_its_time_while_the_server_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ratioscope.app.dashboard.server.sign_in.SECONDS", 0.0)
    with way_in(f"http://127.0.0.1:1/?a=1&token={SECRET}") as address:
        for timer in (thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)):
            timer.join(DEADLINE)
        assert not Path(address.removeprefix("file://")).exists()


def test_two_interrupts_in_a_row_stop_it_without_a_traceback(run: Path) -> None:
    with serving(str(run)) as started:
        with socket.create_connection(("127.0.0.1", urlsplit(started.url).port or 0), timeout=DEADLINE) as idle:
            started.process.send_signal(signal.SIGINT)
            with suppress(ConnectionResetError):  # closed in either way: it has begun to stop
                assert idle.recv(1) == b""
        started.process.send_signal(signal.SIGINT)
        started.process.wait(DEADLINE)
        assert started.process.stderr is not None and "Traceback" not in started.process.stderr.read()


def _status(started: Serving, path: str, headers: dict[str, str] | None = None) -> int:
    return _answer(started, path, headers)[0]


def _answer(started: Serving, path: str, headers: dict[str, str] | None = None) -> tuple[int, Message, str]:
    url = f"http://127.0.0.1:{urlsplit(started.url).port}{path}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers or {}), timeout=DEADLINE) as answer:
            return answer.status, answer.headers, answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read().decode(errors="replace")


def _asked(path: str, query: str, *headers: tuple[bytes, bytes], kind: str = "http") -> list[Any]:
    """What the guard sends, with an application behind it that says it was reached."""
    sent: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "reached"})

    async def receive() -> Any:
        return {"type": f"{kind}.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": kind, "path": path, "query_string": query.encode(), "headers": [(b"host", b"127.0.0.1"), *headers]}
    guard = Guard(application, LOOPBACK, SignIn(SECRET))
    asyncio.run(guard(scope | ({"method": "GET"} if kind == "http" else {}), receive, send))
    return sent
