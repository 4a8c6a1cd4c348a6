"""Code on a page: all of its words, in their colours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratioscope.app.browser.code import _parts
from ratioscope.app.pages.corrections import LANGUAGES


@given(st.text(st.characters(exclude_characters="\r")), st.sampled_from([*LANGUAGES.values(), "toml", "json"]))
def test_parts_of_code_make_the_text_that_was_given(text: str, language: str) -> None:
    assert "".join(part for _, part in _parts(text, language)) == text


@pytest.mark.parametrize(
    ("language", "text", "kinds"),
    [
        ("python", "f(cap=2.0)  # why", {"cap": "", "2.0": "number", "=": "operator", "# why": "aside"}),
        ("yaml", "rollout_is: 1.5", {"rollout_is": "name", ":": "aside", "1.5": ""}),
        ("toml", 'signal = "kl"', {"kl": "string", "=": "operator"}),
    ],
)
def test_a_part_of_code_has_the_class_of_its_kind(language: str, text: str, kinds: dict[str, str]) -> None:
    found = {part: kind for kind, part in _parts(text, language)}
    assert {part: found[part] for part in kinds} == kinds
