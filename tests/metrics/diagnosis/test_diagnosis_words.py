"""The words of a diagnosis."""

import pytest

from ratioscope.metrics.digits import whole_percent


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.0, "none"), (2e-7, "less than 0.1%"), (0.0005, "0.1%"), (0.004, "0.4%"), (0.5, "50%"), (0.9971, "99.7%")]
    + [(0.9999, "99.99%"), (1.0, "100%")],
)
def test_a_share_of_the_gap_is_never_told_as_zero_percent(share: float, words: str) -> None:
    assert whole_percent(share) == words
