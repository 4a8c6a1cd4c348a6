"""A bundle: one zip file about a run to attach to a bug report. It holds numbers and settings, and no text.

    README.txt       the list of members, and what is not in them
    settings.json    trainer, versions and configuration, without secrets and home folders
    diagnosis.json   as `ratioscope diagnose --json` gives it, with the same numbers for names
    metrics.csv      every metric by step
    tokens.parquet   some sequences: log-probs and facts of each token; ids are numbers in order of appearance

Equal runs give equal bytes. `bundled_evidence` reads the tokens back, so that a diagnosis can be repeated on them.
"""

import io
import json
import zipfile
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
from pyarrow.csv import write_csv

from ratioscope.arrays import Array, Integers
from ratioscope.errors import SourceError
from ratioscope.ingest.analysis.diagnosis import described, diagnosed_gap, plain_diagnosis
from ratioscope.ingest.analysis.evidence import evidence_of
from ratioscope.ingest.analysis.run_settings import PARTS
from ratioscope.ingest.run import Run
from ratioscope.metrics.diagnosis.decomposition import diagnose
from ratioscope.metrics.diagnosis.evidence import Evidence
from ratioscope.version import __version__

from ..presentation.json_values import jsonable
from ..presentation.privacy import scrubbed_settings
from ..presentation.without_texts import outgoing

SEQUENCES = 128
"""Sequences in a bundle unless another number is given, at even distances among those that a diagnosis reads."""
NAMES = ("token", "group", "replica")
"""Facts that name something: the bundle has numbers in order of appearance instead."""
BEGAN = (1980, 1, 1, 0, 0, 0)
"""Time of every member, the first one that a zip file can hold."""
README = """\
A bundle of a run, written by ratioscope {version} to attach to a bug report.

settings.json    trainer, versions and configuration, without secrets
diagnosis.json   the diagnosis of the gap
metrics.csv      every metric by step
tokens.parquet   {sequences} sequences of {tokens} tokens: log-probs and facts

No prompt, no response, no token id, no host, no user and no path is in it. Token ids, prompt groups and replicas are numbers
in order of appearance. Read settings.json before you send the file: a setting of your own may hold what only you know.
"""


def bundle(run: Run, sequences: int = SEQUENCES) -> bytes:
    """The zip file. sequences: at most so many in tokens.parquet. SourceError for a run that cannot be diagnosed."""
    run = outgoing(run, text=False)
    gap = diagnosed_gap(run)
    sampled = evidence_of(run, gap)
    evidence = _without_names(sampled.evidence)
    result = described(run, diagnose(evidence), sampled, gap)
    rows = np.unique(evidence.row)
    chosen = rows[np.unique(np.linspace(0, len(rows) - 1, min(sequences, len(rows))).astype(np.int64))]
    part = evidence.kept(np.isin(evidence.row, chosen))
    own = {"sequence": _in_order(part.row), "position": part.position, "earlier": part.earlier, "later": part.later}
    tokens = pl.DataFrame({**own, **part.facts})
    settings = {part: run.info.get(part) for part in PARTS}
    counts = {"version": __version__, "sequences": tokens["sequence"].n_unique(), "tokens": len(tokens)}
    members = {
        "README.txt": README.format(**counts).encode(),
        "settings.json": _json(scrubbed_settings(settings)),
        "diagnosis.json": _json(plain_diagnosis(result)),
        "metrics.csv": _csv(run.metrics(by=("step",)).sort("step")),
        "tokens.parquet": _parquet(tokens),
    }
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name, BEGAN), content, zipfile.ZIP_DEFLATED)
    return written.getvalue()


def bundled_evidence(content: bytes) -> Evidence:
    """The evidence of a bundle's sequences. SourceError for a file that is no bundle."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            frame = pl.read_parquet(io.BytesIO(archive.read("tokens.parquet")))
    except (zipfile.BadZipFile, KeyError, pl.exceptions.PolarsError, OSError) as error:
        raise SourceError(f"no bundle: {error}; wanted a file that `ratioscope bundle` wrote") from error
    own = ("sequence", "position", "earlier", "later")
    facts = {name: frame[name].to_numpy() for name in frame.columns if name not in own}
    return Evidence(
        frame["earlier"].to_numpy(), frame["later"].to_numpy(), frame["sequence"].to_numpy(), frame["position"].to_numpy(),
        facts, {},
    )  # fmt: skip


def _without_names(evidence: Evidence) -> Evidence:
    """The evidence with numbers for token ids, prompt groups and replicas, and without the names of replicas."""
    facts = {name: _in_order(values) if name in NAMES else values for name, values in evidence.facts.items()}
    own = evidence.non_finite
    unnamed = None if own is None else replace(own, found=replace(own.found, labels={}))
    return replace(evidence, facts=facts, names={}, non_finite=unnamed)


def _in_order(codes: Array) -> Integers:
    """0, 1, 2, ... in order of appearance; -1 stays, it means unknown."""
    distinct, first, index = np.unique(codes, return_index=True, return_inverse=True)
    order = np.empty(len(distinct), np.int64)
    order[np.argsort(first, kind="stable")] = np.arange(len(distinct))
    return np.where(codes == -1, -1, order[index])


def _json(value: Any) -> bytes:
    return (json.dumps(jsonable(value), indent=1) + "\n").encode()


def _parquet(frame: pl.DataFrame) -> bytes:
    written = io.BytesIO()
    pq.write_table(frame.to_arrow(), written, compression="zstd")
    return written.getvalue()


def _csv(frame: pl.DataFrame) -> bytes:
    written = io.BytesIO()
    write_csv(frame.to_arrow(), written)
    return written.getvalue()
