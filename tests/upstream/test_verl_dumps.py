"""The rollout-skip cache that verl writes itself gives the sampler's side of the rows that attach recorded of the same training.

Needs verl 0.9.1 and what it imports on PYTHONPATH. Skipped where they are not importable.
"""

from pathlib import Path
from typing import Any

import pytest
from support.imported import imported
from support.written_run import token_rows

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]

driving = pytest.importorskip("upstream.verl_drive", reason="verl is not importable here")
skip: Any = pytest.importorskip("verl.utils.skip.rollout_skip", reason="verl is not importable here")
omegaconf: Any = pytest.importorskip("omegaconf", reason="verl is not importable here")

EXPERIMENT = {
    "trainer": {"experiment_name": "night", "project_name": "runs"},
    "actor_rollout_ref": {"rollout": {"n": 2}},
    "data": {"train_batch_size": 4, "max_response_length": 8, "max_prompt_length": 4},
}  # fmt: skip


def test_the_cache_of_rollouts_gives_what_attach_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = omegaconf.OmegaConf.create(
        {"enable": True, "dump_dir": str(tmp_path / "cache"), "action": "cache", "steps": [1, 2, 3]}
    )
    cache = skip.RolloutSkip(local, omegaconf.OmegaConf.create(EXPERIMENT))
    made = driving.padded_batch

    def dumped(training: Any, version: int) -> Any:
        batch = made(training, version)
        cache.prepare_data(version + 1, batch)
        return batch

    monkeypatch.setattr(driving, "padded_batch", dumped)
    driving.drive(tmp_path / "attached", trainer="v0")
    recorded = [row for row in token_rows(tmp_path / "attached").to_pylist() if row["minibatch"] is None]
    code, found = imported(tmp_path / "cache", tmp_path / "imported")
    assert code == 0 and len(found) == len(recorded) > 0
    by_tokens = {(row["step"], *row["token_ids"]): row for row in recorded}
    assert len(by_tokens) == len(recorded)
    for row in found:
        match = by_tokens[(row["step"], *row["token_ids"])]
        for name in ("rollout_logprobs", "mask", "rollout_version_min", "rollout_version_max"):
            assert row[name] == match[name], name
