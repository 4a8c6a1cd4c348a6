"""Findings of --try as events of the run, where the diagnosis, charts and the report find them."""

import os
from collections.abc import Sequence
from pathlib import Path

from ratioscope import layout
from ratioscope.collectors.writing.offline import OfflineWriter
from ratioscope.errors import not_writable

from .hypotheses import PLAIN
from .reproduction import Best


def write_proofs(path: str | os.PathLike[str], results: Sequence[Best]) -> None:
    """Writes an event for each column that is reproduced by an alternative. The plain reading proves no fault."""
    proofs = [best for best in results if best.verdict == "reproduced" and best.hypothesis != PLAIN.name]
    if not proofs:
        return
    events = (
        {"kind": layout.EVENT, "event": layout.REPRODUCED, "step": best.steps[0], "note": best.sentence}
        for best in proofs
    )
    try:
        OfflineWriter(Path(path), "rescore").say(*events)
    except OSError as error:
        raise not_writable(path, error) from error
