"""The slime adapter on slime's own code: its samples, batches, training loop, loss and corrections, on a CPU.

Needs a checkout of THUDM/slime (it is not published), tested with 624b824a of 2026-08-21, in a folder of SOURCES.
Skipped otherwise.
"""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ratioscope
from ratioscope.app.cli import main

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]

torch = pytest.importorskip("torch", reason="slime runs on torch")
driving = pytest.importorskip("upstream.slime_drive", reason="slime is not importable here")
checks = pytest.importorskip("upstream.slime_checks", reason="it needs torch")

MIS = {
    "use_rs": True, "tis_level": "token", "rs_level": "token", "tis_mode": "truncate", "tis_lower_bound": 0.5,
    "tis_upper_bound": 2.0, "rs_lower_bound": 0.9, "rs_upper_bound": 1.1, "rs_veto_threshold": None,
    "tis_batch_normalize": True, "use_tis": True,
    "custom_tis_function_path": "examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp",
}  # fmt: skip
KL = {"kl_loss_type": "k3", "kl_loss_coef": 0.1, "use_unbiased_kl": False}
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"global_batch_size": 8},  # one optimizer step: no separate old pass
    {"recompute_loss_function": True},
    {"use_rollout_logprobs": True},
    {"use_tis": True},
    {
        "use_tis": True,
        "custom_tis_function_path": "slime.backends.megatron_utils.loss.icepop_function",
        "tis_clip_low": 0.5,
    },
    MIS,
    {"advantage_estimator": "gspo"},
    {"use_kl_loss": True, **KL},
    {
        "loss_type": "custom_loss",
        "custom_loss_function_path": "slime.backends.megatron_utils.loss.policy_loss_function",
    },
)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_what_slime_holds_is_recorded_and_its_training_is_bit_identical(tmp_path: Path, settings: Any) -> None:
    checks.assert_recorded(driving, tmp_path / "run", settings)


@pytest.mark.parametrize("settings", [{}, {"global_batch_size": 8}, MIS], ids=str)
def test_the_records_give_the_difference_that_slime_logs(tmp_path: Path, settings: Any) -> None:
    checks.assert_logged_difference(driving, tmp_path / "run", settings)


def test_a_run_of_slime_opens_with_its_lag(tmp_path: Path) -> None:
    driving.drive(tmp_path / "run", options={"strict": True})
    run = ratioscope.open_run(tmp_path / "run")
    assert run.metrics(by=["step", "lag"]).select("step", "lag").rows() == [(0, "0"), (1, "0")]
    assert run.info["trainer"] == "slime" and run.info["config"]["args"]["tis_clip"] == 2.0


@pytest.mark.parametrize("settings", [{}, {"global_batch_size": 8}, {"use_kl_loss": True, **KL}], ids=str)
def test_the_dump_that_slime_writes_gives_the_metrics_that_were_recorded(tmp_path: Path, settings: Any) -> None:
    dumps = {
        f"save_debug_{side}_data": str(tmp_path / "dump" / side / "{rollout_id}.pt") for side in ("rollout", "train")
    }
    driving.drive(tmp_path / "run", options={"strict": True}, **dumps, **settings)
    assert main(["import", str(tmp_path / "dump"), "-o", str(tmp_path / "imported")]) == 0
    checks.assert_equal_mismatch(tmp_path / "run", tmp_path / "imported")


EACH = ratioscope.SelfNoise(every=1, sequences=2)


def drawing(monkeypatch: pytest.MonkeyPatch, *, fails: bool = False) -> None:
    """Has the model draw from every source in each forward, as dropout does. fails: and raise in a second forward."""
    own = driving.Bigram.forward

    def forward(self: Any, input_ids: Any, **given: Any) -> Any:
        drawn = random.random() + float(np.random.rand()) + float(torch.rand(()))  # noqa: NPY002
        if fails and len(given["packed_seq_params"].cu_seqlens_q) == 2:  # slime's own micro-batches have two sequences
            self.eval()
            raise torch.OutOfMemoryError("out of memory")
        return own(self, input_ids, **given) * (1 + drawn / 100)

    monkeypatch.setattr(driving.Bigram, "forward", forward)


@pytest.mark.parametrize(
    "settings", [{}, {"use_dynamic_batch_size": True, "max_tokens_per_gpu": 40}, {"use_tis": True}], ids=str
)
def test_a_second_forward_is_recorded_and_leaves_training_bit_identical(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    drawing(monkeypatch)
    recorded = driving.drive(tmp_path / "run", options={"strict": True, "self_noise": EACH}, **settings)
    checks.assert_same(recorded, driving.drive(None, **settings))
    run = ratioscope.open_run(tmp_path / "run")
    found = run.metrics((), gap="old:trainer_again")
    assert run.readings["trainer_again"].steps == (0, 1) and found["old:trainer_again/sequences"].item() == 4
    assert 1e-4 < found["old:trainer_again/max_abs_log_ratio"].item() < 0.5


def test_the_second_forward_of_the_same_weights_is_old(tmp_path: Path) -> None:
    """The table rounds alike in every shape, so that another row, place or weight would show."""
    driving.drive(tmp_path / "run", options={"strict": True, "self_noise": EACH})
    found = ratioscope.open_run(tmp_path / "run").metrics((), gap="old:trainer_again")
    assert found["old:trainer_again/tokens"].item() > 15 and found["old:trainer_again/max_abs_log_ratio"].item() == 0


def test_a_second_forward_that_fails_changes_nothing_and_is_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawing(monkeypatch, fails=True)
    recorded = driving.drive(tmp_path / "run", options={"self_noise": EACH})
    checks.assert_same(recorded, driving.drive(None))
    run = ratioscope.open_run(tmp_path / "run")
    (note,) = run.events.filter(event="self_noise")["note"].to_list()
    assert "failed once with OutOfMemoryError" in note and not run.readings


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"global_batch_size": 8}, "computes no old log-probs"),
        ({"micro_batch_size": 1}, "hold one sequence"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_read_again_are_told(tmp_path: Path, settings: dict[str, Any], wanted: str) -> None:
    driving.drive(tmp_path / "run", options={"strict": True, "self_noise": EACH}, **settings)
    run = ratioscope.open_run(tmp_path / "run")
    (note,) = run.events.filter(event="self_noise")["note"].to_list()
    assert wanted in note and not run.readings


def test_a_rank_with_too_few_sequences_has_all_ranks_stop(tmp_path: Path) -> None:
    driving.drive(tmp_path / "run", options={"self_noise": ratioscope.SelfNoise(every=1, sequences=9)})
    run = ratioscope.open_run(tmp_path / "run")
    (note,) = run.events.filter(event="self_noise")["note"].to_list()
    assert "a rank could not prepare it" in note and not run.readings
