"""`ratioscope check`: bounds on metrics and causes as an exit code, JUnit XML and a GitHub summary."""

import json
import math
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support.recorded import recorded

from ratioscope.app import cli
from ratioscope.app.cli import main
from ratioscope.app.cli.commands.check import junit, summary
from ratioscope.collectors.collector import Collector
from ratioscope.errors import ConfigError
from ratioscope.ingest.analysis.gate_outcomes import DemandOutcome, outcomes
from ratioscope.ingest.run import open_run
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.diagnosis.catalogue import CAUSE
from ratioscope.metrics.grading.finding import Severity
from ratioscope.metrics.grading.gate import Gate, gate_of, surely
from ratioscope.toml_file import MOST_BYTES, tables

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def stale(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded("trl_vllm_stale4", tmp_path_factory.mktemp("runs") / "stale")


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded("lcpp_q4_1", tmp_path_factory.mktemp("runs") / "healthy")


def gate(text: str) -> Gate:
    return gate_of(tables(text.encode(), "limits.toml"), tuple(CAUSE), "limits.toml")


def states(run: Path, text: str) -> list[tuple[str, str]]:
    """(name, state) of each demand beside the verdict."""
    return [(one.name, one.state) for one in outcomes(open_run(run), gate(f'verdict = "allow"\n{text}'))]


def test_the_verdict_alone_is_a_gate(stale: Path, healthy: Path, capsys: Captured) -> None:
    assert main(["check", str(stale)]) == cli.FINDINGS
    assert "stale4: 1 of 1 demand failed" in capsys.readouterr().out
    assert main(["check", str(healthy), "--fail-on", "watch"]) == cli.OK


def test_a_bound_is_on_the_run_on_each_step_or_on_the_last_steps(stale: Path) -> None:
    """The first two of twelve steps are fresh, the values of the others lie around 0.1 to 1."""
    frame = open_run(stale).metrics(names=("kl_k3",))
    largest = max(frame["mismatch/kl_k3"])
    whole = open_run(stale).metrics(by=(), names=("kl_k3",))["mismatch/kl_k3"][0]
    last = open_run(stale).metrics(by=(), steps=range(20, 23), names=("kl_k3",))["mismatch/kl_k3"][0]
    between = (whole + largest) / 2

    def state(bound: str) -> str:
        return states(stale, f'[metrics]\n"mismatch/kl_k3" = {{ errors = 0, {bound} }}')[0][1]

    assert (state(f"max = {between}"), state(f'max = {between}, steps = "each"')) == ("passed", "failed")
    assert (state(f"min = {whole * 0.99}"), state(f"min = {whole * 1.01}")) == ("passed", "failed")
    assert (state(f'max = {last * 1.01}, steps = "last 2"'), state(f'max = {last * 0.99}, steps = "last 2"')) == (
        "passed",
        "failed",
    )
    assert state(f'min = {min(frame["mismatch/kl_k3"]) * 1.01}, steps = "each of last 5"') == "passed"


def test_the_uncertainty_is_taken_off_before_a_value_is_compared(stale: Path) -> None:
    row = open_run(stale).metrics(by=(), names=("kl_k3",)).row(0, named=True)
    value, error = row["mismatch/kl_k3"], row["mismatch/kl_k3_se"]
    low = value * math.exp(-2 * error / value)
    for at, state in ((low * 1.001, "passed"), (low * 0.999, "failed")):
        assert states(stale, f'[metrics]\n"mismatch/kl_k3" = {{ max = {at} }}') == [("mismatch/kl_k3", state)]


def test_a_signed_metric_has_a_plain_error_and_one_without_an_error_has_none() -> None:
    assert surely(BY_NAME["surprisal_gap"], 1.0, 0.25, 2.0) == (0.5, 1.5)
    assert surely(BY_NAME["kl_k3"], 0.0, 0.25, 2.0) == (-0.5, 0.5)
    assert surely(BY_NAME["kl_k3"], 1.0, None, 2.0) == (1.0, 1.0)
    assert surely(BY_NAME["kl_k3"], math.inf, math.nan, 2.0) == (math.inf, math.inf)


def test_a_byte_order_mark_before_the_tables_is_passed_over() -> None:
    assert tables(b'\xef\xbb\xbfverdict = "act"', "limits.toml") == {"verdict": "act"}


def test_an_absent_metric_fails_with_its_reason_unless_it_is_optional(stale: Path) -> None:
    text = '[metrics]\n"mismatch/surprisal_gap" = { max = 1 }'
    (found,) = outcomes(open_run(stale), gate(f'verdict = "allow"\n{text}'))
    assert (
        found.state == "failed"
        and "not available, because the entropy of the later policy is not on record" in found.found
    )
    assert states(stale, text.replace("1 }", "1, optional = true }")) == [("mismatch/surprisal_gap", "undecided")]


def test_a_run_without_steps_passes_no_bound(tmp_path: Path) -> None:
    with Collector(tmp_path / "empty"):
        pass
    assert states(tmp_path / "empty", '[metrics]\n"mismatch/kl_k3" = { max = 1, steps = "each" }')[0][1] == "failed"
    assert states(tmp_path / "empty", '[causes]\nshifted = "fail"') == [("shifted", "failed")]


def test_a_verdict_of_a_run_that_cannot_be_graded_is_not_measured(tmp_path: Path) -> None:
    with Collector(tmp_path / "one_side") as collector:
        collector.log(step=0, rollout_logprobs=[[-1.0]])
    (outcome,) = outcomes(open_run(tmp_path / "one_side"), gate(""))
    assert outcome.state == "unmeasured" and "Only the log-probs of rollout are on record" in outcome.found


def test_a_likely_cause_fails_an_allowed_one_does_not_and_an_open_one_is_undecided(stale: Path) -> None:
    assert ("version_lag", "failed") in states(stale, '[causes]\nversion_lag = "fail"')
    found = dict(states(stale, '[causes]\nversion_lag = "allow"\nstuck_replica = "fail"\nshifted = "fail"'))
    assert found == {"stuck_replica": "undecided", "shifted": "passed"}
    assert states(stale, '[causes]\n"*" = "fail"') == [("any other cause", "failed")]


WRONG = (
    ('[metrics]\n"mismatch/kl_k4" = { max = 1 }', "did you mean mismatch/kl_k3"),
    ("[metrics]\nkl_k3 = { max = 1 }", "did you mean mismatch/kl_k3 or total/kl_k3?"),
    ('[metrics]\n"mismatch/kl_k3" = { maximum = 1 }', "did you mean max?"),
    ('[metrics]\n"mismatch/kl_k3" = { optional = true }', "wanted max, min or both"),
    ('[metrics]\n"mismatch/kl_k3" = { max = "1" }', "wanted a number"),
    ('[metrics]\n"mismatch/kl_k3" = { max = nan }', "wanted a number"),
    ('[metrics]\n"mismatch/kl_k3" = { max = 1, min = 2 }', "no value passes"),
    ('[metrics]\n"mismatch/kl_k3" = { max = 1, steps = "some" }', '"each of last 10"'),
    ('[metrics]\n"mismatch/kl_k3" = 1', "wanted a table"),
    ('[causes]\nshift = "fail"', "did you mean shifted"),
    ('[causes]\nshifted = "warn"', '"fail" or "allow"'),
    ("[metric]", "did you mean metrics"),
    ('verdict = "bad"', "act, watch, allow"),
    ("[metrics", "is no TOML"),
    ("a = " + "[" * 5000, "is no TOML"),
    (f"#{'x' * MOST_BYTES}", "bytes"),
)


@pytest.mark.parametrize(("text", "advice"), WRONG, ids=[advice for _, advice in WRONG])
def test_a_wrong_limits_file_is_refused_with_the_nearest_name(text: str, advice: str) -> None:
    with pytest.raises(ConfigError) as refused:
        gate(text)
    assert advice in str(refused.value) and len(str(refused.value)) < 2500


@pytest.mark.parametrize("argv", [("--limits", "NONE"), ("--limits", "."), ("--github",), ("--junit", "no/such/x.xml")])
def test_wrong_usage_exits_2(healthy: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, argv: list[str]) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    assert main(["check", str(healthy), *argv]) == cli.USAGE
    assert capsys.readouterr().err.count("\n") == 1


def test_outcomes_replace_no_file_of_a_run(healthy: Path, capsys: Captured) -> None:
    before = (healthy / "run.json").read_bytes()
    assert main(["check", str(healthy), "--junit", str(healthy / "run.json")]) == cli.USAGE
    assert "--junit" in (said := capsys.readouterr().err) and "lies inside the run" in said
    assert (healthy / "run.json").read_bytes() == before


def test_a_file_that_demands_nothing_is_refused(healthy: Path, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "l.toml").write_text('verdict = "allow"')
    assert main(["check", str(healthy), "--limits", str(tmp_path / "l.toml")]) == cli.USAGE
    assert main(["check", str(healthy), "--limits", str(tmp_path / "l.toml"), "--fail-on", "act"]) == cli.OK
    assert main(["check", str(tmp_path), "--fail-on", "act"]) == cli.UNREADABLE
    capsys.readouterr()


def test_outcomes_go_to_json_junit_and_the_summary_of_a_workflow(
    stale: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits, xml, markdown = tmp_path / "l.toml", tmp_path / "gate.xml", tmp_path / "summary.md"
    limits.write_text(
        '[metrics]\n"mismatch/kl_k3" = { max = 9 }\n"mismatch/surprisal_gap" = { max = 9, optional = true }'
    )
    markdown.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(markdown))
    argv = ["check", str(stale), "--limits", str(limits), "--junit", str(xml), "--github", "--json"]
    assert main(argv) == cli.FINDINGS
    printed = json.loads(capsys.readouterr().out)
    assert printed["passed"] is False
    assert [one["state"] for one in printed["outcomes"]] == ["failed", "passed", "undecided"]
    suite = ElementTree.parse(xml).getroot()
    assert {key: suite.get(key) for key in ("tests", "failures", "skipped")} == {
        "tests": "3", "failures": "1", "skipped": "1",
    }  # fmt: skip
    text = markdown.read_text()
    assert text.startswith("before\n### ratioscope check") and text.count("\n| failed |") == 1


def test_hostile_text_of_a_run_ends_no_element_cell_or_line() -> None:
    hostile = DemandOutcome("verdict", "failed", "x", "\x1b[31m<b>|`\n# [a](http://x) ]]>\ud800\x00")
    xml = ElementTree.fromstring(junit("\x00<run>", [hostile]))
    message = xml.find(".//failure")
    assert message is not None and "\x1b" not in str(message.get("message"))
    table = summary("a\n# b <img src=x>", [hostile])
    assert "<b>" not in table and "<img" not in table and table.count("\n| ") == 3 and "\x1b" not in table


def test_a_gate_without_a_file_asks_the_verdict_for_act() -> None:
    assert Gate().verdict is Severity.ACT and gate('verdict = "watch"').verdict is Severity.WATCH
