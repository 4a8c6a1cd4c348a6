"""The text of the lab: every part round trips, what cannot be meant is said, nothing in it runs or grows without end."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sizes import examples

from ratioscope.app.pages.corrections_text import (
    LONGEST,
    MOST,
    OURS,
    PASTED,
    comparison_of,
    entry_of,
    own_text,
    threshold_text,
)
from ratioscope.errors import ConfigError
from ratioscope.ingest.analysis.correction_effects import TrainerCorrection
from ratioscope.ingest.importers.config_text import mapping_in
from ratioscope.metrics.corrections.threshold import CAPS, FLOORS, RULES, Threshold
from ratioscope.metrics.dialects import NAMES, dialect
from ratioscope.metrics.distribution import LEVELS

PARTS = ["none", "truncate:token:2", "mask:sequence:0.5:5", "reject:geometric:0.999:1.001", "veto:0.0001"]
PARTS += [f"ours:{name}" for name in OURS]
PRESETS = [f"{name}:{preset}" for name in NAMES for preset in dialect(name).PRESETS]


@pytest.mark.parametrize("part", [*PARTS, *PRESETS])
def test_every_part_is_read_and_written_alike(part: str) -> None:
    comparison = comparison_of(part)
    assert comparison.refused == () and comparison.text == part and comparison.entries[0].name
    assert comparison_of(comparison.text) == comparison


@given(
    st.sampled_from(RULES), st.sampled_from(LEVELS), st.sampled_from((0.0, *FLOORS)), st.sampled_from((*CAPS, 7.123456))
)
def test_thresholds_round_trip(rule: Any, level: Any, low: float, high: float) -> None:
    threshold = Threshold(rule, level, low, high)
    assert (
        entry_of(threshold_text(threshold)).made == pytest.approx(threshold)
        or entry_of(threshold_text(threshold)).name == threshold.name
    )


def test_entries_come_in_order_each_once_and_no_more_than_can_be_told_apart() -> None:
    comparison = comparison_of(
        " truncate:token:2, none ,,truncate:token:2.0, " + ",".join(f"mask:token:{c}" for c in range(2, 9))
    )
    assert [entry.text for entry in comparison.entries][:2] == ["truncate:token:2", "none"] and len(
        comparison.entries
    ) == MOST
    assert len(comparison.refused) == 3 and all("too many" in reason for _, reason in comparison.refused)


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ("nonsense", "wanted one of none, truncate"), ("truncate:token", "wanted truncate:LEVEL:CAP"),
        ("truncate:batch:2", "LEVEL one of"), ("mask:token:5:2", "0 <= low < high"), ("mask:token:x", "no weight"),
        ("mask:token:nan", "no weight"), ("mask:token:-1", "no weight"), ("truncate:token:0:inf", "bounds nothing"),
        ("veto:2", "between 0 and 1"), ("verl:nope", "it has decoupled_token_is"), ("ours:nope", "wanted one of"),
        ("verl=!!!", "wanted a mapping"), ("verl=" + base64.b64encode(b"[1]").decode(), "wanted a mapping"),
        ("verl=é", "paste"), ("trl=" + "A" * 100, "its configuration"), ("x=1", "wanted one of"),
        ("truncate:token:2:3:4", "wanted"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_left_out_and_said(part: str, says: str) -> None:
    comparison = comparison_of(f"none,{part}")
    assert [entry.text for entry in comparison.entries] == ["none"]
    ((refused, reason),) = comparison.refused
    assert refused == part and says in reason


def test_a_text_without_end_is_refused_whole() -> None:
    assert comparison_of("none," * LONGEST).entries == () and "longer" in comparison_of("none," * LONGEST).refused[0][1]


@pytest.mark.parametrize("text", ["rollout_is: token\nrollout_is_threshold: 1.5", '{"rollout_is": "token"}'])
def test_a_pasted_configuration_becomes_a_part_of_the_text(text: str) -> None:
    entry = entry_of(own_text("verl", text))
    assert isinstance(entry.made, TrainerCorrection) and entry.made.config["rollout_is"] == "token"
    assert "rollout_is token" in entry.name and comparison_of(f"none,{entry.text}").entries[1] == entry


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "\n".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(f'*{chr(97 + i)}' for _ in range(9))}]" for i in range(9)
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- 1\n- 2", "wanted a mapping"),
        ("just words", "wanted a mapping"),
        ("", "wanted a mapping"),
        ("a: [", "neither JSON nor YAML"),
        ("\x00", "neither JSON nor YAML"),
        ("!!python/object/apply:os.system ['true']", "neither JSON nor YAML"),
        ("a: 2024-99-99", "neither JSON nor YAML"),
        ("a: 2024-01-01", "dates"),
        (BOMB, "aliases"),
        ("[" * 3000, "nested|neither"),
        ("{" * 3000, "nested|neither"),
        ("a: " + "{a: " * 40 + "1" + "}" * 40, "nested"),
        ("1: 2", "names of settings"),
        ("rollout_is: sideways", "allowed"),
        ("x" * (PASTED + 1), "at most"),
    ],
)
def test_text_that_is_no_configuration_is_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        own_text("verl", text)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["rollout_is", "rollout_is_threshold", "rollout_rs", "algorithm", "rollout_correction", "args", "method", "actor", "loss_fn",
     "grpo", "tis", "cap", "level", "trainer", "rejection_sampling", "use_vllm", "vllm_importance_sampling_mode"]
)  # fmt: skip


@given(st.sampled_from(NAMES), st.dictionaries(KEYS | st.text(max_size=6), values, max_size=4))
@examples(300)
def test_no_pasted_configuration_breaks_the_page(trainer: str, config: dict[str, Any]) -> None:
    try:
        entry = entry_of(own_text(trainer, json.dumps(config)))
    except ConfigError as error:
        assert str(error)
    else:
        assert comparison_of(entry.text).entries == (entry,)


@given(st.text(max_size=60))
@examples(200)
def test_no_text_breaks_the_page(text: str) -> None:
    comparison = comparison_of(text)
    assert comparison_of(comparison.text).entries == comparison.entries


def test_what_is_read_is_named_in_errors() -> None:
    with pytest.raises(ConfigError, match="my.yaml holds a list"):
        mapping_in("- 1", "my.yaml")
