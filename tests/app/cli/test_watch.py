"""`ratioscope watch`: what it shows of a growing run, and that a command and a webhook are told once of each new alert."""

import io
import ipaddress
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.live_writer import Writer
from support.waiting import wait_until

from ratioscope.app import cli
from ratioscope.app.cli import main
from ratioscope.app.cli.commands.demo import sample_runs
from ratioscope.app.cli.watching.followed import Followed, follow_runs
from ratioscope.app.cli.watching.looks import KnownAlerts, LifeChange, News, Watched
from ratioscope.app.cli.watching.telling import arguments_of, facts, failure_of_command, payload, teller, variables
from ratioscope.app.cli.watching.webhook import Webhook, failure_of_post, is_public, webhook_of
from ratioscope.app.presentation.run_state import RunState
from ratioscope.errors import ConfigError
from ratioscope.ingest.analysis.recorded_events import events_and_alerts
from ratioscope.ingest.run import open_run
from ratioscope.metrics.grading.alerts import Alert
from ratioscope.metrics.grading.finding import Severity

Captured = pytest.CaptureFixture[str]
Posts = list[tuple[str, dict[str, Any]]]


class Server(ThreadingHTTPServer):
    """A webhook on this machine. answer: the status it gives; None: it never answers."""

    answer: int | None = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.posts: Posts = []
        self.release = threading.Event()

    @property
    def url(self) -> str:
        return f"http://localhost:{self.server_address[1]}/hook/s3cret?x=1"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        own = self.server
        assert isinstance(own, Server)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        own.posts.append((self.path, json.loads(body)))
        if own.answer is None:
            own.release.wait(30)
            return
        self.send_response(own.answer)
        self.send_header("Location", f"http://127.0.0.1:{own.server_address[1]}/elsewhere")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield running
        running.release.set()
        running.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def alert() -> Alert:
    return events_and_alerts(open_run(sample_runs()["stale"])).alerts[0]


def test_a_run_that_has_ended_is_one_line(capsys: Captured) -> None:
    assert main(["watch", str(sample_runs()["stale"])]) == cli.OK
    (line,) = capsys.readouterr().out.splitlines()
    cause = "Weight syncs broke at one step: 236 times the gap from step 21 on"
    assert f"trl-vllm-stale: act: {cause} (high confidence); 3 open alerts; ended" in line


def test_a_path_that_was_never_a_run_is_told_as_every_verb_tells_it(tmp_path: Path, capsys: Captured) -> None:
    assert main(["watch", str(tmp_path / "nope")]) == main(["info", str(tmp_path / "nope")]) == 3
    watched, read = capsys.readouterr().err.splitlines()
    assert watched == read and "does not exist" in watched


def test_each_new_alert_reaches_the_command_and_the_webhook_once(tmp_path: Path, server: Server) -> None:
    run, told = tmp_path / "secret-place" / "run", tmp_path / "told.jsonl"
    script = tmp_path / "tell.py"
    script.write_text(
        "import json, os, sys\n"
        "facts = {k: v for k, v in os.environ.items() if k.startswith('RATIOSCOPE_ALERT_')}\n"
        "open(sys.argv[1], 'a').write(json.dumps([facts, sys.argv[2:]]) + '\\n')\n"
    )
    command = [sys.executable, "-m", "ratioscope", "watch", str(run), "--every", "0.2", "--webhook", server.url]
    command += ["--on-alert", f"{sys.executable} {script} {told} '$HOME; x' *"]
    with Writer(run, noise=0.8) as writer:
        writer.write(1)
        watching = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert watching.stdout is not None
        first = watching.stdout.readline()
        writer.write(5)
        wait_until(lambda: bool(server.posts))
        writer.write(2)
    rest, _ = watching.communicate(timeout=120)
    assert watching.returncode == 0 and "live: act" in first and "0 open alerts" in first
    lines = [json.loads(line) for line in told.read_text().splitlines()]
    names = [(facts["RATIOSCOPE_ALERT_SIGNAL"], facts["RATIOSCOPE_ALERT_GAPS"]) for facts, _ in lines]
    assert ("kl_k3", "mismatch") in names and len(set(names)) == len(names) == len(server.posts)
    assert all(arguments == ["$HOME; x", "*"] for _, arguments in lines), "no shell has seen them"
    path, body = server.posts[0]
    assert path == "/hook/s3cret?x=1" and body["run"] == "live" and body["severity"] in ("watch", "act")
    assert str(tmp_path) not in json.dumps(server.posts) + told.read_text()
    assert " alert: " in rest and "s3cret" not in rest and rest.splitlines()[-1].endswith("ended")


def test_failures_are_reported_and_the_watch_goes_on(tmp_path: Path, server: Server) -> None:
    server.answer = 500
    run = tmp_path / "run"
    command = [sys.executable, "-m", "ratioscope", "watch", str(run), "--every", "0.2", "--webhook", server.url]
    with Writer(run, noise=0.8) as writer:
        writer.write(1)
        watching = subprocess.Popen(
            [*command, "--on-alert", "/no/such/program"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert watching.stdout is not None
        watching.stdout.readline()
        writer.write(4)
        wait_until(lambda: bool(server.posts))
    rest, _ = watching.communicate(timeout=120)
    assert watching.returncode == 0 and rest.splitlines()[-1].endswith("ended")
    assert "--on-alert: /no/such/program cannot be run: No such file" in rest
    assert "--webhook: localhost answered 500" in rest and "Traceback" not in rest


def test_the_screen_of_a_terminal_shows_verdict_steps_and_alerts(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    from ratioscope.app.cli.commands.watch import _drawn

    console = Console(width=100, record=True, file=io.StringIO())
    console.print(_drawn(Watched(sample_runs()["stale"]).look(), ["--webhook: x \x1b[31m"]))
    seen = console.export_text()
    assert "trl-vllm-stale: act" in seen and "mismatch/kl_k3" in seen and "from step 21, still open" in seen
    assert "\x1b" not in seen and "Ctrl+C" in seen


def test_an_alert_is_new_once_and_again_only_if_it_is_worse(alert: Alert) -> None:
    from dataclasses import replace

    known, merged = KnownAlerts(), replace(alert, severity=Severity.WATCH, gap="mismatch", also=("total",))
    assert known.new([merged]) == [merged] and known.new([merged]) == []
    apart = [replace(merged, also=()), replace(merged, gap="total", also=())]
    assert known.new(apart) == [], "two gaps that part are no new alert"
    worse = replace(apart[1], severity=Severity.ACT)
    assert known.new([worse]) == [worse] and known.new([worse, merged]) == []
    later = replace(merged, first_step=alert.first_step + 100)
    assert known.new([later]) == [later]


def test_facts_hold_no_path_secret_or_control_character(alert: Alert) -> None:
    name = "/home/ann/runs/hf_abcdefghijklmnopqrstuvwx\x00\n\x1b[31m"
    told = json.dumps(facts(name, alert)) + str(variables(name, alert))
    assert "/home" not in told and "hf_abc" not in told and "\\u001b" not in told and "\x00" not in told
    json.dumps(payload("x", alert), allow_nan=False)
    for path in ("C:\\Users\\ann\\night", "\\\\server\\share\\night\\", "~/runs/night/", "s3://ann:word@bucket/night"):
        assert facts(path, alert)["run"] == "night"


@pytest.mark.parametrize("host", ["hooks.slack.com", "discord.com", "canary.discord.com", "chat.example.org"])
def test_a_chat_gets_the_message_that_it_takes_and_nobody_is_called(host: str, alert: Alert) -> None:
    told = payload("x/<!channel> @everyone & `co`", alert, "https://ann:pw@gpu-7.example.org:8501/?token=s3cret", host)
    text, link = json.dumps(told), "https://gpu-7.example.org:8501/?run=x%2F%3C%21channel%3E+%40everyone+%26+%60co%60"
    assert (
        "s3cret" not in text and "pw" not in text and alert.signal.title in text and "from step 21, still open" in text
    )
    if host == "hooks.slack.com":
        assert set(told) == {"text", "attachments"} and "<" not in text and "&amp;" in told["text"]
        assert set(told["attachments"][0]) == {"color", "text"} and told["attachments"][0]["text"].endswith(link)
    elif "discord" in host:
        (embed,) = told["embeds"]
        assert told["allowed_mentions"] == {"parse": []} and embed["url"] == link and 0 < embed["color"] < 1 << 24
        assert len(embed["title"]) <= 256 and "\\`co\\`" in embed["title"]
    else:
        assert told["link"] == link and told["body"].splitlines()[-1] == link
        assert told["subject"] == f"act: {alert.signal.title} in <!channel> @everyone & `co`"


def test_a_server_tells_of_what_happens_while_it_serves(tmp_path: Path, server: Server) -> None:
    runs, said = {"old": tmp_path / "old", "ended": tmp_path / "ended"}, list[str]()
    with Writer(runs["ended"], noise=0.8) as writer:
        writer.write(5)
    with Writer(runs["old"], noise=0.8) as writer:
        writer.write(5)
        rounds = iter(range(1_000_000))
        tell = teller(None, webhook_of(server.url))

        def found() -> dict[str, str]:
            next(rounds)
            return {name: str(path) for name, path in runs.items()}

        ended = follow_runs(found, tell, said.append, every=0.1)
        wait_until(lambda: next(rounds) > 3)
        assert not server.posts, "what was open before is no news"
        runs["gone"] = tmp_path / "gone"
        runs["new"] = tmp_path / "new"
        with Writer(runs["new"], noise=0.8) as later:
            later.write(6)
            wait_until(lambda: bool(server.posts))
            later.kill()
            wait_until(lambda: lives(server)[-1:] == ["act: new is dead"])
        with Writer(runs["new"], noise=0.8) as back:
            back.write(1)
            wait_until(lambda: lives(server)[-1:] == ["healthy: new lives again"])
            before = next(rounds)
            wait_until(lambda: next(rounds) > before + 9)
    ended.set()
    assert {body["run"] for _, body in server.posts} == {"new"} and len(said) <= 1
    assert lives(server) == ["act: new is dead", "healthy: new lives again"], "each once"


def lives(server: Server) -> list[str]:
    return [body["subject"] for _, body in server.posts if body["signal"] == "liveness"]


def test_a_watch_tells_of_a_death_once_and_not_again_after_its_restart(tmp_path: Path) -> None:
    run, told = tmp_path / "run", list[str]()

    def tell(name: str, news: News) -> list[str]:
        told.append(facts(name, news)["subject"])
        return []

    with Writer(run) as writer:
        writer.write(1)
        first = Followed(Watched(run))
        first.read()
        assert first.look(tell) == [] and not told, "a run that lives is no news"
        writer.kill()
        first.look(tell)
        first.look(tell)
        assert told == ["act: live is dead"] and first.seen is not None and not first.seen.has_ended
        again = Followed(Watched(run))
        again.read()
        again.look(tell)
        assert told == ["act: live is dead"], "a watch that begins anew repeats nothing"
    with Writer(run) as writer:
        writer.write(1)
        first.look(tell)
        again.look(tell)
    assert told[1:] == ["healthy: live lives again"] * 2
    first.look(tell)
    assert len(told) == 3 and first.seen.has_ended, "a run that closes its log is no news"


@pytest.mark.parametrize("host", ["hooks.slack.com", "discord.com", "chat.example.org"])
def test_a_run_that_is_silent_has_a_message_of_each_form(host: str) -> None:
    state = RunState("silent", "▲ silent for 5 minutes", "The writer runs on s3cret-host.", "5 minutes ago", step=12)
    text = json.dumps(payload("night", LifeChange(state), host=host))
    assert "watch: night is silent" in text and "silent for 5 minutes; the newest step is 12" in text
    assert "See whether the trainer is at work." in text and "s3cret" not in text
    assert variables("night", LifeChange(state))["RATIOSCOPE_ALERT_PEAK"] == ""


@pytest.mark.parametrize(
    ("command", "wanted"),
    [("true", ""), ("false", "ended with 1"), ("/no/such", "cannot be run"), ("sleep 30", "took more than 0.2 s")],
)
def test_a_command_ends_within_its_limit_and_its_failure_is_words(command: str, wanted: str) -> None:
    began = time.monotonic()
    assert wanted in failure_of_command(arguments_of(command), {}, 0.2 if "sleep" in command else 20)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("command", ["", "  ", "'open", "a\0b"])
def test_a_command_without_words_is_refused(command: str) -> None:
    with pytest.raises(ConfigError, match="--on-alert"):
        arguments_of(command)


@pytest.mark.parametrize(
    "url",
    ["http://example.org/x", "ftp://example.org", "example.org/s3cret", "https://", "https://ann:pw@example.org/s3cret",
     "https://example.org:port/s3cret", "http://localhost.example.org/", "https://a b/", "https://example.org/\r\nX: y",
     "http://[::1/s3cret", "file:///etc/passwd", "ftp://example.org\\s3cret", "https://example.org\\s3cret", "https://example.org%2Fs3cret",
     "https://example.org;s3cret", "https://example.org|s3cret", "https://example.org&s3cret", "https://example.org,s3cret"],
)  # fmt: skip
def test_a_webhook_is_https_or_http_to_this_machine(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        webhook_of(url)
    assert "s3cret" not in str(refused.value).lower() and "pw" not in str(refused.value)


def test_a_webhook_to_a_private_machine_needs_leave(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    port = server.server_address[1]
    asked: list[str] = []

    def resolved(host: str, port: int, **_: object) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    for host in ("public.example.org", "10.0.0.1"):
        found = failure_of_post(Webhook(host, port, "/", False), {})
        assert "is no public machine; --allow-private" in found and not server.posts
    assert asked == ["public.example.org", "10.0.0.1"], "resolved once each"
    monkeypatch.undo()
    assert failure_of_post(Webhook("127.0.0.1", port, "/", False, True), {"a": 1}) == ""
    assert server.posts == [("/", {"a": 1})]


PRIVATE = """
127.0.0.1 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 0.0.0.0 0.1.2.3 192.0.0.1 192.0.0.9 192.0.2.1 192.88.99.1
198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1 239.1.2.3 240.0.0.1 255.255.255.255
:: ::1 ::2 ::10.0.0.1 ::8.8.8.8 ::ffff:10.0.0.1 ::ffff:0:0 ::ffff:0:10.0.0.1 ::ffff:0:8.8.8.8 64:ff9b::a00:1 64:ff9b::6440:1
64:ff9b:1::1 64:ff9b:1::8.8.8.8 64:ff9b:1:fffe::1 100::1 200::1 1::1 2001::1 2001:0:808:808::f5ff:fffe 2001:2::1 2001:20::1
2001:db8::1 2002:7f00:1:: 2002:a00:1::1 2002:e000:1:: 3fff::1 4000::1 5f00::1 8000::1 e000::1 fc00::1 fd00::1 fd00:ec2::254
fe00::1 fe80::1 fe80::1%eth0 fec0::1 feff::1 ff02::1 ff0e::1
""".split()


@pytest.mark.parametrize("address", PRIVATE)
def test_no_address_of_a_private_network_is_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address",
    "8.8.8.8 192.1.2.3 2001:4860:4860::8888 2606:4700::1 2a00:1450::1 2400:cb00::1 ::ffff:8.8.8.8 64:ff9b::808:808".split(),
)
def test_public_addresses_are_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "host", ["2130706433", "0x7f000001", "017700000001", "127.1", "0x7f.1", "[::ffff:7f00:1]", "[::1%lo]"]
)
def test_this_machine_in_another_spelling_is_no_public_machine(host: str, server: Server) -> None:
    found = failure_of_post(webhook_of(f"https://{host}:{server.server_address[1]}/"), {})
    assert "is no public machine" in found or "cannot be reached" in found
    assert server.posts == []


def test_one_private_address_of_a_name_is_enough_to_refuse_it(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    port = server.server_address[1]
    families = {socket.AF_INET: "8.8.8.8", socket.AF_INET6: "fec0::1"}
    found = [(family, socket.SOCK_STREAM, 6, "", (address, port)) for family, address in families.items()]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert "is no public machine" in failure_of_post(Webhook("example.org", port, "/", True), {})


def test_a_redirect_is_not_followed_and_silence_ends(server: Server) -> None:
    server.answer = 302
    assert "answered 302; redirects are not followed" in failure_of_post(webhook_of(server.url), {})
    assert [path for path, _ in server.posts] == ["/hook/s3cret?x=1"]
    server.answer = None
    began = time.monotonic()
    assert "did not answer within 0.3 s" in failure_of_post(webhook_of(server.url), {}, 0.3)
    assert time.monotonic() - began < 20


def test_https_wants_a_certificate_that_is_known(server: Server) -> None:
    url = server.url.replace("http:", "https:")
    assert "localhost cannot be reached: " in failure_of_post(webhook_of(url), {})
    assert server.posts == []


def test_wrong_options_exit_2_before_anything_is_read(capsys: Captured) -> None:
    for more in (["--webhook", "http://example.org"], ["--on-alert", ""], ["--every", "0"]):
        assert main(["watch", "/no/such/run", *more]) == cli.USAGE
    assert main(["watch", "/no/such/run"]) == cli.UNREADABLE
    capsys.readouterr()
