"""slime's and skyrl's settings as Corrections and back: both ways give the same weights and the same loss mask."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from ratioscope.errors import ConfigError
from ratioscope.metrics.corrections.corrected_tokens import corrected_tokens
from ratioscope.metrics.corrections.correction import (
    CORRECTIONS,
    NONE,
    Correction,
    Normalise,
    Reject,
    Weigh,
    mask,
    off_policy_clip,
    reject,
    truncate,
)
from ratioscope.metrics.dialects import skyrl, slime
from ratioscope.metrics.dialects.skyrl import correction as skyrl_correction
from ratioscope.metrics.dialects.slime import correction as slime_correction

ROWS, POSITIONS = 6, 9
RNG = np.random.default_rng(3)
MASK = (RNG.random((ROWS, POSITIONS)) < 0.8) & (np.arange(POSITIONS) < RNG.integers(1, POSITIONS + 1, (ROWS, 1)))
ROLLOUT = -RNG.exponential(1.0, (ROWS, POSITIONS)).astype(np.float32)
BATCH: dict[str, Any] = {
    "rollout_logprobs": ROLLOUT,
    "old_logprobs": (ROLLOUT + 0.4 * RNG.standard_t(2, ROLLOUT.shape)).astype(np.float32),
    "current_logprobs": (ROLLOUT + 0.4 * RNG.standard_t(2, ROLLOUT.shape)).astype(np.float32),
    "mask": MASK,
    "advantages": RNG.normal(0, 1, ROLLOUT.shape).astype(np.float32),
}


def multiplier(dialect: ModuleType, config: Any) -> np.ndarray[Any, Any]:
    """Weight times mask of every token: what is left of its loss, as the trainer does it."""
    found = dialect.evaluate(BATCH, config)
    weights = np.ones(MASK.shape) if found.weights is None else found.weights
    return np.asarray(np.broadcast_to(weights, MASK.shape) * found.mask)


def ours(correction: Correction) -> np.ndarray[Any, Any]:
    """The same, carried out by the correction engine."""
    later = BATCH["old_logprobs" if correction.gap == "mismatch" else "current_logprobs"]
    x = (later - ROLLOUT).astype(np.float64).ravel()
    found = corrected_tokens(correction, x, np.repeat(np.arange(ROWS), POSITIONS), MASK.ravel())
    return (found.weight * found.mask).reshape(MASK.shape)


STACK = {
    "outlier_token_is_threshold_low": 0.02,
    "token_mask_is_threshold_low": 0.5,
    "token_mask_is_threshold_high": 2.0,
    "sequence_mask_metric": "product",
    "sequence_tis_ratio_clip_high": 1.5,
    "tis_ratio_type": "sequence",
}
MIS = slime.PRESETS["mis"]
SLIME: dict[str, dict[str, Any]] = {
    **{name: preset for name, preset in slime.PRESETS.items() if name not in ("opsm", "bypass")},
    "clip": MIS | {"tis_mode": "clip", "use_rs": False, "rs_veto_threshold": None},
    "sequence mask, geometric rejection": MIS
    | {
        "tis_level": "sequence",
        "tis_mode": "mask",
        "rs_level": "geometric",
        "rs_lower_bound": 0.9,
        "rs_upper_bound": 1.2,
    },
    "eps bounds": slime.PRESETS["off_policy_is"] | {"off_policy_bounds": "eps_clip", "eps_clip": 1.0},
}
SKYRL: dict[str, dict[str, Any]] = {
    **{name: preset for name, preset in skyrl.PRESETS.items() if not name.startswith("dppo")},
    "stack": {"off_policy_correction": STACK},
    "token stack": {"off_policy_correction": STACK | {"tis_ratio_type": "token", "sequence_mask_metric": "geometric"}},
}
CASES = [
    *(pytest.param(slime, slime_correction, config, id=f"slime {name}") for name, config in SLIME.items()),
    *(pytest.param(skyrl, skyrl_correction, config, id=f"skyrl {name}") for name, config in SKYRL.items()),
]


@pytest.mark.parametrize(("dialect", "translation", "config"), CASES)
def test_settings_and_their_correction_do_the_same_to_every_token(
    dialect: ModuleType, translation: ModuleType, config: dict[str, Any]
) -> None:
    correction = translation.correction_of(dialect.parse(config))
    np.testing.assert_allclose(ours(correction), multiplier(dialect, config), rtol=1e-5)


@pytest.mark.parametrize(("dialect", "translation", "config"), CASES)
def test_a_correction_survives_the_way_through_the_trainers_settings(
    dialect: ModuleType, translation: ModuleType, config: dict[str, Any]
) -> None:
    correction = translation.correction_of(dialect.parse(config))
    back = translation.correction_of(translation.settings_for(correction))
    assert back.gap == correction.gap
    np.testing.assert_allclose(ours(back), ours(correction), rtol=1e-9)


def flags_of(text: str) -> set[str]:
    return set(text.split("\n"))


@pytest.mark.parametrize(
    ("correction", "slime_lines", "skyrl_lines"),
    [
        (NONE, {""}, {""}),
        (
            truncate(3.0),
            {"--use-tis", "--tis-clip 3.0"},
            {
                "trainer.algorithm.off_policy_correction.tis_ratio_type=token",
                "trainer.algorithm.off_policy_correction.token_tis_ratio_clip_high=3.0",
                "generator.sampling_params.logprobs=1",
            },
        ),
        (
            mask(0.5, 5.0),
            {
                "--use-tis",
                "--tis-clip 5.0",
                "--tis-clip-low 0.5",
                "--custom-tis-function-path slime.backends.megatron_utils.loss.icepop_function",
            },
            {
                "trainer.algorithm.off_policy_correction.tis_ratio_type=token",
                "trainer.algorithm.off_policy_correction.token_tis_ratio_clip_high=5.0",
                "trainer.algorithm.off_policy_correction.token_mask_is_threshold_low=0.5",
                "trainer.algorithm.off_policy_correction.token_mask_is_threshold_high=5.0",
                "generator.sampling_params.logprobs=1",
            },
        ),
        (
            off_policy_clip(0.5, 3.0),
            {
                "--use-tis",
                "--tis-clip 3.0",
                "--tis-clip-low 0.5",
                "--custom-tis-function-path slime.utils.ppo_utils.off_policy_is_function",
            },
            {
                "trainer.algorithm.policy_loss_type=cispo",
                "trainer.algorithm.cispo.cispo_anchor=rollout",
                "trainer.algorithm.cispo.cispo_eps_clip_low=0.5",
                "trainer.algorithm.cispo.cispo_eps_clip_high=2.0",
                "generator.sampling_params.logprobs=1",
            },
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Correction) else "",
)
def test_a_correction_is_printed_in_each_trainers_syntax(
    correction: Correction, slime_lines: set[str], skyrl_lines: set[str]
) -> None:
    assert flags_of(slime.write(correction)) == slime_lines
    assert flags_of(skyrl.write(correction)) == skyrl_lines


@pytest.mark.parametrize("correction", CORRECTIONS, ids=lambda correction: correction.name)
@pytest.mark.parametrize(("dialect", "translation"), [(slime, slime_correction), (skyrl, skyrl_correction)])
def test_every_correction_of_ours_is_said_alike_or_refused_with_its_reason(
    dialect: ModuleType, translation: ModuleType, correction: Correction
) -> None:
    try:
        settings = translation.settings_for(correction)
    except ConfigError as error:
        assert "K3" in correction.name and "rejection of k3 by mean" in str(error)
        return
    np.testing.assert_allclose(ours(translation.correction_of(settings)), ours(correction), rtol=1e-6)


@pytest.mark.parametrize(
    ("correction", "in_slime", "in_skyrl"),
    [
        (reject("weight", "token", low=0.5, high=2.0), "rejection without importance weights", None),
        (truncate(2.0, low=0.5), None, "a lower bound that weights are moved to"),
        (truncate(2.0, level="geometric"), None, "geometric importance weights"),
        (Correction("two", (Weigh(), Normalise("sequence"))), "normalisation at another level", "normalised weights"),
        (Correction("late", (Weigh(), Reject("weight", "any", 0.1), Normalise())), "any other order", "normalised"),
        (
            Correction("k2", (Weigh(), Reject("k2", "max", high=0.1))),
            "rejection of k2 by max",
            "rejection of k2 by max",
        ),
        (Correction("masked", (Weigh("token", 0.5, 2.0, "zero"),), "total"), "set to zero", None),
        (
            Correction("sequence", (Weigh("sequence", high=2.0),), "total"),
            "more than one clamped",
            "anything on current",
        ),
        (
            Correction("early", (Weigh("sequence", high=2.0), Reject("weight", "token", 0.5, 2.0))),
            None,
            "this order",
        ),
        (
            Correction(
                "thrice", (Weigh("sequence", high=2.0), *(Reject("weight", by, 0.5, 2) for by in ("token", "mean")))
            ),
            "more than one rejection",
            "this order",
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Correction) else "",
)
def test_what_a_trainer_cannot_say_is_refused_with_the_reason(
    correction: Correction, in_slime: str | None, in_skyrl: str | None
) -> None:
    for translation, reason in ((slime_correction, in_slime), (skyrl_correction, in_skyrl)):
        if reason is None:
            translation.settings_for(correction)
        else:
            with pytest.raises(ConfigError, match=reason):
                translation.settings_for(correction)


@pytest.mark.parametrize(
    ("translation", "settings", "reason"),
    [
        (slime_correction, slime.parse(slime.PRESETS["opsm"]), "no correction does"),
        (skyrl_correction, skyrl.parse(skyrl.PRESETS["dppo_tv"]), "reads the advantages"),
        (
            skyrl_correction,
            skyrl.parse(skyrl.PRESETS["rollout_is"] | skyrl.PRESETS["token_tis"]),
            "reads off_policy_correction beside it",
        ),
    ],
)
def test_settings_that_are_no_correction_say_why(translation: ModuleType, settings: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        translation.correction_of(settings)
