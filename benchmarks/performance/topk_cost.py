"""The cost of the likeliest tokens at each place beside the sampled one: the time of `log`, and bytes on disk."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from ratioscope import Budget, Collector
from ratioscope.layout import TOKENS, TOPK

from ..topk import arrays
from .logging_cost import COPY, SEQUENCE, copied, logging_to, with_rests
from .measured import Row, Table

K = 20
WITH, WITHOUT = f"Collector.log, with {K} likeliest tokens", "Collector.log, without"


def parts(quick: bool) -> Iterator[Table]:
    tokens, rounds = (20_000, 2) if quick else (1_000_000, 7)
    given = {name: arrays((tokens // SEQUENCE, SEQUENCE), k) for name, k in ((WITHOUT, 0), (WITH, K))}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        budget = Budget(topk_step_bytes=None, topk_run_bytes=None)
        collectors = {name: stack.enter_context(Collector(Path(folder) / name, budget=budget)) for name in given}
        works = {name: logging_to(collectors[name], each) for name, each in given.items()}
        rows = with_rests({COPY: partial(copied, given[WITH]), **works}, rounds, *collectors.values())
        for collector in collectors.values():
            collector.flush(timeout=None)
        sizes = [_bytes(Path(folder) / name) / tokens / (rounds + 1) for name in given]
    offered = sum(each.nbytes for each in given[WITH].values()) / tokens
    text = (
        f"One step of {tokens:,} tokens: ids and two policies, and with them the ids and both log-probs of {K} likeliest tokens "
        "of each place. The thread that calls waits this long; the writers had ended their work before each turn. log copies "
        "into memory that it keeps, the copy is given new memory each time."
    )
    yield Table("topk", "One call of log with the likeliest tokens", text, "ms", COPY, rows)
    disk = (Row(COPY, (offered,)), *(Row(name, (size,)) for name, size in zip(given, sizes, strict=True)))
    text = "Files of token rows and of top-k of the same steps. Every bit comes back."
    yield Table("topk_size", "Bytes per token with the likeliest tokens", text, "bytes/token", COPY, disk)


def _bytes(run: Path) -> int:
    return sum(path.stat().st_size for part in (TOKENS, TOPK) for path in (run / part).rglob("*.parquet"))
