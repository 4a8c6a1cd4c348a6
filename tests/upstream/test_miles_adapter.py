"""The miles adapter on miles' own code: its samples, conversion, batches, training loop, loss and corrections, on a CPU.

Needs a checkout of radixark/miles (it is not published), tested with 31f1ca96 of 2026-08-21, in a folder of SOURCES.
Skipped otherwise.
"""

from pathlib import Path
from typing import Any

import pytest

import ratioscope
from ratioscope.app.cli import main

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]

torch = pytest.importorskip("torch", reason="miles runs on torch")
driving = pytest.importorskip("upstream.miles_drive", reason="miles is not importable here")
checks = pytest.importorskip("upstream.slime_checks", reason="it needs torch")

MIS = {
    "use_rs": True, "tis_level": "token", "rs_level": "token", "tis_mode": "truncate", "tis_lower_bound": 0.5,
    "tis_upper_bound": 2.0, "rs_lower_bound": 0.9, "rs_upper_bound": 1.1, "rs_veto_threshold": None,
    "tis_batch_normalize": True, "use_tis": True,
    "custom_tis_function_path": "examples.infra_features.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp",
}  # fmt: skip
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"global_batch_size": 8},  # one optimizer step: no separate old pass
    {"observe_training_entropy": False},
    {"skip_actor_forward_only": True, "global_batch_size": 8},  # no separate old pass
    {"use_rollout_logprobs": True},
    {"use_tis": True},
    {
        "use_tis": True,
        "custom_tis_function_path": "miles.backends.training_utils.loss_hub.corrections.icepop_function",
        "tis_clip_low": 0.5,
    },
    MIS,
    {"advantage_estimator": "gspo"},
    {"use_kl_loss": True, "kl_loss_type": "k3", "kl_loss_coef": 0.1, "use_unbiased_kl": False},
    {
        "loss_type": "custom_loss",
        "custom_loss_function_path": "miles.backends.training_utils.loss_hub.losses.policy_loss_function",
    },
)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_what_miles_holds_is_recorded_and_its_training_is_bit_identical(tmp_path: Path, settings: Any) -> None:
    checks.assert_recorded(driving, tmp_path / "run", settings)


@pytest.mark.parametrize("settings", [{}, {"global_batch_size": 8}, MIS], ids=str)
def test_the_records_give_the_difference_that_miles_logs(tmp_path: Path, settings: Any) -> None:
    checks.assert_logged_difference(driving, tmp_path / "run", settings)


def test_a_run_of_miles_opens_with_its_lag(tmp_path: Path) -> None:
    driving.drive(tmp_path / "run", options={"strict": True})
    run = ratioscope.open_run(tmp_path / "run")
    assert run.metrics(by=["step", "lag"]).select("step", "lag").rows() == [(0, "0"), (1, "0")]
    assert run.info["trainer"] == "miles" and run.info["config"]["args"]["tis_clip"] == 2.0


def test_the_folder_that_miles_dumps_gives_the_metrics_that_were_recorded(tmp_path: Path) -> None:
    """The columns of its dashboard lie beside; they hold the sampler's side once more. No sample is taken out here: the dump has
    its mask, and miles' trainer has not."""
    dumps = {"save_debug_rollout_data": str(tmp_path / "dump" / "rollout_data" / "{rollout_id}.pt"),
             "save_debug_train_data": str(tmp_path / "dump" / "train_data" / "{rollout_id}_{rank}.pt")}  # fmt: skip
    driving.drive(tmp_path / "run", options={"strict": True}, taken_out=-1, **dumps)
    assert list((tmp_path / "dump" / "dashboard_columns").glob("*.parquet"))
    assert main(["import", str(tmp_path / "dump"), "-o", str(tmp_path / "imported")]) == 0
    checks.assert_equal_mismatch(tmp_path / "run", tmp_path / "imported")
