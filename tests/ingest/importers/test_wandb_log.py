"""The reader of W&B's log beside a log that W&B itself has written: whole, cut, altered, and no log at all."""

import io
import json
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratioscope.app.cli import UNREADABLE, main
from ratioscope.errors import ConfigError, SourceError
from ratioscope.ingest.importers.scalars.wandb_online import likely_dialect
from ratioscope.ingest.importers.wandb_log import BLOCK, MAGIC, LogDamage, LogRecord, entries, records, wandb_file

ROWS = 400
WRITE = """
import json, os, wandb
settings = wandb.Settings(console="off", silent=True, x_disable_stats=True, x_disable_meta=True, disable_git=True)
run = wandb.init(project="p", group="g", id="theirs", name="n", mode="offline", settings=settings)
for step in range(int(os.environ["ROWS"])):
    run.log({"rollout_corr/kl": step / 7, "text": "x" * (step * 137 % 9000), "nan": float("nan"), "a": {"b": step}}, step=step)
run.alert("title", "text", level=wandb.AlertLevel.ERROR)
run.finish()
wandb.teardown()
"""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of some dozen blocks, some records longer than a block's rest."""
    home = tmp_path_factory.mktemp("wandb")
    places = {f"WANDB_{name}": str(home) for name in ("DIR", "DATA_DIR", "CACHE_DIR", "CONFIG_DIR")}
    environment = os.environ | places | {"HOME": str(home), "WANDB_ERROR_REPORTING": "false", "ROWS": str(ROWS)}
    subprocess.run([sys.executable, "-c", WRITE], env=environment, check=True, capture_output=True, timeout=300)
    return next(home.rglob("run-theirs.wandb"))


def read(content: bytes, path: Path) -> tuple[list[LogRecord], LogDamage]:
    path.write_bytes(content)
    health = LogDamage()
    return list(entries(path, health)), health


def rows(found: list[LogRecord]) -> list[dict[str, object]]:
    return [entry.values for entry in found if entry.kind == "history"]


def test_every_row_of_wandb_is_read_with_equal_values(log: Path) -> None:
    health = LogDamage()
    found = list(entries(wandb_file(log.parent), health))
    assert health == LogDamage() and log.stat().st_size > 10 * BLOCK
    own = rows(found)
    assert [(row["_step"], row["rollout_corr/kl"], row["a.b"], len(str(row["text"]))) for row in own] == [
        (step, step / 7, step, step * 137 % 9000) for step in range(ROWS)
    ]
    assert all(str(row["nan"]).lower() == "nan" for row in own)
    (facts,) = [entry.values for entry in found if entry.kind == "run"]
    assert {"id": "theirs", "project": "p", "group": "g", "name": "n"}.items() <= facts.items()
    (alert,) = [entry.values for entry in found if entry.kind == "alert"]
    assert (alert["title"], alert["level"]) == ("title", "ERROR")


def test_a_log_that_was_cut_or_still_grows_gives_the_rows_before_the_end(log: Path, tmp_path: Path) -> None:
    content = log.read_bytes()
    whole = list(records(io.BytesIO(content), LogDamage()))
    boundaries = range(BLOCK, len(content), BLOCK)
    assert len(boundaries) > 10
    before = 0
    for cut in sorted({at + by for at in boundaries for by in (-8, -7, -1, 0, 1, 6, 7, 8)}):
        health = LogDamage()
        own = list(records(io.BytesIO(content[:cut]), health))
        assert own == whole[: len(own)] and before <= len(own) < len(whole) and health.damaged == 0
        before = len(own)
    assert before > len(whole) // 2
    assert read(content[: BLOCK + 100], tmp_path / "l")[1].torn


def test_a_flipped_bit_costs_rows_and_never_alters_one(log: Path, tmp_path: Path) -> None:
    content = log.read_bytes()
    whole = set(map(str, rows(read(content, tmp_path / "l")[0])))
    for at in range(len(MAGIC) + 1, len(content), len(content) // 60):
        flipped = bytearray(content)
        flipped[at] ^= 1 << at % 8
        found, health = read(bytes(flipped), tmp_path / "l")
        own = set(map(str, rows(found)))
        assert own <= whole, at
        assert health.damaged or health.torn or own == whole, at


@given(st.binary(max_size=300))
def test_any_bytes_end_the_reader_in_order(content: bytes) -> None:
    health = LogDamage()
    assert list(records(io.BytesIO(MAGIC + content), health)) == []  # no digest of 32 bits is met by chance
    assert health.damaged or health.torn or not any(content[:7])  # zeros are room that was never written


@given(st.binary(max_size=200))
def test_a_record_that_is_no_message_is_counted(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    chunk = struct.pack("<IHB", zlib.crc32(b"\x01" + data), len(data), 1) + data
    found, health = read(MAGIC + chunk, tmp_path_factory.getbasetemp() / "any.wandb")
    assert health.damaged in (0, 1) and not health.torn and json.dumps([entry.kind for entry in found])


def test_another_file_or_folder_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="holds 0 files"):
        wandb_file(tmp_path)
    with pytest.raises(SourceError, match="no log of W&B"):
        read(b"PAR1" * 9, tmp_path / "x.wandb")


def test_show_prints_a_number_under_its_own_name_beside_ours(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wandb", "show", str(log.parent), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    kl = {"name": "rollout_corr/kl", "canonical": "mismatch/kl_direct", "rows": ROWS, "not_finite": 0}
    assert shown["dialect"] == "verl" and not shown["torn"] and shown["damaged"] == 0
    assert shown["numbers"] == [{**kl, "last_row": ROWS - 1, "last": (ROWS - 1) / 7}]
    assert main(["wandb", "show", str(log), "--all"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("rollout_corr/kl", "a.b", "nan", "mismatch/kl_direct"))
    assert "text" not in out
    assert main(["wandb", "show", str(log), "--dialect", "slime"]) == 0
    assert "kl_direct" not in capsys.readouterr().out
    assert main(["wandb", "show", str(log.parent.parent)]) == UNREADABLE


def test_names_of_two_trainers_alike_are_nobodys() -> None:
    assert likely_dialect(["loss"]) is None and likely_dialect(["train/gen_kl_error", "x"]) == "nemo_rl"
    with pytest.raises(ConfigError, match="slime and openrlhf and fireworks alike"):
        likely_dialect(["train/ppo_kl"])
