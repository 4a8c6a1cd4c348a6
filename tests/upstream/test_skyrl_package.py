"""SkyRL's own losses, correction and reducers beside our dialect, on random and on hard inputs.

Needs torch and the files of skyrl 0.4, nothing they depend on. Skipped otherwise; `pytest -m upstream` runs nothing
else.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.dialect_golden import differences
from support.skyrl_package import skyrl_package

from ratioscope.metrics.dialects import skyrl
from ratioscope.metrics.dialects.skyrl.settings import ALGORITHM, BLOCKS, LOSSES, REDUCTIONS, Settings

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]
torch = pytest.importorskip("torch", reason="SkyRL runs on torch")

STACKS: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "token": {"tis_ratio_type": "token"},
    "sequence": {"tis_ratio_type": "sequence", "sequence_mask_metric": "product"},
    "geometric": {"sequence_mask_metric": "geometric", "geo_mask_low": 0.9, "geo_mask_high": 1.1},
    "one outlier bound": {"outlier_token_is_threshold_high": 1.5},
    "everything": {
        "tis_ratio_type": "token",
        "sequence_mask_metric": "geometric",
        "outlier_token_is_threshold_low": 1e-4,
        "outlier_token_is_threshold_high": 100.0,
        "token_mask_is_threshold_low": 0.5,
        "token_mask_is_threshold_high": 2.0,
    },
    "tokens, then products": {
        "tis_ratio_type": "sequence",
        "sequence_mask_metric": "product",
        "token_mask_is_threshold_low": 0.9,
        "token_mask_is_threshold_high": 1.1,
    },
}
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "cispo": {"cispo_eps_clip_low": 0.2, "cispo_eps_clip_high": 0.3},
    "dppo": {"delta_low": 0.03, "delta_high": 0.05},
    "clip_cov": {"clip_ratio": 1.0, "clip_cov_lb": 0.2},  # large enough that nothing is left to chance
}


@pytest.fixture(scope="module")
def package() -> Iterator[Any]:
    with skyrl_package() as found:
        yield found


def random_batch(rows: int, positions: int, spread: float, seed: int, dtype: str) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    old = -rng.exponential(1.0, (rows, positions))
    arrays = {
        "old_logprobs": old,
        "rollout_logprobs": old + rng.normal(0, spread, old.shape),
        "current_logprobs": old + rng.normal(0, 0.2, old.shape),
    }
    if spread > 1:
        arrays["current_logprobs"][:, -1] += 25.0
    lengths = rng.integers(0, positions + 1, (rows, 1))
    mask = (np.arange(positions) >= positions - lengths) & (rng.random(old.shape) < 0.9)
    tensors = {name: torch.tensor(value).to(getattr(torch, dtype)).float().numpy() for name, value in arrays.items()}
    return tensors | {"mask": mask, "advantages": rng.normal(0, 1, old.shape).astype(np.float32)}


def namespace(settings: Settings) -> SimpleNamespace:
    """The settings as the nested configuration SkyRL's functions read."""
    blocks = {block: SimpleNamespace(**{n: getattr(settings, n) for n in names}) for block, names in BLOCKS.items()}
    return SimpleNamespace(**{name: getattr(settings, name) for name in ALGORITHM}, **blocks)


def tensors(batch: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    names = ("old_logprobs", "rollout_logprobs", "current_logprobs")
    found = {name: torch.tensor(batch[name]).to(getattr(torch, settings.dtype)) for name in names}
    found |= {"mask": torch.tensor(batch["mask"]).float(), "advantages": torch.tensor(batch["advantages"])}
    return found | ({"old_logprobs": None} if settings.skips_policy_forward else {})


def logged_by_skyrl(package: Any, batch: Mapping[str, Any], settings: Settings) -> dict[str, float]:
    """SkyRL's functions called in the order its workers call them, one rank."""
    given, config = tensors(batch, settings), namespace(settings)
    loss = package.losses.PolicyLossRegistry.get(settings.policy_loss_type)
    steps: dict[str, list[float]] = defaultdict(list)
    for start, end in settings.mini_batch_boundaries or ():
        scaled = package.losses.apply_loss_reduction_to_advantages_minibatch(
            given["advantages"][start:end],
            given["mask"][start:end],
            settings.loss_reduction,
            settings.micro_batch_size,
            settings.max_seq_len,
            [(a - start, b - start) for a, b in settings.prompt_boundaries or () if start <= a < end],
        )
        found: dict[str, list[float]] = defaultdict(list)
        for first in range(start, end, settings.micro_batch_size or end):
            rows = slice(first, min(first + (settings.micro_batch_size or end), end))
            part = {name: None if value is None else value[rows] for name, value in given.items()}
            advantages = scaled[rows.start - start : rows.stop - start]
            value, metrics = loss(
                part["current_logprobs"],
                part["old_logprobs"],
                advantages,
                config=config,
                loss_mask=part["mask"],
                rollout_logprobs=part["rollout_logprobs"],
            )
            reported = {"policy_loss": value.item(), **{f"loss_metrics/{name}": each for name, each in metrics.items()}}
            reported |= package.reduction.compute_minibatch_rollout_logprob_diff_metrics(
                part["current_logprobs"], part["rollout_logprobs"], part["mask"]
            )
            for name, each in reported.items():
                found[name].append(each)
        for name, each in package.reduction.reduce_metrics(found, sum_loss_metrics=True).items():
            steps[name].append(each)
    return {f"policy/{name}": value for name, value in package.reduction.reduce_metrics(steps).items()}


CASES = [
    (loss, stack, dtype, spread)
    for loss in LOSSES
    for stack in STACKS
    for dtype in ("float32", "bfloat16")
    for spread in (0.001, 0.1, 30.0)
    if loss not in ("clip_cov", "kl_cov") or stack == "none"
]


@pytest.mark.parametrize(("loss", "stack", "dtype", "spread"), CASES, ids=str)
def test_every_number_is_the_packages_own(package: Any, loss: str, stack: str, dtype: str, spread: float) -> None:
    seed = CASES.index((loss, stack, dtype, spread))
    rows = 5 + seed % 3
    # rows that token_mean_legacy leaves out get equal advantages, between which kl_cov's choice is not defined
    reduction = "token_mean" if loss == "kl_cov" else REDUCTIONS[seed % len(REDUCTIONS)]
    algorithm: dict[str, Any] = {"policy_loss_type": loss, "loss_reduction": reduction, "max_seq_len": 64}
    algorithm |= {"off_policy_correction": STACKS[stack]}
    variant = dict(VARIANTS.get(loss, {}))
    if loss == "cispo" and seed % 2 and "tis_ratio_type" not in STACKS[stack]:
        variant["cispo_anchor"] = "rollout"
    if loss == "dppo" and seed % 2:
        variant["dppo_type"] = "binary_kl"
    config = {
        "trainer_algorithm": algorithm | ({loss: variant} if variant else {}),
        "dtype": dtype,
        "mini_batch_boundaries": [[0, 3], [3, rows]],
        "micro_batch_size": 2,
        "prompt_boundaries": [[0, 3], [3, 4], [4, rows]],
    }
    batch = random_batch(rows, 24, spread, seed, dtype)
    wanted = logged_by_skyrl(package, batch, skyrl.parse(config))
    found = skyrl.evaluate(batch, config).metrics
    moments = "policy/minibatch_rollout_logprobs_abs_diff_"
    square, mean = wanted.pop(moments + "sq_mean"), wanted[moments + "mean"]
    wanted[moments + "std"] = max(0.0, square - mean**2) ** 0.5
    # sums of the loss cancel: judged against the size of a token's share of it
    assert not differences(found, wanted, rtol=3e-5, atol={"policy_loss": 3e-6 * max(1.0, spread), "": 1e-7})


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("stack", [name for name in STACKS if name != "none"])
@pytest.mark.parametrize("spread", [0.001, 0.1, 30.0])
def test_weights_and_mask_are_the_packages_own(package: Any, stack: str, dtype: str, spread: float) -> None:
    config = {"trainer_algorithm": {"off_policy_correction": STACKS[stack]}, "dtype": dtype}
    batch, settings = random_batch(9, 30, spread, 11, dtype), skyrl.parse(config)
    given = tensors(batch, settings)
    weights, _, mask = package.correction.compute_off_policy_correction(
        given["old_logprobs"], given["rollout_logprobs"], given["mask"], namespace(settings).off_policy_correction
    )
    found = skyrl.evaluate(batch, config)
    np.testing.assert_array_equal(found.mask, mask.numpy() > 0)
    assert (found.weights is None) == (weights is None)
    if found.weights is not None:
        np.testing.assert_allclose(found.weights, weights.float().numpy(), rtol=1e-6)
