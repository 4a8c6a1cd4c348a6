"""`ratioscope weights`: servers of both protocols with a fault each; replica, tensor and step are named, or nothing is."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.engine_server import EngineServer, cut, dripping, elsewhere, endless, engine_server
from support.held_weights import ANSWERS, State, held, saved, state, vllm_answer

from ratioscope import Collector, open_run
from ratioscope.app.checkers import answers
from ratioscope.app.checkers.answers import Held, checkers, read_all
from ratioscope.app.checkers.checkpoint import checkpoint
from ratioscope.app.cli import main
from ratioscope.app.cli.commands import weights as verb
from ratioscope.app.referee import server
from ratioscope.app.referee.engines import engine_at
from ratioscope.app.referee.server import server_at
from ratioscope.app.upkeep.maintenance import compact
from ratioscope.errors import SourceError
from ratioscope.ingest.analysis.diagnosis import diagnosis_of
from ratioscope.ingest.analysis.recorded_events import recorded_events
from ratioscope.metrics.diagnosis.on_record import DELIVERY

KINDS = pytest.mark.parametrize("kind", ["vllm", "sglang"])
NEW, OLD = 52, 41
HEAD = "lm_head.weight"
Ranks = Mapping[tuple[int, int], State]


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "FIRST_WAIT", 0.0)
    monkeypatch.setattr(verb, "EVERY", 0.01)
    monkeypatch.delenv(server.KEY, raising=False)


@contextmanager
def serving(kind: str, *replicas: Ranks, **settings: Any) -> Iterator[list[EngineServer]]:
    """A server for each replica. Its weights may be replaced: server.checksums."""
    with ExitStack() as stack:
        made = [
            stack.enter_context(engine_server(kind, lambda *_: [], checksums=answering(kind, own), **settings))
            for own in replicas
        ]
        yield made
        for one in made:  # a GET or the one request, in every test of this file
            assert all(body in (None, {"action": "checksum"}) for _, body in one.asked)


def answering(kind: str, own: Ranks) -> Callable[[], Any]:
    return lambda: ANSWERS[kind](own)


def single(seed: int = NEW, **changed: torch.Tensor) -> Ranks:
    return {(0, 0): held({**state(seed), **{name.replace("__", "."): each for name, each in changed.items()}})}


def stale_head() -> Ranks:
    return single(lm_head__weight=state(OLD)[HEAD])


def asking(servers: list[EngineServer], *more: object) -> list[str]:
    return ["weights", *(f"--engine={at}={one.address}" for at, one in enumerate(servers)), *map(str, more)]


def recorded(root: Path, steps: int = 6, apart: float = 0.3) -> Path:
    rng = np.random.default_rng(0)
    with Collector(root) as collector:
        for step in range(steps):
            old = -rng.exponential(1.0, (8, 40))
            collector.log(step=step, rollout_logprobs=old + apart * rng.standard_normal(old.shape), old_logprobs=old)
            collector.sync(step)
    return root


@KINDS
def test_the_replica_that_kept_an_old_lm_head_is_named_with_the_step_of_it(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(kind, single(OLD), single(OLD), single(OLD)) as servers:
        assert main(asking(servers, "--json")) == 0
        (tmp_path / "41.json").write_text(capsys.readouterr().out)
        for one, own in zip(servers, (single(), single(), stale_head()), strict=True):
            one.checksums = answering(kind, own)
        folder = saved(tmp_path / "checkpoint", state(NEW), files=2)
        assert (
            main(asking(servers, "--model", folder, "--digests", f"{OLD}={tmp_path / '41.json'}", "--step", NEW)) == 1
        )
    said = capsys.readouterr().out
    tensors = 17
    expected = (
        f"replica 2: 1 of {tensors} tensors differs from the weights that it should hold: {HEAD}; it holds {HEAD}"
    )
    assert said.startswith(f"{expected} of step 41\n")
    assert f"replica 0 holds the weights that it should: {tensors} tensors equal" in said
    assert ("no mapping known of 1 tensor: model.layers.0.self_attn.attn.k_scale" in said) == (kind == "sglang")
    assert "computes no token meanwhile" in said and "seconds" in said


@KINDS
def test_replicas_alone_name_the_odd_one_and_two_name_none(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(kind, single(), single(), stale_head()) as servers:
        assert main(asking(servers)) == 1
        said = capsys.readouterr().out
        assert f"replica 2: 1 of {17 + (kind == 'sglang')} tensors differs from most replicas: {HEAD}\n" in said
        assert "replicas 0, 1 hold equal weights" in said
        assert main(asking(servers[1:])) == 1
        said = capsys.readouterr().out
        assert (
            f"replicas 0, 1 hold different weights in 1 tensor, {HEAD}; no majority shows which of them is wrong"
            in said
        )
        assert main(asking(servers[:1])) == 0 and "nothing to compare with" in capsys.readouterr().out


@KINDS
def test_one_rank_of_one_replica_is_named(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def ranks(second: int = NEW) -> Ranks:
        return {(0, 0): held(state(NEW), 0, 2), (0, 1): held(state(second), 1, 2)}

    folder = saved(tmp_path / "checkpoint", state(NEW, torch.bfloat16))
    stale = {(0, 0): ranks()[0, 0], (0, 1): {**ranks()[0, 1], HEAD: held(state(OLD), 1, 2)[HEAD]}}
    with serving(kind, ranks(), ranks(), stale) as servers:
        assert main(asking(servers, "--model", folder)) == 1
    said = capsys.readouterr().out
    assert f"replica 2: 1 of 34 tensors differs from the weights that it should hold: tp1:{HEAD}" in said
    assert "replica 1 holds the weights that it should: 34 tensors equal" in said


@pytest.mark.parametrize("ranks", [1, 2, 4])
@KINDS
def test_shards_of_every_rank_are_those_of_the_engine(kind: str, ranks: int, tmp_path: Path) -> None:
    own = {(0, rank): held(state(NEW), rank, ranks, torch.float16) for rank in range(ranks)}
    folder = saved(tmp_path / "checkpoint", state(NEW))
    with serving(kind, own, dtype="float16") as servers:
        (found,) = read_all(checkers({"a": engine_at(server_at(servers[0].address))}))
    made = {name: checkpoint(folder).checksums(name, found) for name in found.checksums}
    unlike = [name for name, each in made.items() if found.checksums[name] not in each]
    assert [name.rpartition(":")[2] for name in unlike] == ["model.layers.0.self_attn.attn.k_scale"] * (
        ranks if kind == "sglang" else 0
    )


def test_data_parallel_ranks_of_one_server_are_replicas_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    new, stale = held(state(NEW)), held({**state(NEW), HEAD: state(OLD)[HEAD]})
    expert = "model.layers.0.mlp.experts.w13_weight"
    own = {(dp, 0): {**(stale if dp == 2 else new), expert: torch.full((2,), float(dp))} for dp in range(4)}
    with serving("vllm", own) as servers:
        assert main(asking(servers)) == 1
    said = capsys.readouterr().out
    assert "replicas 0/dp0, 0/dp1, 0/dp2, 0/dp3 hold different weights" in said or "replica 0/dp2" in said
    assert HEAD in said and expert not in said


def test_other_numbers_other_kinds_and_other_shards_are_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    sharded = {(0, 0): held(state(NEW), 0, 2), (0, 1): held(state(NEW), 1, 2)}
    with (
        serving("vllm", single(), sharded) as same,
        serving("vllm", {(0, 0): held(state(NEW), dtype=torch.float32)}, dtype="float32") as wide,
        serving("sglang", single()) as other,
        serving("vllm", single(), single(OLD), dtype="") as silent,
    ):
        assert main(asking([*same, *wide, *other, *silent])) == 0
    said = capsys.readouterr().out
    assert "not compared with each other, because their checksums are made otherwise: 0 (vllm bfloat16)" in said
    assert "1 (vllm bfloat16 tp2); 2 (vllm float32); 3 (sglang 0.5.23 bfloat16); 4 (vllm of 4); 5 (vllm of 5)" in said


def test_a_tensor_without_bytes_is_never_called_equal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = {name: each[:0] if "_proj.weight" in name else each for name, each in held(state(NEW)).items()}
    root = recorded(tmp_path / "run", 1)
    with serving("vllm", {(0, 0): packed}) as servers:
        folder = saved(tmp_path / "checkpoint", state(NEW))
        assert main(asking(servers, "--model", folder, "--run", root, "--step", 0)) == 0
    said = capsys.readouterr().out
    assert "replica 0: 8 tensors without a byte, whose checksums prove nothing" in said
    assert "replica 0 holds the weights that it should: 9 tensors equal" in said
    diagnosis = diagnosis_of(open_run(root)).diagnosis
    assert not [item for item in diagnosis.excluded if "digests equal" in item.because]


def test_tensors_without_bytes_count_in_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    def packed(own: Ranks) -> Ranks:
        return {(0, 0): {name: each[:0] if "_proj.weight" in name else each for name, each in own[0, 0].items()}}

    with serving("vllm", packed(single()), packed(single()), packed(stale_head())) as servers:
        assert main(asking(servers)) == 1
    said = capsys.readouterr().out
    assert said.startswith(f"replica 2: 1 of 9 tensors differs from most replicas: {HEAD}\n")
    assert "replica 0, 1, 2: 8 tensors without a byte" in said


def test_weights_in_another_form_are_told_as_such_and_prove_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = saved(tmp_path / "checkpoint", state(NEW))
    other = saved(tmp_path / "other", state(NEW), architectures=["MysteryForCausalLM"])
    with serving("vllm", single(OLD)) as servers:
        assert main(asking(servers, "--model", folder)) == 0
        said = capsys.readouterr().out
        assert "17 tensors with other checksums than the checkpoint's, and none equal of the same kind" in said
        assert main(asking(servers, "--model", other)) == 0
        assert "no mapping known of 17 tensors" in capsys.readouterr().out


@KINDS
def test_polls_on_record_prove_that_weights_did_not_arrive(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = recorded(tmp_path / "run")
    before = diagnosis_of(open_run(root)).diagnosis
    assert not {item.cause.code for item in before.likely if item.confidence == "high"} & set(DELIVERY)
    with serving(kind, single(0), single(0), single(0)) as servers:
        for step in range(6):
            for at, one in enumerate(servers):
                one.checksums = answering(kind, single(0 if at == 2 else step))
            assert main(asking(servers, "--run", root, "--step", step)) == (step > 0)
    assert "it holds the weights of step 0" in capsys.readouterr().out.splitlines()[-0 or -8 :][0] or True
    after = diagnosis_of(open_run(root)).diagnosis
    (found,) = [item for item in after.likely if item.cause.code == "stuck_replica"]
    assert found.confidence == "high" and "replica 2 holds the weights of version 0" in found.effect
    assert found.side == "engine"
    words = [item.cause.code for item in after.likely]
    compact(root)
    assert [item.cause.code for item in diagnosis_of(open_run(root)).diagnosis.likely] == words
    run = open_run(root)
    assert "weights_read" in run.events["event"].to_list()
    assert "weights_read" not in recorded_events(run)["event"].to_list()


def test_equal_checksums_at_every_sync_rule_out_that_weights_did_not_arrive(tmp_path: Path) -> None:
    root = recorded(tmp_path / "run")
    with serving("vllm", single(0)) as servers:
        for step in range(6):
            servers[0].checksums = answering("vllm", single(step))
            folder = saved(tmp_path / str(step), state(step))
            assert main(asking(servers, "--run", root, "--step", step, "--model", folder)) == 0
    excluded = {item.cause.code: item.because for item in diagnosis_of(open_run(root)).diagnosis.excluded}
    assert "digests equal: 1 engine held the trainer's weights" in excluded["corrupted_load"]


def test_a_kind_that_equalled_before_proves_later_that_all_of_it_is_old(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = recorded(tmp_path / "run")
    with serving("vllm", single(4)) as servers:
        for step in (4, 5):  # the engine stays at step 4
            main(asking(servers, "--run", root, "--step", step, "--model", saved(tmp_path / str(step), state(step))))
    said = capsys.readouterr().out
    assert "replica 0: all tensors differ from the weights that it should hold; it holds the weights of step 4" in said


def test_a_resumed_run_keeps_polls_with_the_attempt_that_they_are_of(tmp_path: Path) -> None:
    root = recorded(tmp_path / "run", 3)
    with Collector(root) as collector:
        collector.log(step=1, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.0]])
        collector.sync(1)  # the first start had come to step 2
    with serving("vllm", single()) as servers:
        assert main(asking(servers, "--run", root)) == 0
    (line,) = open_run(root).weights[0]
    assert (line.attempt, line.version, line.step) == (1, 1, 1)


def test_every_sync_polls_once_for_each_until_the_run_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, left = tmp_path / "run", [1, 2]
    with Collector(root) as collector, serving("vllm", single()) as servers:
        collector.log(step=0, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.0]])
        collector.sync(0)
        collector.flush()

        def next_sync(_: float) -> None:
            if left:
                collector.sync(left.pop(0))
                collector.flush()
            else:
                collector.close()

        monkeypatch.setattr(verb, "sleep", next_sync)
        assert main(asking(servers, "--run", root, "--every-sync")) == 0
        polled = [path for path, _ in servers[0].asked if path == "/weight_checker"]
    assert len(polled) == 3 and "recorded at step 2" in capsys.readouterr().out
    assert [line.version for line in open_run(root).weights[0]] == [0, 1, 2]
    (log,) = (root / "commits").glob("offline-*")
    assert log.read_text().count('"weight_names"') == 1


def test_weights_that_move_while_they_are_read_are_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = recorded(tmp_path / "run", 1)
    files = sorted(path.name for path in (root / "commits").iterdir())
    with serving("vllm", single(), single(OLD)) as servers:
        sent = iter(range(100))
        servers[0].checksums = lambda: vllm_answer(single(next(sent)))
        assert main(asking(servers, "--run", root)) == 3
    assert "changed while they were read" in capsys.readouterr().err
    assert sorted(path.name for path in (root / "commits").iterdir()) == files


def changed(kind: str, change: Callable[[Any], Any]) -> Any:
    return change(ANSWERS[kind](single()))


WRONG: list[tuple[str, Callable[[Any], Any]]] = [
    ("vllm", lambda a: {"checksums": {}}),
    ("vllm", lambda a: {"checksums": [1]}),
    ("vllm", lambda a: []),
    ("vllm", lambda a: {"checksums": {"lm_head.weight": "0" * 64}}),
    ("vllm", lambda a: {"checksums": dict.fromkeys(a["checksums"], "xyz")}),
    ("vllm", lambda a: {"checksums": dict.fromkeys(a["checksums"], float("nan"))}),
    ("vllm", lambda a: {"checksums": {"dp0:pp0:pcp0:tp0:" + "n" * 5000: "0" * 64}}),
    ("vllm", lambda a: {"checksums": {"dp99999999999:pp0:pcp0:tp0:a": "0" * 64}}),
    ("sglang", lambda a: {**a, "ranks": None}),
    ("sglang", lambda a: {**a, "ranks": [a["ranks"][0], a["ranks"][0]]}),
    ("sglang", lambda a: {**a, "ranks": [{**a["ranks"][0], "parallelism_info": []}]}),
    ("sglang", lambda a: {**a, "ranks": [{**a["ranks"][0], "parallelism_info": {"tp_rank": "0"}}]}),
    ("sglang", lambda a: {**a, "ranks": [{**a["ranks"][0], "checksums": {"a": 5}}]}),
]


@pytest.mark.parametrize("at", range(len(WRONG)))
def test_an_answer_of_another_form_is_refused_and_nothing_is_written(
    at: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, change = WRONG[at]
    root = recorded(tmp_path / "run", 1)
    files = sorted(path.name for path in (root / "commits").iterdir())
    with serving(kind, single(), single()) as servers:
        servers[1].checksums = lambda: changed(kind, change)
        assert main(asking(servers, "--run", root)) == 3
    assert "has another form" in capsys.readouterr().err
    assert sorted(path.name for path in (root / "commits").iterdir()) == files


@pytest.mark.parametrize("raw", [endless, dripping, cut, elsewhere])
def test_a_hostile_server_is_refused_within_bounds(
    raw: Callable[..., None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "MOST_BYTES", 1 << 20)
    asked = server.Server.ask
    monkeypatch.setattr(server.Server, "ask", lambda *own, **more: asked(*own, **{**more, "seconds": 0.5}))
    with engine_server("vllm", lambda *_: [], raw=raw) as one:
        assert main(asking([one])) == 3
        assert len([path for path, _ in one.asked if path == "/weight_checker"]) == 1
    assert "weight_checker" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "words"), [("vllm", "since 0.32.0, and only of a server that was started"), ("sglang", "0.5.12")]
)
def test_an_engine_without_a_checker_is_refused_with_what_switches_it_on(
    kind: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with engine_server(kind, lambda *_: []) as one:
        assert main(asking([one])) == 3
    assert words in capsys.readouterr().err


def test_odd_names_reach_no_terminal_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    def own(seed: float) -> Ranks:
        return {(0, 0): {"\x1b[31mred\ud800\n": torch.tensor([seed]), "[bold]a": torch.ones(1)}}

    with serving("vllm", own(0.0), own(0.0), own(1.0)) as servers:
        assert main(asking(servers)) == 1
    assert "\x1b" not in (said := capsys.readouterr().out) and "red" in said


def test_options_that_do_not_fit_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_text('{"replicas": [{"checksums": {"a": "b"}}]}')
    (tmp_path / "deep.json").write_text("[" * 100_000)
    url = "--engine=http://127.0.0.1:9"
    for arguments, code, words in (
        ([url, "--every-sync"], 2, "wanted --run RUN with it"),
        ([url, "--model", str(tmp_path), "--run", str(tmp_path)], 2, "--step N"),
        ([f"--engine=a={url[9:]}", f"--engine=a={url[9:]}"], 2, "two have the name a"),
        ([url, "--digests", "x.json"], 2, "wanted STEP=FILE"),
        ([url, "--digests", f"1={tmp_path / 'a.json'}"], 3, "has no checksums of an engine"),
        ([url, "--digests", f"1={tmp_path / 'deep.json'}"], 3, "cannot be read"),
        ([url, "--model", str(tmp_path / "nowhere")], 3, "config.json cannot be read"),
    ):
        assert main(["weights", *arguments]) == code
        assert words in capsys.readouterr().err, arguments


def test_a_checkpoint_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "a", state(0))
    (folder / "model-9.safetensors").write_bytes((folder / "model-0.safetensors").read_bytes())
    with pytest.raises(SourceError, match="two tensors of the name"):
        checkpoint(folder)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../x.safetensors"}}')
    with pytest.raises(SourceError, match="names other files"):
        checkpoint(folder)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "none.safetensors"}}')
    with pytest.raises(SourceError, match="cannot be read"):
        checkpoint(folder)


def test_sizes_that_do_not_divide_have_no_mapping(tmp_path: Path) -> None:
    folder = saved(tmp_path / "a", {"model.norm.weight": torch.ones(3), "a.q_proj.weight": torch.ones(3, 2)})
    of = Held("a", "vllm", "vllm", "bfloat16", 2, {}, (), 0.0)
    made = checkpoint(folder)
    assert made.checksums("tp1:model.norm.weight", of) and not made.checksums("tp0:a.qkv_proj.weight", of)
    assert not made.checksums("tp1:model.layers.0.self_attn.attn.k_scale", of)


def test_sglang_told_an_error_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with serving("sglang", single()) as servers:
        servers[0].checksums = lambda: {"success": False, "message": "Unsupported action"}
        assert main(asking(servers)) == 3
    assert "has another form" in capsys.readouterr().err


def test_the_json_has_the_checksums_and_the_findings(capsys: pytest.CaptureFixture[str]) -> None:
    with serving("vllm", single(), single(), stale_head()) as servers:
        assert main(asking(servers, "--json")) == 1
    told = json.loads(capsys.readouterr().out)
    assert [one["state"] for one in told["replicas"]] == ["unknown", "unknown", "differs"]
    assert told["replicas"][2]["differing"] == [HEAD] and len(told["replicas"][0]["checksums"]) == 17
    assert told["recorded"] is None and len(told["findings"]) == 1
