"""The frames and histograms that pages of a long run keep in the cache, see statistics/kept_tables.py."""

from ratioscope.metrics.distribution import LEVELS
from ratioscope.metrics.engines.slices import WRITTEN

from ..run import Run


def keep_frames(run: Run) -> None:
    """Makes all of them. A run of few steps keeps none, because making them is as fast as reading them."""
    run.metrics()
    run.metrics(())
    for slice_name in WRITTEN[1:]:
        run.metrics((slice_name,))
    for gap in run.gaps:
        run.distributions(LEVELS, gap)
