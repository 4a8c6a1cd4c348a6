"""The collector: what is logged is on disk, and what is not is counted."""

from pathlib import Path

import numpy as np
from written_run import token_rows

from ratioscope import Collector
from ratioscope.record import arrow_schema


def test_what_is_logged_is_on_disk(tmp_path: Path) -> None:
    rollout, old = -np.random.default_rng(0).exponential(size=(2, 3, 5)).astype(np.float32)
    with Collector(tmp_path / "run") as collector:
        collector.log(step=7, rollout_logprobs=rollout, old_logprobs=old, lengths=[5, 0, 2], rewards=[1.0, None, 0.5])
    table = token_rows(tmp_path / "run")
    assert table.schema.equals(arrow_schema())
    assert table["rollout_logprobs"].to_pylist() == [rollout[0].tolist(), [], rollout[2, :2].tolist()]
    assert table["old_logprobs"].to_pylist() == [old[0].tolist(), [], old[2, :2].tolist()]
    assert table["sequence_id"].to_pylist() == ["7-0-0", "7-0-1", "7-0-2"]
    assert table["reward"].to_pylist() == [1.0, None, 0.5]
    assert collector.counts.sequences.written == 3
    assert collector.counts.tokens.written == 7
