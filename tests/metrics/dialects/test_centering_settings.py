"""Score centering in the trainers' syntax: read back as YAML or as overrides, and a reason where no public text shows it."""

import pytest
import yaml

from ratioscope.errors import ConfigError
from ratioscope.metrics.analysis.score_centering import CENTERINGS, Centering
from ratioscope.metrics.corrections.correction import CORRECTIONS, Weigh
from ratioscope.metrics.dialects import dialect
from ratioscope.metrics.dialects.centering_settings import centering_settings
from ratioscope.metrics.dialects.translation import correction_in

CENTERED: dict[str, Centering] = {each.outside: each for each in CENTERINGS if each.is_centered}


@pytest.mark.parametrize("outside", ["one", "clamp", "zero"])
def test_nemo_rl_reads_the_settings_as_the_same_weights_and_centering(outside: str) -> None:
    centering = CENTERED[outside]
    config = yaml.safe_load(centering_settings("nemo_rl", centering, 20))
    assert config["loss_fn"].pop("score_centering") is True
    steps = correction_in("nemo_rl", config).steps
    assert steps == (() if outside == "one" else (Weigh("token", centering.low, centering.high, centering.outside),))  # type: ignore[arg-type]  # no `one` here


@pytest.mark.parametrize(("outside", "loss"), [("one", "reinforce"), ("zero", "rollout_is")])
def test_skyrl_reads_the_settings_as_overrides(outside: str, loss: str) -> None:
    lines = [line.partition("=") for line in centering_settings("skyrl", CENTERED[outside], 32).splitlines()]
    own = {name.removeprefix("trainer.algorithm."): value for name, _, value in lines}
    assert (own["score_centering.enabled"], own["score_centering.top_k"], own["policy_loss_type"]) == (
        "true",
        "32",
        loss,
    )
    assert outside == "one" or (own["eps_clip_low"], own["eps_clip_high"]) == ("0.5", "4"), "weights from 0.5 to 5"
    if outside == "zero":  # the loss `reinforce` is newer than the release that the dialect reads
        dialect("skyrl").parse({name: value for name, value in own.items() if "." not in name})


@pytest.mark.parametrize("outside", ["one", "clamp", "zero"])
def test_verl_reads_the_settings_as_the_same_weights_for_driver_and_actor(outside: str) -> None:
    centering, section = CENTERED[outside], "rollout_correction."
    lines = dict(line.split("=") for line in centering_settings("verl", centering, 20).splitlines())
    places = [f"{place}.{section}" for place in ("algorithm", "+actor_rollout_ref.actor.policy_loss")]
    driver, actor = (
        {n.removeprefix(p): yaml.safe_load(v) for n, v in lines.items() if n.startswith(p)} for p in places
    )
    assert driver == actor and driver.pop("score_centering") is driver["bypass_mode"] is True
    assert lines["actor_rollout_ref.rollout.topk_log_probs"] == "20"
    steps = correction_in("verl", {"algorithm": {"rollout_correction": {**driver, "bypass_mode": False}}}).steps
    weigh = Weigh("token", centering.low, centering.high, "zero" if outside == "zero" else "clamp", log_limit=20.0)
    assert steps == (() if outside == "one" else (weigh,)), "verl cuts off a log-ratio at 20"


@pytest.mark.parametrize("trainer", ["molt", "slime"])
@pytest.mark.parametrize("outside", ["one", "clamp", "zero"])
def test_flags_are_a_line_each_and_hold_the_bounds(trainer: str, outside: str) -> None:
    centering = CENTERED[outside]
    lines = centering_settings(trainer, centering, 32).splitlines()
    flags = {name: value for name, _, value in (line.partition(" ") for line in lines)}
    assert len(flags) == len(lines) and all(name.startswith("--") for name in flags)
    assert "32" in (flags.get("--algo.advantage.score_centering_top_k"), flags.get("--score-centering-top-k"))
    bounds = [f"{centering.low:g}", f"{centering.high:g}"]
    if trainer == "molt":
        threshold = flags.get("--algo.advantage.is_correction_threshold")
        assert flags["--train.max_epochs"] == "1" and threshold == (None if outside == "one" else " ".join(bounds))
    elif outside != "one":
        assert [flags["--tis-clip-low"], flags["--tis-clip"]] == bounds


@pytest.mark.parametrize(
    ("trainer", "outside", "because"),
    [
        ("skyrl", "clamp", "no public text shows SkyRL's score centering with truncated weights"),
        ("agent_lightning", "one", "no public text that names its setting was found"),
        ("trl", "one", "trl is not known to have score centering"),
    ],
)
def test_a_setting_that_no_public_text_shows_is_not_printed(trainer: str, outside: str, because: str) -> None:
    with pytest.raises(ConfigError, match=because):
        centering_settings(trainer, CENTERED[outside], 20)


def test_the_bounds_are_those_that_other_pages_compare() -> None:
    known = {
        (step.low, step.high, step.outside) for each in CORRECTIONS for step in each.steps if isinstance(step, Weigh)
    }
    assert {(each.low, each.high, each.outside) for each in CENTERINGS if each.outside != "one"} <= known


def test_every_pair_differs_in_centering_alone() -> None:
    def bare(centering: Centering) -> tuple[object, ...]:
        return centering.outside, centering.low, centering.high

    assert [each.is_centered for each in CENTERINGS] == [False, True] * 3
    assert [bare(each) for each in CENTERINGS[::2]] == [bare(each) for each in CENTERINGS[1::2]]
