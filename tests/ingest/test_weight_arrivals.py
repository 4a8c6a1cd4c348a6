"""Which weights an engine holds, told from digests on record; and what that proves about the gap."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from ratioscope import Collector, layout, open_run, weights
from ratioscope.app.cli import main
from ratioscope.app.upkeep.maintenance import compact
from ratioscope.collectors.writing.offline import OfflineWriter
from ratioscope.collectors.writing.writer_thread import WeightLines
from ratioscope.ingest.analysis.diagnosis import diagnosis_of
from ratioscope.ingest.analysis.weight_arrivals import Replica, weight_arrivals
from ratioscope.metrics.diagnosis.on_record import DELIVERY

Held = Mapping[str, int]
"""Name of a tensor -> the version that its values are of."""
NAMES = ("embed.weight", "layers.0.mlp.weight", "lm_head.weight")


def tensors(held: Held) -> dict[str, np.ndarray]:
    return {
        name: np.random.default_rng([version, NAMES.index(name)]).standard_normal(8) for name, version in held.items()
    }


def whole(version: int) -> dict[str, int]:
    return dict.fromkeys(NAMES, version)


def recorded(root: Path, engines: Mapping[str, Mapping[int, Held]], *, steps: int = 6, apart: float = 0.01) -> Path:
    """A run in which the trainer's digests of each version are on record, and those of engines where they are given."""
    rng = np.random.default_rng(0)
    with Collector(root) as collector:
        for step in range(steps):
            old = -rng.exponential(1.0, (8, 40))
            collector.log(step=step, rollout_logprobs=old + apart * rng.standard_normal(old.shape), old_logprobs=old)
            collector.sync(step, digests=weights.digests(tensors(whole(step))))
            for name, held in engines.items():
                if step in held:
                    collector.sync(step, replica=name, digests=weights.digests(tensors(held[step])))
    return root


def arrived(root: Path) -> dict[str, Replica]:
    return {one.newest.replica: one for one in weight_arrivals(open_run(root))}


def test_the_engine_that_holds_old_weights_is_named_with_their_version_and_since_when(tmp_path: Path) -> None:
    root = recorded(
        tmp_path / "run",
        {
            "0": {v: whole(v) for v in range(6)},
            "1": {v: whole(min(v, 2)) for v in range(6)},
            "2": {v: whole(v) | ({"lm_head.weight": 1} if v > 3 else {}) for v in range(6)},
            "3": {v: whole(v) | ({"embed.weight": 99} if v == 2 else {}) for v in range(6)},
        },
    )
    found = arrived(root)
    assert (
        found["0"].words == "replica 0 holds the weights of version 5: digests are equal"
        and found["0"].newest.is_complete
    )
    assert found["1"].words == "replica 1 holds the weights of version 2 where version 5 was sent (since version 3)"
    assert found["2"].words == (
        "replica 2: 1 of 3 tensors differ from version 5: lm_head.weight; it holds those of version 1 (since version 4)"
    )
    assert found["3"].words.endswith("digests are equal; 1 of 6 versions differed") and found["3"].wrong == 1
    before = [one.words for one in found.values()]
    compact(root)
    assert [one.words for one in arrived(root).values()] == before


def test_without_the_trainers_digests_an_engine_is_compared_with_most_engines(tmp_path: Path) -> None:
    held = {
        "0": {v: whole(v) for v in range(4)},
        "1": {v: whole(min(v, 1)) for v in range(4)},
        "2": {v: whole(v) for v in range(4)},
        "3": {v: whole(v) | {"lm_head.weight": 99} for v in (3,)},
        "4": {5: whole(5)},
    }
    with Collector(tmp_path / "run") as collector:
        collector.log(step=0, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.0]])
        for name, versions in held.items():
            for version, tensors_of in versions.items():
                collector.sync(version, replica=name, digests=weights.digests(tensors(tensors_of)))
    found = arrived(tmp_path / "run")
    # version 3: two of four engines agree, which is no majority
    assert [found[name].newest.state for name in "0123"] == ["unknown"] * 4
    assert found["1"].wrong == 1 and found["0"].wrong == 0
    assert found["4"].words.endswith("the trainer's digests of version 5 are not on record")
    with Collector(tmp_path / "more") as collector:
        collector.log(step=0, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.0]])
        for version in range(4):
            for name in "012":
                own = whole(min(version, 1)) if name == "1" else whole(version)
                collector.sync(version, replica=name, digests=weights.digests(tensors(own)))
    found = arrived(tmp_path / "more")
    assert found["1"].words == (
        "replica 1 holds the weights of version 1 where version 3 was sent; compared with the weights that most engines hold, "
        "because the trainer's digests are not on record (since version 2)"
    )
    assert found["0"].words == (
        "replica 0, version 3: cannot be compared: the trainer's digests of version 3 are not on record; most engines hold the "
        "same weights"
    )


def test_what_cannot_be_compared_says_why(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    parts = {f"m.{name}.weight": rng.standard_normal((4, 4)) for name in ("q_proj", "k_proj", "v_proj", "o_proj")}
    fused = {"m.qkv_proj.weight": np.concatenate(list(parts.values())[:3]), "m.o_proj.weight": parts["m.o_proj.weight"]}
    with Collector(tmp_path / "run") as collector:
        collector.log(step=0, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.0]])
        collector.sync(0, digests=weights.digests(parts))
        collector.sync(0, replica="fused", digests=weights.digests(fused))
        collector.sync(0, replica="shard", digests=weights.digests({name: part[:2] for name, part in parts.items()}))
        collector.sync(0, replica="other", digests=dict.fromkeys(parts, "9f3a"))
        collector.sync(7, replica="early", digests=weights.digests(parts))
    found = arrived(tmp_path / "run")
    assert found["fused"].newest.state == "equal" and not found["fused"].newest.is_complete
    assert (
        "names differ and no mapping is known: 1 tensor only in the engine (m.qkv_proj.weight)" in found["fused"].words
    )
    assert 'digests(model, fused="vllm")' in found["fused"].words
    assert (
        found["shard"].newest.state == "unknown" and "(float64[2,4] in the engine, float64[4,4]" in found["shard"].words
    )
    assert "cannot be compared: the trainer's digests are made by ratioscope, those of the engine by another" in (
        found["other"].words
    )
    assert "the trainer's digests of version 7 are not on record" in found["early"].words


def test_digests_of_a_checker_of_the_engine_are_compared_among_themselves(tmp_path: Path) -> None:
    with Collector(tmp_path / "run") as collector:
        collector.sync(1, digests={"a": "x1", "b": "y1"})
        collector.sync(1, replica="0", digests={"a": "x1", "b": "y1"})
        collector.sync(1, replica="1", digests={"a": "x1", "b": "other"})
    found = arrived(tmp_path / "run")
    assert found["0"].newest.is_complete and found["1"].newest.differing == ("b",)


def test_equal_digests_exclude_every_failed_delivery(tmp_path: Path) -> None:
    root = recorded(tmp_path / "run", {"0": {v: whole(v) for v in range(6)}}, apart=0.3)
    diagnosis = diagnosis_of(open_run(root)).diagnosis
    excluded = {item.cause.code: item.because for item in diagnosis.excluded}
    assert {code for code in DELIVERY if "digests equal: 1 engine held" in excluded.get(code, "")} >= {"corrupted_load"}
    others = [item.cause.code for item in diagnosis.likely] + [item.cause.code for item in diagnosis.cannot_tell]
    assert not set(others) & set(DELIVERY)


@pytest.mark.parametrize(
    ("held", "code"),
    [
        ({v: whole(0) for v in range(6)}, "never_synced"),
        ({v: whole(min(v, 3)) for v in range(6)}, "sync_broke"),
        ({v: whole(v) | {"lm_head.weight": 77} for v in range(6)}, "corrupted_load"),
    ],
)
def test_digests_that_differ_prove_the_cause(tmp_path: Path, held: Mapping[int, Held], code: str) -> None:
    root = recorded(tmp_path / "run", {"0": held})
    likely = {item.cause.code: item for item in diagnosis_of(open_run(root)).diagnosis.likely}
    assert likely[code].confidence == "high" and "replica 0" in likely[code].effect


def read(root: Path, *polls: tuple[int, str | None, Mapping[str, str]], by: str = "checker") -> dict[str, Replica]:
    """The findings once these digests, of one maker, are on record beside those of the run: (version, replica, digests)."""
    lines = WeightLines()
    writer = OfflineWriter(root, "weights")
    for version, replica, digests in polls:
        writer.say(*lines.of(version, version, replica, digests, by=by))
    return arrived(root)


def test_digests_of_one_maker_are_compared_beside_those_of_another(tmp_path: Path) -> None:
    root = recorded(tmp_path / "run", {"0": {v: whole(v) for v in range(6)}})
    first = (4, None, {"a": "a4", "b": "b4"}), (5, None, {"a": "a5", "b": "b5"})
    found = read(root, *first, (5, "1", {"a": "a5", "b": "b4"}), (5, "2", {"a": "a5", "b": "b5"}))
    assert found["0"].newest.is_complete and found["2"].newest.is_complete
    assert found["1"].words == "replica 1: 1 of 2 tensors differ from version 5: b; it holds those of version 4"
    alone = read(root, (5, "3", {"a": "a5"}), by="a third").pop("3")
    assert alone.words.endswith(
        "cannot be compared: the trainer's digests are made by checker, those of the engine by a third"
    )


def test_tensors_that_the_trainer_does_not_have_are_compared_with_most_engines(tmp_path: Path) -> None:
    root = recorded(tmp_path / "run", {}, steps=1)
    held = {"a": "a0", "scale": "1"}
    engines = [(0, name, held) for name in "012"]
    found = read(root, (0, None, {"a": "a0"}), *engines, (0, "3", held | {"scale": "2"}))
    assert [found[name].newest.state for name in "0123"] == ["equal"] * 3 + ["differs"]
    assert found["3"].newest.differing == ("scale",) and "most engines hold" in found["3"].words
    # most engines are wrong, and the one that is right is not blamed for it
    old = [(1, name, {"a": "a0", "scale": "1"}) for name in "012"]
    found = read(root, (1, None, {"a": "a1"}), *old, (1, "3", {"a": "a1", "scale": "1"}))
    assert [found[name].newest.state for name in "0123"] == ["differs"] * 3 + ["equal"]


def test_digests_that_do_not_cover_the_steps_prove_nothing(tmp_path: Path) -> None:
    few = diagnosis_of(open_run(recorded(tmp_path / "few", {"0": {0: whole(0), 1: whole(1)}}))).diagnosis
    none = diagnosis_of(open_run(recorded(tmp_path / "none", {}))).diagnosis
    assert few == none


def test_info_and_its_json_say_what_the_engines_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = recorded(tmp_path / "run", {"b": {v: whole(0) for v in range(6)}})
    assert main(["info", str(root)]) == 0
    assert "\nweights\n  replica b holds the weights of version 0 where version 5 was sent" in capsys.readouterr().out
    assert main(["info", str(root), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["weights"]
    assert (found["state"], found["holds"], found["since"]) == ("differs", 0, 1)


def test_impossible_lines_are_refused_and_the_others_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = recorded(tmp_path / "run", {"0": {v: whole(v) for v in range(6)}})
    (log,) = (root / "commits").glob("*.jsonl")
    good: dict[str, object] = {
        "kind": layout.WEIGHTS,
        "step": 9,
        "version": 9,
        "replica": "x",
        "tensors": 1,
        "digest": "d",
        "by": "b",
        "names": "n",
    }
    wrong: list[dict[str, object]] = [
        {"version": "9"},
        {"replica": 5},
        {"tensors": -1},
        {"digest": None},
        {"each": 7, "replica": "\x1b[31m"},
        {"names": []},
    ]
    with log.open("ab") as file:
        file.writelines(layout.encode_line(good | change) for change in wrong)
        for entries in ("x", [["a"]], [[1, 2]], None):
            file.write(layout.encode_line({"kind": layout.WEIGHT_NAMES, "names": "n", "entries": entries}))
    found = arrived(root)
    assert found["0"].newest.is_complete and len(found) == 2
    assert main(["info", str(root)]) == 0 and "\x1b" not in capsys.readouterr().out
