"""The ART adapter on ART's own code (openpipe-art 0.5.18 and 0.5.23): packing, log-probs and loss, on a CPU.

Needs the unpacked wheels in folders of SOURCES. Skipped otherwise.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.adapter_properties import differences, left_behind
from support.written_run import commit_lines, token_rows

import ratioscope

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]

torch = pytest.importorskip("torch", reason="ART runs on torch")
driving = pytest.importorskip("upstream.art_drive", reason="ART is not importable here")

SOURCES = ("art", "art_newer")
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"missing": True},
    {"precalculated": True, "truncated_importance_sampling": 2.0},
    {"precalculated": True, "missing": True, "truncated_importance_sampling": 2.0},
    {"ppo": True, "importance_sampling_level": "sequence"},
    {"mask_prob_ratio": True, "kimi_k2_tau": 0.1},
)


def drive(run: Path | None, source: str, **settings: Any) -> dict[str, Any]:
    return driving.drive(run, source=source, options={"strict": True}, **settings)  # type: ignore[no-any-return]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_what_art_holds_is_recorded_and_its_training_is_bit_identical(
    tmp_path: Path, settings: Any, source: str
) -> None:
    recorded, plain = drive(tmp_path / "run", source, **settings), drive(None, source, **settings)
    assert recorded["attachment"] == (True, None) and left_behind("art") == []
    for name in ("losses", "parameters", "gradients", "metrics", "held", "random_state"):
        assert differences(recorded[name], plain[name]) == [], name
    found = token_rows(tmp_path / "run").to_pylist()
    held = [token for step, inputs, _ in recorded["held"] for token in _sampled(step, inputs, settings)]
    told = [
        (row["step"], token, _known(rollout), None if old is None else round(old, 6), advantage)
        for row in found
        for token, mask, rollout, old, advantage in zip(
            row["token_ids"],
            row["mask"],
            row["rollout_logprobs"],
            row["old_logprobs"] or [None] * len(row["mask"]),
            row["advantages"],
            strict=True,
        )
        if mask
    ]
    assert sorted(map(str, told)) == sorted(map(str, held))


def _known(value: float) -> float | None:
    return None if np.isnan(value) else round(value, 6)


def _sampled(step: int, inputs: Any, settings: Any) -> Any:
    """Each sampled token as ART's tensors have it."""
    rollout = inputs.get("original_logprobs", inputs["logprobs"])[0].tolist()
    old = inputs["logprobs"][0].tolist() if settings.get("precalculated") else None
    tokens, advantages = inputs["tokens"][0].tolist(), inputs["advantages"][0].tolist()
    for place in torch.where(inputs["assistant_mask"][0])[0].tolist():
        if place:
            yield step, tokens[place], _known(rollout[place]), old and round(old[place], 6), advantages[place]


@pytest.mark.parametrize("source", SOURCES)
def test_current_log_probs_and_entropies_stand_at_their_tokens(tmp_path: Path, source: str) -> None:
    recorded = drive(tmp_path / "run", source)
    found = token_rows(tmp_path / "run").to_pylist()
    models = {step: torch.log_softmax(hidden @ head.t(), -1) for step, _, (hidden, head) in recorded["held"]}
    for row in found:
        before = [row["prompt_ids"][-1], *row["token_ids"][:-1]]
        logs = models[row["step"]][before]
        wanted = logs.gather(1, torch.tensor(row["token_ids"])[:, None])[:, 0]
        assert row["current_logprobs"] == pytest.approx(wanted.tolist(), abs=1e-5)
        assert row["entropy"] == pytest.approx((-(logs.exp() * logs).sum(-1)).tolist(), abs=1e-5)
        assert len(row["prompt_ids"]) == 3 and row["old_logprobs"] is None
        assert row["trainer_version"] == row["step"] - 1 and row["rollout_version_min"] is None
    assert len({row["group_id"] for row in found}) >= 3 and len(found) == 12


@pytest.mark.parametrize("source", SOURCES)
def test_log_probs_that_the_loss_replaces_are_counted_and_shown(tmp_path: Path, source: str) -> None:
    drive(tmp_path / "run", source, missing=True)
    (note,) = [line["note"] for line in commit_lines(tmp_path / "run") if line.get("event") == "filled_with_current"]
    assert "of this micro-batch have no log-prob of the sampler" in note
    run = ratioscope.open_run(tmp_path / "run")
    rows = token_rows(tmp_path / "run").to_pylist()
    missing = sum(np.isnan(one) for row in rows for one in row["rollout_logprobs"])
    assert missing == 6 == run.metrics(by=())["total/non_finite"].sum()
    assert run.policies == ("rollout", "current")


@pytest.mark.parametrize("source", SOURCES)
def test_precalculated_log_probs_are_the_old_policy(tmp_path: Path, source: str) -> None:
    drive(tmp_path / "run", source, precalculated=True)
    assert ratioscope.open_run(tmp_path / "run").policies == ("rollout", "old", "current")
