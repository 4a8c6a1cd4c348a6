"""The small parts of a report: courses in the space of a word, spells, what is taken out, how a value is read."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sizes import examples

from ratioscope.app.pages.scorecard import _or_worse, words_of
from ratioscope.app.presentation.privacy import scrubbed_settings, scrubbed_text
from ratioscope.app.presentation.sparkline import BLOCKS, HOLE, blocks, svg_path
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.grading.episodes import spells
from ratioscope.metrics.grading.limits import Limit, limits_of, reading_of
from ratioscope.metrics.grading.severity import grade

VALUES = st.lists(st.none() | st.floats(), max_size=200)


@given(VALUES, st.integers(1, 80))
@examples(200)
def test_a_course_has_a_block_or_a_hole_for_every_part_whatever_the_values(
    values: list[float | None], width: int
) -> None:
    course = blocks(values, width)
    assert len(course) == min(width, len(values))
    assert set(course) <= {*BLOCKS, HOLE}
    assert "nan" not in svg_path(values) and "inf" not in svg_path(values)


def test_a_course_shows_its_extremes_and_its_holes() -> None:
    assert blocks([0.0, 1.0, None, 2.0, float("inf")]) == "▁▅·██"
    assert blocks([1.0] * 1000, width=3) == "▁▁▁"
    assert svg_path([0.0, 2.0, None, 1.0]) == "M0 26L40 0M120 13h2"


def frame(kl: list[float]) -> pl.DataFrame:
    columns = {"mismatch/kl_k3": kl, "mismatch/kl_k3_se": [value / 100 for value in kl]}
    return pl.DataFrame({"step": range(len(kl)), **columns, "mismatch/tokens": [1000.0] * len(kl)})


def test_spells_are_consecutive_steps_of_one_severity_with_their_worst_reading() -> None:
    grades = grade(frame([0.001, 0.001, 0.02, 0.03, 0.5, 0.001]), {"mismatch": float("nan")})
    found = [(spell.severity, spell.first, spell.last, spell.steps, spell.peak) for spell in spells(grades)]
    assert found == [("healthy", 0, 1, 2, 0), ("watch", 2, 3, 2, 3), ("act", 4, 4, 1, 4), ("healthy", 5, 5, 1, 5)]
    assert "0.5 nats/token" in spells(grades)[2].reading


def test_spells_of_nothing_are_none() -> None:
    assert spells(grade(frame([]))) == ()


def test_a_bound_on_the_mild_side_is_no_proof_of_health() -> None:
    metric, limits = BY_NAME["ess_token"], limits_of(BY_NAME["ess_token"], "mismatch")
    assert _or_worse("healthy", metric, limits, None) == "healthy or worse"
    assert _or_worse("watch", metric, limits, None) == "watch or worse"
    assert _or_worse("act", metric, limits, None) == "act" and _or_worse("healthy", metric, limits, 0.01) == "healthy"
    assert _or_worse("healthy", BY_NAME["kl_k3"], limits_of(BY_NAME["kl_k3"], "mismatch"), None) == "healthy"


def test_a_reading_is_that_of_the_furthest_limit_reached() -> None:
    rising = (Limit(0.01, "watch"), Limit(0.1, "act"))
    assert [reading_of(value, rising) for value in (0.005, 0.01, 0.5, None)] == ["", "watch", "act", ""]
    falling = (Limit(0.5, "watch", "below"), Limit(0.1, "act", "below"))
    assert [reading_of(value, falling) for value in (0.9, 0.5, 0.01)] == ["", "watch", "act"]
    assert words_of(rising[0]) == "watch ≥ 0.01" and words_of(falling[1]) == "act ≤ 0.1"


SECRETS = (
    "hf_abcdefghijklmnopqrstuvwx",
    "sk-proj-abcdefghijklmnop1234",
    "ghp_0123456789abcdefghijABCDEFGHIJ456789",
    "github_pat_11ABCDEFG0123456789_abcdef",
    "glpat-abcdefghijklmnopqrst",
    "AKIAIOSFODNN7EXAMPLE",
    "AIzaSyA-1234567890abcdefghijklmnopqrstu",
    "xoxb-123456789012-abcdefghijkl",
    "wandb_v1_abcdefghijklmnop",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END",
)


@pytest.mark.parametrize("secret", SECRETS)
def test_what_looks_like_a_secret_leaves_no_trace_in_a_text(secret: str) -> None:
    for text in (
        secret,
        f"failed with {secret}",
        f"Authorization: Bearer {secret}",
        f"https://x.example/?token={secret}&a=1",
    ):
        assert secret[8:24] not in scrubbed_text(text)


def test_credentials_in_a_url_and_home_folders_are_taken_out() -> None:
    assert scrubbed_text("https://ann:hunter2@host/x") == "https://[redacted]@host/x"
    assert scrubbed_text("/home/ann/runs /Users/bob/x C:\\Users\\eve\\y /root/z") == "~/runs ~/x ~\\y ~/z"


def test_a_configuration_keeps_what_is_no_secret() -> None:
    config = {
        "wandb": {"api_key": "abc123"},
        "HF_TOKEN": "short",
        "max_tokens": 64,
        "pad_token": "<pad>",
        "paths": ["/home/ann/x"],
    }
    assert scrubbed_settings(config) == {
        "wandb": {"api_key": "[redacted]"},
        "HF_TOKEN": "[redacted]",
        "max_tokens": 64,
        "pad_token": "<pad>",
        "paths": ["~/x"],
    }


def test_ordinary_words_are_no_secrets() -> None:
    for text in ("task-specific", "the key point", "token 5 of 7", "https://host/path", "/homework/x", "sk-learn"):
        assert scrubbed_text(text) == text
