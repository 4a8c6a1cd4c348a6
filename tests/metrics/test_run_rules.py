"""A run's own rules mute and tune signals and causes; verdict, alerts and limits follow, and list every change."""

import json
from pathlib import Path

import pytest
from support.frames import frame_of
from support.recorded import recorded

from ratioscope.app import cli
from ratioscope.app.cli import main
from ratioscope.app.documents.material import material
from ratioscope.app.documents.report import markdown_report
from ratioscope.errors import ConfigError
from ratioscope.ingest.analysis.diagnosis import diagnosis_of, plain_diagnosis
from ratioscope.ingest.analysis.gate_outcomes import outcomes
from ratioscope.ingest.analysis.grades import verdict_of
from ratioscope.ingest.analysis.recorded_events import events_and_alerts
from ratioscope.ingest.files.run_file import rules_of_file
from ratioscope.ingest.run import open_run
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.diagnosis.catalogue import CAUSE
from ratioscope.metrics.grading.finding import Finding, Severity
from ratioscope.metrics.grading.gate import Gate
from ratioscope.metrics.grading.limits import limits_of
from ratioscope.metrics.grading.run_rules import NO_FILE, RULES_FILE, RunRules, run_rules
from ratioscope.metrics.grading.run_verdict import verdict
from ratioscope.metrics.grading.severity import grade_signals
from ratioscope.metrics.grading.signals import SIGNALS
from ratioscope.toml_file import MOST_BYTES, tables

Captured = pytest.CaptureFixture[str]
MUTED = '[signals.kl_k3]\nmute = true\nreason = "known | since May"\n'


def rules(text: str) -> RunRules:
    return run_rules(tables(text.encode(), "r.toml"), tuple(CAUSE), "r.toml")


def judged(level: list[float], text: str) -> Finding:
    own = rules(text)
    frame = frame_of({"kl_k3": level, "kl_k3_se": [value / 100 for value in level]})
    return verdict(grade_signals(frame, None, own.rules.signals), {}, own)


@pytest.fixture(scope="module")
def stale(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded("trl_vllm_stale4", tmp_path_factory.mktemp("runs") / "stale")


@pytest.fixture
def ruled(stale: Path) -> Path:
    """The stale run with the file of its rules, empty at first."""
    (stale / RULES_FILE).write_text("")
    return stale


def test_an_empty_file_changes_nothing() -> None:
    assert rules("") == RunRules(source="r.toml") and NO_FILE.sentence == rules("").sentence == ""
    assert judged([0.2] * 5, "") == verdict(grade_signals(frame_of({"kl_k3": [0.2] * 5, "kl_k3_se": [0.002] * 5})), {})


def test_a_muted_signal_decides_nothing_and_is_a_check_that_was_not_made() -> None:
    level = [0.2] * 5  # the floor of such a run is above HEALTHY_K3, so kl_k3 alone grades it
    assert judged(level, "").severity is Severity.ACT
    found = judged(level, MUTED)
    assert found.severity is Severity.HEALTHY and found.confidence != "high"
    (check,) = (check for check in found.checks if check.name == "kl_k3")
    assert (check.steps, check.absent) == (0, "because r.toml mutes it: known | since May")
    assert "r.toml changes the rules: signal kl_k3 is muted: known | since May." in found.sentence


def test_a_reason_is_one_short_line_without_secrets() -> None:
    found = judged([0.002] * 3, '[signals.kl_k3]\nmute = true\nreason = """a\nb hf_abcdefghijklmnopqrstuvwx """').rules
    assert "is muted: a b [redacted]." in found
    assert len(judged([0.002] * 3, f'[signals.kl_k3]\nmute = true\nreason = "{"x" * 9000}"').rules) < 300


def test_a_tuned_signal_grades_by_its_own_thresholds_and_the_verdict_names_them() -> None:
    level = [0.002] * 4 + [0.05] * 4
    tuned = "[signals.kl_k3]\nwatch = 0.06\nact = 0.5\n[signals.kl_k3_over_floor]\nmute = true"
    assert judged(level, "[signals.kl_k3_over_floor]\nmute = true").severity is Severity.WATCH
    found = judged(level, tuned)
    assert found.severity is Severity.HEALTHY and "watch begins at 0.06" in found.evidence
    assert "signal kl_k3: watch from 0.06, act from 0.5" in found.rules and "no reason is given" in found.rules
    assert judged(level, tuned.replace("0.5\n", "0.06\n").replace("0.06\n", "0.01\n")).severity is Severity.ACT
    signals = rules(tuned).rules.signals
    assert [limit.at for limit in limits_of(BY_NAME["kl_k3"], "mismatch", signals)] == [0.06, 0.5]
    assert limits_of(BY_NAME["kl_k3"], "mismatch", signals[:0]) != limits_of(BY_NAME["kl_k3"], "mismatch", SIGNALS)


WRONG = (
    ("[signals.kl_k4]\nmute = true", "did you mean kl_k3"),
    ("[signals.kl_k3]\nmuted = true", "did you mean mute?"),
    ("[signals.kl_k3]\nmute = 1", "mute = true or false"),
    ("[signals.kl_k3]\nmute = true\nreason = 3", 'reason = "..."'),
    ("[signals.kl_k3]\nwatch = 0.5", "act = 0.1 is below watch = 0.5"),
    ("[signals.kl_k3]\nwatch = -1", "a number above 0"),
    ("[signals.kl_k3]\nact = inf", "a number above 0"),
    ("[signals]\nkl_k3 = true", "wanted a table"),
    ("[causes.shift]\nmute = true", "did you mean shifted"),
    ("[causes.shifted]\nwatch = 1", "wanted one of mute, reason"),
    ("[alerts]\nopen_after = 1", "unknown name 'alerts'"),
)


@pytest.mark.parametrize(("text", "advice"), WRONG, ids=[advice for _, advice in WRONG])
def test_wrong_rules_are_refused_with_the_nearest_name(text: str, advice: str) -> None:
    with pytest.raises(ConfigError) as refused:
        rules(text)
    assert advice in str(refused.value)


def test_the_file_in_the_folder_rules_every_face_and_is_read_again_when_it_changes(
    ruled: Path, capsys: Captured
) -> None:
    opened = open_run(ruled)
    before = events_and_alerts(opened).alerts
    assert "kl_k3" in {alert.signal.name for alert in before} and opened.refresh() is False
    (ruled / RULES_FILE).write_text(MUTED)
    assert opened.refresh() and "kl_k3" not in {alert.signal.name for alert in events_and_alerts(opened).alerts}
    assert "is muted: known" in verdict_of(opened).sentence
    text = markdown_report(material(opened))
    assert "kl\\_k3 is muted" in text or "kl_k3 is muted" in text
    for verb in ("info", "check", "diagnose"):
        main([verb, str(ruled)])
        assert "ratioscope.toml changes the rules: signal kl_k3 is muted: known" in capsys.readouterr().out, verb
    main(["info", str(ruled), "--json"])
    assert "kl_k3 is muted" in json.loads(capsys.readouterr().out)["finding"]["rules"]


def test_a_file_of_the_user_takes_the_place_of_the_folders(ruled: Path, tmp_path: Path, capsys: Captured) -> None:
    (ruled / RULES_FILE).write_text(MUTED)
    (tmp_path / "own.toml").write_text('[signals.surprisal]\nmute = true\nreason = "x"')
    main(["info", str(ruled), "--rules", str(tmp_path / "own.toml")])
    printed = capsys.readouterr().out
    assert "own.toml changes the rules: signal surprisal is muted: x." in printed and "ratioscope.toml" not in printed
    (tmp_path / "own.toml").write_text("[signals.no]")
    assert main(["check", str(ruled), "--rules", str(tmp_path / "own.toml")]) == cli.USAGE
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("content", [b"[", b"[x]", b"\xff", b"a=" + b"[" * 9000, b"#" * (MOST_BYTES + 1)])
def test_a_wrong_file_in_a_folder_is_not_used_and_the_verdict_says_so(ruled: Path, content: bytes) -> None:
    usual = verdict_of(open_run(ruled))
    (ruled / RULES_FILE).write_bytes(content)
    found = verdict_of(open_run(ruled))
    assert found.severity == usual.severity
    assert "ratioscope.toml is not used: " in found.sentence and len(found.rules) < 500


def test_a_link_or_a_pipe_of_that_name_is_not_followed(ruled: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs.toml").write_text(MUTED)
    (ruled / RULES_FILE).unlink()
    (ruled / RULES_FILE).symlink_to(tmp_path / "theirs.toml")
    assert "not used" in verdict_of(open_run(ruled)).rules
    (ruled / RULES_FILE).unlink()
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError):
        rules_of_file(tmp_path / "folder")


def test_a_muted_cause_is_diagnosed_and_set_apart(ruled: Path) -> None:
    usual = diagnosis_of(open_run(ruled))
    first = usual.diagnosis.likely[0]
    (ruled / RULES_FILE).write_text(f'[causes.{first.cause.code}]\nmute = true\nreason = "known"')
    found = diagnosis_of(open_run(ruled))
    assert first.cause.code not in {item.cause.code for item in found.diagnosis.likely}
    assert found.diagnosis.explained == usual.diagnosis.explained and not found.diagnosis.is_healthy
    assert "Muted: " in found.diagnosis.answer and first.title in found.diagnosis.answer
    (muted,) = plain_diagnosis(found)["muted"]
    assert (muted["code"], muted["reason"]) == (first.cause.code, "known")
    (outcome,) = outcomes(open_run(ruled), Gate(None, (), {first.cause.code: "fail"}))
    assert outcome.state == "undecided" and outcome.found.startswith("muted, known: ")
