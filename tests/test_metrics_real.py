"""The labelled real runs read as the script that made them says (tests/data/real/index.json)."""

import polars as pl
import pytest
from real_runs import INDEX, records

from ratioscope.metrics.frame import metric_frame
from ratioscope.metrics.numpy_engine import statistics


@pytest.mark.parametrize("name", INDEX)
def test_a_real_run_reads_as_its_index_says(name: str) -> None:
    frame = pl.from_arrow(statistics(records(name)))
    assert isinstance(frame, pl.DataFrame)
    row = metric_frame(frame, by=()).row(0, named=True)
    wanted = INDEX[name]["metrics"]
    assert row["mismatch/tokens"] == wanted["n"]
    assert row["mismatch/sequences"] == wanted["seqs"]
    expected = {
        "abs_log_ratio": wanted["mean"],
        "max_abs_log_ratio": wanted["mx"],
        "mean_log_ratio": wanted["bias"],
        "kl_k3": wanted["k3"],
        "chi2_token": wanted["chi2"],
        "ess_token": wanted["ess"],
    }
    # The index took K3 as mean(w - 1 - d), which cancels to seven digits on the run where d is 1e-5.
    for metric, value in expected.items():
        assert row[f"mismatch/{metric}"] == pytest.approx(value, rel=1e-6 if metric == "kl_k3" else 1e-9, abs=1e-15)
