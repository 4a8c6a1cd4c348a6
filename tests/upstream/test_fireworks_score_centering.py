"""The Fireworks adapter on the cookbook's own score centering: its two functions, in the stand-in's recipe, on a CPU.

Needs training/utils/rl/score_centering.py of fw-ai/cookbook in a folder of SOURCES, run as of 69a36e52 and of 3337e6ec. No
checkout that is later than it could be had, so the recipe that calls the functions is a stand-in. Skipped otherwise.
"""

import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from standins.fireworks import TABLE, Datum, TensorData, drive
from support.sources import VARIABLE

import ratioscope

pytestmark = pytest.mark.upstream
FILE = "training/utils/rl/score_centering.py"


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The cookbook's module, whose functions the stand-in's recipe calls; its datums are the stand-in's."""
    given = os.environ.get(VARIABLE)
    path = next(iter(sorted(Path(given).glob(f"*/{FILE}"))), None) if given else None
    spec = None if path is None else spec_from_file_location("cookbook_score_centering", path)
    if spec is None or spec.loader is None:
        pytest.skip(f"no {VARIABLE} with a later {FILE} of fw-ai/cookbook")
    monkeypatch.setitem(sys.modules, "tinker", SimpleNamespace(Datum=Datum, TensorData=TensorData))
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    table: dict[str, Any] = dict(TABLE["training.utils.rl.score_centering"])
    monkeypatch.setitem(
        TABLE,
        "training.utils.rl.score_centering",
        {name: getattr(module, name) for name in table},
    )
    return module


@pytest.mark.parametrize("recipe", ["sync", "async"])
def test_its_score_centering_is_recorded_and_trains_bit_identically(own: Any, recipe: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"recipe": recipe, "top_k": 3, "temperature": 1.0, "attach": {"strict": True}}
    trace, plain = drive(tmp_path / "run", **options), drive(None, **options)
    for name in ("losses", "gradients", "current", "logs", "rng"):
        assert repr(trace[name]) == repr(plain[name])
    assert bool((trace["weights"] == plain["weights"]).all())
    run = ratioscope.open_run(tmp_path / "run")
    found = [row for step in run.topk_steps for row in run.topk(step).to_pylist()]
    found.sort(key=lambda row: (row["step"], row["sequence_id"]))
    calls = zip(trace["lens"], trace["ids"], trace["heads"], trace["current"], strict=True)
    rows = [(lens[i], ids[i], heads[i], current[i]) for lens, ids, heads, current in calls for i in range(len(ids))]
    for row, (length, ids, heads, current) in zip(found, rows, strict=True):
        kept = [place for place in range(length - 1, len(ids)) if heads[place][0] > -np.inf]
        assert row["topk_ids"] == [token for place in kept for token in ids[place]]
        for name, side in (("rollout", heads), ("current", [place[1:] for place in current])):
            wanted = [value for place in kept for value in side[place]]
            np.testing.assert_array_equal(row[f"{name}_topk_logprobs"], np.asarray(wanted, np.float32))
