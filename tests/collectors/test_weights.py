"""Digests of weights: equal bits give equal digests wherever they lie, and any other bits give others."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.sizes import examples

from ratioscope import Collector, weights
from ratioscope.collectors.writing.writer_thread import MOST_BYTES, MOST_ENTRIES, RARER, WeightLines
from ratioscope.errors import ConfigError
from ratioscope.layout import encode_line
from ratioscope.weights import digests

DTYPES = [
    torch.bfloat16,
    torch.float16,
    torch.float32,
    torch.float64,
    torch.int8,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]


def digest(tensor: object) -> str:
    return digests({"x": tensor})["x"]


def model(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Embedding(50, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 50))


def oracle(values: np.ndarray) -> list[int]:
    """The sums of the blocks, in integers of Python."""
    data = values.tobytes()
    data += bytes(-len(data) % (4 * weights.BLOCK))
    words = [int.from_bytes(data[at : at + 4], "little", signed=True) for at in range(0, len(data), 4)]
    keys, block = weights.keys().tolist(), weights.BLOCK
    sums = [sum(w * k for w, k in zip(words[at : at + block], keys, strict=True)) for at in range(0, len(words), block)]
    return [(total + (1 << 63)) % (1 << 64) - (1 << 63) for total in sums]


@pytest.mark.parametrize("count", [1, 5, weights.BLOCK + 3])
def test_the_sums_are_those_of_exact_integers(count: int) -> None:
    values = np.random.default_rng(count).standard_normal(count).astype(np.float32)
    assert (
        weights._sums("x", torch.from_numpy(values)).tolist() == oracle(values) == weights._sums("x", values).tolist()
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_has_digests_and_no_two_are_equal_for_the_same_bits(dtype: torch.dtype) -> None:
    zeros = torch.zeros(24, dtype=torch.uint8).view(dtype)
    assert digest(zeros) == digest(zeros.clone())
    assert digest(zeros).split()[1] != digest(torch.zeros(24, dtype=torch.uint8)).split()[1]
    for byte in (0, 11, 23):
        changed = zeros.view(torch.uint8).clone()
        changed[byte] ^= 1
        assert digest(changed.view(dtype)) != digest(zeros)


@examples(60)
@given(st.integers(2, 300), st.integers(0, 2**32 - 1), st.data())
def test_a_permutation_a_sign_or_one_bit_changes_the_digest(count: int, seed: int, data: st.DataObject) -> None:
    values = np.random.default_rng(seed).standard_normal(count).astype(np.float32)
    one, other = sorted(data.draw(st.lists(st.integers(0, count - 1), min_size=2, max_size=2, unique=True)))
    swapped, negated, flipped = values.copy(), values.copy(), values.copy()
    swapped[[one, other]] = values[[other, one]]
    negated[[one, other]] *= -1
    flipped.view(np.uint32)[one] ^= np.uint32(1 << data.draw(st.integers(0, 31)))
    assert len({digest(each) for each in (values, swapped, negated, flipped)}) == 4


def test_shapes_transposed_and_reshaped_tensors_differ_and_layouts_in_memory_do_not() -> None:
    square = torch.arange(16.0).reshape(4, 4)
    assert digest(square) != digest(square.T) == digest(square.T.contiguous())
    assert len({digest(torch.zeros(shape)) for shape in ((2, 6), (6, 2), (12,), (1, 12), (0,), (0, 3), ())}) == 7
    big = torch.arange(1000, dtype=torch.bfloat16)
    assert digest(big[1:900]) == digest(big[1:900].clone()) and digest(big[::3]) == digest(big[::3].clone())


def test_every_nan_and_both_zeros_have_their_own_digests() -> None:
    bits = np.array([0x7FC00000, 0x7FC00001, 0xFFC00000, 0x00000000, 0x80000000], np.uint32)
    assert len({digest(torch.from_numpy(each.view(np.float32))) for each in bits.reshape(-1, 1)}) == 5


def test_the_digest_does_not_depend_on_chunks_or_on_who_holds_the_array(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.randn(3 * weights.BLOCK + 17).to(torch.bfloat16)
    single = torch.randn(2 * weights.BLOCK + 5)
    found = set()
    for at_once in (1, 2, 64):
        monkeypatch.setattr(weights, "AT_ONCE", at_once)
        found |= {(digest(values), digest(single), digest(single.numpy()))}
    ((_, mine, numpys),) = found
    assert mine == numpys == digest(single.numpy().astype(">f4"))


def test_a_model_is_digested_by_parameter_and_tied_ones_count_under_each_name() -> None:
    one = model()
    layers = list(one.children())
    layers[2].weight = layers[0].weight
    found = digests(one)
    assert list(found) == ["0.weight", "1.weight", "1.bias", "2.weight", "2.bias"]
    assert found["0.weight"] == found["2.weight"] and found == digests(
        list(one.named_parameters(remove_duplicate=False))
    )


@pytest.mark.parametrize("engine", list(weights.FUSED))
def test_fused_tensors_of_an_engine_equal_those_of_the_trainer(engine: str) -> None:
    parts = {name: torch.randn(4, 8) for name in ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "o_proj")}
    trainer = {f"model.layers.0.self.{name}.weight": tensor for name, tensor in parts.items()}
    held = {
        "model.layers.0.self.qkv_proj.weight": torch.cat([parts[name] for name in ("q_proj", "k_proj", "v_proj")]),
        "model.layers.0.self.gate_up_proj.weight": torch.cat([parts["gate_proj"], parts["up_proj"]]),
        "model.layers.0.self.o_proj.weight": parts["o_proj"],
    }
    assert digests(trainer, fused=engine) == digests(held)
    alone = {"a.q_proj.weight": torch.zeros(2)}
    assert digests(alone, fused=engine) == digests(alone)


@pytest.mark.parametrize(
    "given", [3, "x", [1, 2], {"a": 3.0}, {"a": torch.empty(3, device="meta")}, {"a": np.array([None])},
              {"a": torch.eye(3).to_sparse()}],
    ids=str,
)  # fmt: skip
def test_what_has_no_bits_is_refused_with_what_was_wanted(given: object) -> None:
    with pytest.raises(ConfigError, match="wanted"):
        digests(given)
    with pytest.raises(ConfigError, match="vllm, sglang"):
        digests({}, fused="mine")


def test_torch_is_not_imported_for_arrays() -> None:
    code = (
        "import sys, numpy, ratioscope; ratioscope.weights.digests({'a': numpy.ones(3)}); print('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def trained(run: Path | None) -> dict[str, torch.Tensor]:
    """The weights after some updates; run: where digests are recorded at each of them."""
    own = model(3)
    optimizer = torch.optim.AdamW(own.parameters(), 0.01)
    collector = None if run is None else Collector(run)
    for step in range(4):
        loss = own(torch.randint(50, (8,))).square().mean() + torch.nn.functional.dropout(torch.ones(3)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if collector is not None:
            collector.sync(step, digests=digests(own))
    if collector is not None:
        assert collector.close() and not collector.counts.failures
    return own.state_dict()


def test_training_is_the_same_to_the_bit_with_digests(tmp_path: Path) -> None:
    without, recorded = trained(None), trained(tmp_path / "run")
    assert all(torch.equal(without[name].view(torch.int32), recorded[name].view(torch.int32)) for name in without)


def test_sync_neither_raises_nor_loses_what_is_wrong(tmp_path: Path) -> None:
    with Collector(tmp_path / "run") as collector:
        collector.sync("41", digests={"a": "1"})  # type: ignore[arg-type]
        collector.sync(1, digests=object())  # type: ignore[arg-type]
        collector.sync(2, replica=3, digests={5: 6})  # type: ignore[arg-type, dict-item]
    assert collector.counts.failures == {"events": 2}


def test_lines_are_bounded_however_many_tensors_there_are() -> None:
    lines = WeightLines()
    many = {f"model.layers.{i}.experts.{j}.w": f"float32[2,2] {i:08x}{j:08x}" for i in range(50) for j in range(500)}
    head = [{"lm_head": f"float32[1] {version:016x}"} for version in range(4)]
    sizes = [sum(len(encode_line(line)) for line in lines.of(v, v, None, many | head[v])) for v in range(3)]
    assert sizes[0] < 30_000 and sizes[2] < 17_000 < 8 * MOST_ENTRIES + 1000
    names = WeightLines().of(0, 0, None, many)[0]["entries"]
    assert len(names) == 50 and names[0][0] == "model.layers.0.experts.*.w"
    assert "each" not in lines.of(3, 3, "a", many | head[2])[-1], "equal weights are written once"
    lines._bytes = MOST_BYTES  # much was written
    kept = [v for v in range(RARER, 4 * RARER) if "each" in lines.of(v, v, None, {"a": str(v)})[-1]]
    assert kept == [RARER, 2 * RARER, 3 * RARER]
