"""Short names: what tells names apart is kept, however long they are and wherever they differ."""

from hypothesis import given
from hypothesis import strategies as st

from ratioscope.app.presentation.run_names import shortened, told_apart

PARTS = st.lists(st.sampled_from("ab"), min_size=3, max_size=3).map(
    lambda part: f"{part[0]}{'x' * 30}{part[1]}{'y' * 30}{part[2]}{'z' * 30}"
)


@given(st.lists(PARTS, min_size=1, max_size=8), st.integers(14, 40))
def test_different_names_have_different_short_names(names: list[str], room: int) -> None:
    shown = told_apart(names, room)
    assert len(set(shown)) == len(set(names)) and max(map(len, shown)) <= room
    assert [shown[names.index(name)] for name in names] == shown  # equal names look equal


@given(st.lists(st.text(max_size=60), min_size=1, max_size=6), st.integers(12, 40))
def test_any_text_fits_and_names_that_a_plain_cut_tells_apart_keep_it(names: list[str], room: int) -> None:
    shown, plain = told_apart(names, room), [shortened(name, room) for name in names]
    assert max(map(len, shown)) <= room
    assert [a for a, b in zip(shown, plain, strict=True) if plain.count(b) == 1] == [
        b for b in plain if plain.count(b) == 1
    ]
