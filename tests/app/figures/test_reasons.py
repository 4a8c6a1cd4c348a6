"""Tables of sentences: on a narrow screen short cells stand side by side, and sentences below each other."""

from ratioscope.app.figures.html.reasons import reasons


def test_only_a_table_of_short_cells_has_two_of_them_side_by_side() -> None:
    numbers, sentences = (reasons(head, [head]) for head in ("abcde", "abc"))
    assert '<table class="rs-short">' in numbers and "<table>" in sentences
