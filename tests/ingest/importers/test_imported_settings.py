"""The settings of imported logs: written by each logger's own package (tests/data/scalars/settings), redacted, and bounded."""

import json
import shutil
import sqlite3
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT

from ratioscope import open_run
from ratioscope.app.cli import main
from ratioscope.app.upkeep.importing_scalars import _nested
from ratioscope.ingest.analysis.comparability import comparability, run_facts
from ratioscope.ingest.analysis.run_settings import settings
from ratioscope.ingest.importers.scalars.event_files import event_rows, masked_crc
from ratioscope.ingest.importers.scalars.number_row import LogChoices
from ratioscope.kept_settings import CHARACTERS, MEMBERS

DATA = ROOT / "tests" / "data" / "scalars" / "settings"
SECRETS = (b"hf_abcdef", b"hunter2", b"abc123def456", b"sk-0123456789")
WANTED = {
    "config.temperature": "0.7", "config.top_p": "0.9", "config.learning_rate": "1e-06", "config.bf16": "true",
    "config.steps": "[1, 2]", "config.model_name_or_path": "Qwen/Qwen3-8B", "config.hub_token": "[redacted]",
    "config.endpoint": "[redacted]", "config.rollout.dtype": "bfloat16", "config.rollout.api_key": "[redacted]",
}  # fmt: skip


def store(folder: Path, name: str) -> Path:
    """A store of the tables that the logger's package wrote."""
    base = sqlite3.connect(folder / f"{name}.db")
    base.executescript((DATA / f"{name}.sql").read_text())
    base.close()
    return folder / f"{name}.db"


def imported(source: Path, run: Path) -> dict[str, Any]:
    assert main(["import", str(source), "-o", str(run)]) == 0
    return dict(open_run(run).info)


def stored(run: Path) -> bytes:
    return b"".join(path.read_bytes() for path in run.rglob("*") if path.is_file())


SOURCES: Mapping[str, Callable[[Path], Path]] = {
    "trackio": lambda folder: store(folder, "trackio"),
    "mlflow": lambda folder: store(folder, "mlflow"),
    "swanlab": lambda folder: DATA / "swanlab",
    "tensorboard": lambda folder: DATA / "events",
}


@pytest.mark.parametrize("logger", SOURCES)
def test_the_settings_of_each_logger_are_read_and_no_secret_of_them_is_stored(logger: str, tmp_path: Path) -> None:
    info = imported(SOURCES[logger](tmp_path), tmp_path / "run")
    found = settings(info)
    assert {key: found.get(key) for key in WANTED} == WANTED
    assert sorted(info["redacted"]) == ["endpoint", "hub_token", "rollout.api_key"]
    assert not any(secret in stored(tmp_path / "run") for secret in SECRETS)
    assert open_run(tmp_path / "run").logged["value"].to_list() == [0.25, 0.5, 0.75]


@pytest.mark.parametrize("logger", SOURCES)
def test_imported_settings_are_compared_and_choose_the_published_class(logger: str, tmp_path: Path) -> None:
    info = imported(SOURCES[logger](tmp_path), tmp_path / "run")
    compared = {each.name: each.rollout for each in comparability(info)}
    assert (compared["temperature"], compared["top-p"]) == ("0.7", "0.9")
    facts = run_facts(info)
    assert (facts.model, facts.billions, facts.engine) == ("Qwen/Qwen3-8B", 8, "bfloat16")


def test_a_text_is_a_setting_only_before_the_first_number(tmp_path: Path) -> None:
    found = settings(imported(DATA / "events", tmp_path / "run"))
    assert found["config.rollout_batch_size"] == "8" and not any("sample" in key for key in found)


def test_settings_that_loggers_keep_for_themselves_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = settings(imported(store(tmp_path, "trackio"), tmp_path / "run"))
    assert "10 settings of the run kept, without secrets" in capsys.readouterr().out
    assert not any(key.startswith("config._") for key in found)


def nested(levels: int) -> dict[str, Any]:
    inner: dict[str, Any] = {"password": "hunter2"}
    for _ in range(levels):
        inner = {"a": inner}
    return inner


def with_config(folder: Path, text: str) -> Path:
    path = store(folder, "trackio")
    base = sqlite3.connect(path)
    base.execute("UPDATE configs SET config = ?", (text,))
    base.commit()
    base.close()
    return path


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(nested(40)),
        '{"a":' * 100_000,
        json.dumps({"x": "a " * (4 * CHARACTERS)}),
        json.dumps({f"k{at}": at for at in range(20 * MEMBERS)}),
        '{"a": NaN, "b": Infinity, "c": 1' + "0" * 4000 + "}",
        "no JSON",
        "[1, 2]",
    ],
    ids=["nested", "deep", "long", "many", "nan", "none", "list"],
)  # fmt: skip
def test_a_hostile_config_is_cut_and_the_numbers_are_imported(text: str, tmp_path: Path) -> None:
    info = imported(with_config(tmp_path, text), tmp_path / "run")
    assert len(json.dumps(info["config"])) < 3 * CHARACTERS and b"hunter2" not in stored(tmp_path / "run")
    assert len(open_run(tmp_path / "run").logged) == 3


def test_a_config_of_100_megabytes_is_cut(tmp_path: Path) -> None:
    path = with_config(tmp_path, '{"lr": 1, "x": "' + "ab" * 50_000_000 + '"}')
    info = imported(path, tmp_path / "run")
    assert info["config"]["lr"] == 1 and len(info["config"]["x"]) < 10_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: &x [1]\nb: *x\n", "aliases"),
        ("a: [" * 2000, "neither JSON nor YAML"),
        ("lr:\n  value: 1\n" + "# " + "x" * (1 << 20), "larger than"),
        ("- 1\n- 2\n", "wanted a mapping"),
    ],
)
def test_settings_beside_a_log_that_cannot_be_read_are_told(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(DATA / "swanlab", tmp_path / "log")
    (tmp_path / "log" / "files" / "config.yaml").write_text(text)
    info = imported(tmp_path / "log", tmp_path / "run")
    said = " ".join(capsys.readouterr().out.split())
    assert info["config"] == {"imported_from": "log"} and "its settings are not read" in said and words in said


def event(value: bytes) -> bytes:
    """A record of an event file with one value in its summary."""
    summary = field(5, field(1, value))
    head = struct.pack("<Q", len(summary))
    return head + struct.pack("<I", masked_crc(head)) + summary + struct.pack("<I", masked_crc(summary))


def field(number: int, content: bytes) -> bytes:
    """A field of bytes in a protobuf message."""
    size, length = len(content), b""
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


def of_plugin(tag: bytes, plugin: bytes, content: bytes, tensor: bytes = b"") -> bytes:
    return event(field(1, tag) + field(9, field(1, field(1, plugin) + field(2, content))) + field(8, tensor))


@pytest.mark.parametrize(
    "content",
    [
        b"\xff" * 9,
        field(3, b"\xff" * 9),
        field(3, field(1, b"\x0a\x01a\x12\x02\x11\x00")),
        field(3, field(1, field(1, b"a"))),
    ],
)
def test_broken_hyperparameters_cost_no_number(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.x"
    number = event(field(1, b"loss") + b"\x15" + struct.pack("<f", 0.5))
    path.write_bytes(of_plugin(b"_hparams_/session_start_info", b"hparams", content) + number)
    choice = LogChoices()
    assert [getattr(row, "values", None) for row in event_rows(path, choice)][0] == {"loss": 0.5}
    assert choice.config == {}


@pytest.mark.parametrize("text", [b"many words of a sample", b"", b'"a b"'])
def test_a_text_of_several_words_is_no_setting(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.x"
    path.write_bytes(of_plugin(b"note/text_summary", b"text", b"", field(8, text)))
    choice = LogChoices()
    assert not list(event_rows(path, choice)) and choice.config == {}


def test_info_names_known_faults_of_the_settings_and_the_published_range(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", str(DATA / "wandb"), "-o", str(tmp_path / "runs"), "--dialect", "verl@0.9.1"]) == 0
    capsys.readouterr()
    assert main(["info", str(tmp_path / "runs" / "bad-week"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each["code"], each["because"]) for each in found["known_faults"]] == [
        ("verl_truncated_sampling", {"config.actor_rollout_ref.rollout.top_p": "0.9"})
    ]
    assert found["reference"]["published"]["class"] == "dense bf16"
    assert main(["info", str(tmp_path / "runs" / "bad-week")]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        "usual for dense models of 1 to 14B in bf16" in printed
        and "Set actor_rollout_ref.rollout.top_p=1.0." in printed
    )


def test_names_joined_by_dots_or_strokes_become_the_config_of_the_trainer(tmp_path: Path) -> None:
    info = imported(store(tmp_path, "mlflow"), tmp_path / "run")
    assert info["config"]["rollout"] == {"dtype": "bfloat16", "api_key": "[redacted]"}
    assert _nested({"a.b": 1, "a.c": 2, "d": 3, "d.e": 4, "f.": 5}) == {
        "a": {"b": 1, "c": 2}, "d": 3, "d.e": 4, "f": {"": 5},
    }  # fmt: skip
    assert _nested({"a" + ".a" * 10_000: 1}) == {"a" + ".a" * 10_000: 1}
