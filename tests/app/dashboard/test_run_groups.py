"""Which runs belong together, and how each looks: told by names and configurations alone, and never twice the same."""

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratioscope.app.pages.run_groups import LONGEST, MOST_KEYS, by_key, by_seed, flat, seedless, sharing_keys
from ratioscope.app.presentation.run_names import MARKS, SLOTS, SYMBOLS, slots
from ratioscope.app.presentation.theme import NAMED, THEMES, Theme

NAMES = st.lists(st.text(max_size=12), max_size=12)
MACHADO = {  # Machado, Oliveira, Fernandes 2009: what is left of linear RGB where one kind of cone is missing
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
Floats = npt.NDArray[np.float64]


@given(NAMES)
def test_a_run_has_one_slot_whatever_the_order_and_none_is_shared_while_there_are_any(runs: list[str]) -> None:
    found = slots(runs)
    assert found == slots(runs[::-1]) and set(found) == set(runs)
    assert all(0 <= slot < SLOTS for slot in found.values())
    if len(found) <= SLOTS:
        assert len(set(found.values())) == len(found)


@given(st.text(), st.lists(st.text(), max_size=3))
def test_a_run_keeps_its_slot_unless_another_has_the_same(run: str, others: list[str]) -> None:
    alone = slots([run])[run]
    if all(slots([other])[other] != alone for other in others if other != run):
        assert slots([run, *others])[run] == alone


def test_each_slot_has_a_colour_and_two_spellings_of_a_symbol() -> None:
    assert len(SYMBOLS) == len(set(SYMBOLS)) == len(MARKS) == len(set(MARKS)) == SLOTS
    assert all(len(theme.runs) == len(set(theme.runs)) == SLOTS for theme in THEMES.values())


@pytest.mark.parametrize("theme", [theme for theme in THEMES.values() if theme is not NAMED])
def test_colours_of_runs_are_told_apart_by_every_eye_and_stand_out(theme: Theme) -> None:
    linear = np.array([_linear(colour) for colour in theme.runs])
    views = [linear, *(np.clip(linear @ np.array(matrix).T, 0, 1) for matrix in MACHADO.values())]
    for view in views:
        apart = [np.linalg.norm(_lab(a) - _lab(b)) for a, b in itertools.combinations(view, 2)]
        assert min(apart) > 20  # CIE 1976; a just noticeable difference is 2.3
    for colour in theme.runs:
        assert _contrast(colour, theme.background) >= 3


@given(st.lists(st.text("abc-_/0123 seed", min_size=1, max_size=12), unique=True, max_size=8))
def test_every_run_is_in_one_group_and_a_group_of_seeds_has_company(runs: list[str]) -> None:
    groups = by_seed(runs)
    assert list(groups) == runs
    for run, group in groups.items():
        together = [other for other in runs if groups[other] == group]
        assert group == run or len({seedless(other) for other in together}) == 1 or group == "all seeds"


def test_seeds_are_grouped_and_others_stay_by_themselves() -> None:
    found = by_seed(["a/seed0", "a/seed1", "b/seed0", "llama3", "llama2", "8b-1", "8b-2", "s1", "s2"])
    assert found == {
        "a/seed0": "a", "a/seed1": "a", "b/seed0": "b/seed0", "llama3": "llama3", "llama2": "llama2", "8b-1": "8b",
        "8b-2": "8b", "s1": "all seeds", "s2": "all seeds",
    }  # fmt: skip


def test_keys_that_some_runs_share_and_not_all_can_be_grouped_by() -> None:
    written = {
        "a": {"algo": {"name": "grpo", "clip": 0.2}, "seed": 0, "model": "m"},
        "b": {"algo": {"name": "grpo", "clip": 0.3}, "seed": 1, "model": "m"},
        "c": {"algo": {"name": "ppo"}, "seed": 2, "model": "m"},
        "d": {},
    }
    configs = {name: flat(config) for name, config in written.items()}
    assert sharing_keys(configs) == ["algo.name"]
    assert by_key(configs, "algo.name") == {
        "a": "algo.name=grpo",
        "b": "algo.name=grpo",
        "c": "algo.name=ppo",
        "d": "d",
    }
    assert sharing_keys({"a": {}, "b": {}}) == []


def test_a_hostile_configuration_is_bounded() -> None:
    deep: dict[str, object] = {}
    inner = deep
    for _ in range(5000):
        inner["k"] = inner = {}
    wide = {f"key{number}": "x" * 1000 for number in range(10_000)}
    assert flat(deep) == {} and len(flat(wide)) <= MOST_KEYS
    assert all(len(value) <= LONGEST for value in flat(wide).values())


def _linear(colour: str) -> Floats:
    value = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def _lab(linear: Floats) -> Floats:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ linear / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def _contrast(first: str, second: str) -> float:
    light: Sequence[float] = sorted(float(_linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (first, second))
    return (light[1] + 0.05) / (light[0] + 0.05)
