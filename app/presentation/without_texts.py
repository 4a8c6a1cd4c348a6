"""A run as it may leave this machine without its texts: whatever a text could hide in is a name, or the digest of it.

The rule is the recorder's own for `text="ids"` (collectors/batch/text_policy.py), here for every run: it may have been recorded
with texts, or imported. Numbers are not changed, so verdict, metrics and diagnosis stay the same. Equal ids stay equal.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import polars as pl
import pyarrow as pa

from ratioscope.collectors.batch.text_policy import KEPT, name_or_digest, without_words
from ratioscope.ingest.commits.conservation import Conservation
from ratioscope.ingest.commits.weight_entries import TensorTable, WeightDigests
from ratioscope.ingest.files.quarantine import Quarantined
from ratioscope.ingest.rows.text_columns import changed
from ratioscope.ingest.rows.windows import Span
from ratioscope.ingest.run import Run
from ratioscope.metrics.engines.arrow_columns import is_recorded
from ratioscope.metrics.grading.run_rules import RunRules

from .privacy import scrubbed_settings, scrubbed_text

TEXTS = ("prompt_text", "token_text", "token_texts")
Change = Callable[[str], str | None]
_DEPTH = 64


def outgoing(run: Run, *, text: bool) -> Run:
    """The run as it may leave. text: True leaves it as it is."""
    return run if text else cast(Run, _WithoutTexts(run))


def on_paper(run: Run, *, text: bool) -> Run:
    """The run as pages in a file show it: without secrets and home folders, and with text=False without texts."""
    return cast(Run, (_Scrubbed if text else _WithoutTexts)(run))


def without_prompts(run: Run) -> Run:
    """The run without secrets, home folders, prompts and token texts. Its settings and notes stay: a diagnosis reads them."""
    return cast(Run, _WithoutPrompts(run))


class _Changed:
    """A run that answers like another one. Members that are not named here hold numbers, or names of ours."""

    _name: Callable[[str], str]
    """A name -> the name that may be shown."""
    _words: Callable[[str], str]
    """A sentence of a writer or reader -> the sentence that may be shown."""
    _settings: Callable[[dict[str, Any]], Any]  # Any: the values of run.json
    _frame: Callable[..., pl.DataFrame]
    """A frame and the changes of its text columns -> the changed frame."""

    def __init__(self, run: Run) -> None:
        self._raw, self._once = run, dict[tuple[object, ...], object]()

    def once(self, make: Callable[..., Any], *arguments: object) -> Any:  # Any: what the function makes
        """As Run.once, of this run: the raw one keeps what was made of its own words."""
        key = (self._raw.revision, make, *arguments)
        if key not in self._once:
            self._once[key] = make(self, *arguments)
        return self._once[key]

    def __getattr__(self, name: str) -> Any:  # Any: whatever the run has
        return getattr(self._raw, name)

    @property
    def name(self) -> str:
        return self._name(self._raw.name)

    @property
    def place(self) -> str:
        """The folder's name alone: a file that is sent around names no path of this machine."""
        return self._name(self._raw.place if self._raw.is_remote else self._raw.path.resolve().name)

    @property
    def info(self) -> dict[str, Any]:
        """Without what tells of machine, process and hour: they are nobody's who is sent a file."""
        return cast(dict[str, Any], self.once(_Changed._told))

    def _told(self) -> dict[str, Any]:
        told = {name: value for name, value in self._raw.info.items() if name not in ("id", "created")}
        if isinstance(entries := told.get("attempts"), list):
            told["attempts"] = [
                {name: value for name, value in entry.items() if name not in ("launch", "time")}
                if isinstance(entry, dict)
                else entry
                for entry in entries
            ]
        return cast(dict[str, Any], self._settings(told))

    @property
    def rules(self) -> RunRules:
        rules = self._raw.rules
        muted = tuple((signal, self._name(reason)) for signal, reason in rules.muted)
        causes = {code: self._name(reason) for code, reason in rules.muted_causes.items()}
        return replace(rules, muted=muted, muted_causes=causes, fault=rules.fault and self._name(rules.fault))

    @property
    def notes(self) -> tuple[str, ...]:
        files = [*(item.path for item in self._raw.quarantined), *self._raw.uncommitted, self._raw.place]
        return tuple(self._without(files, note) for note in self._raw.notes)

    @property
    def quarantined(self) -> tuple[Quarantined, ...]:
        return tuple(
            Quarantined(self._name(item.path), self._words(self._without([item.path], item.reason)))
            for item in self._raw.quarantined
        )

    @property
    def uncommitted(self) -> list[str]:
        return [self._name(path) for path in self._raw.uncommitted]

    @property
    def events(self) -> pl.DataFrame:
        return self._frame(self._raw.events, event=self._name, note=self._note, writer=self._name)

    @property
    def weights(self) -> tuple[list[WeightDigests], dict[str, TensorTable]]:
        lines, tables = self._raw.weights
        return [replace(line, replica=line.replica and self._name(line.replica)) for line in lines], tables

    @property
    def drops(self) -> pl.DataFrame:
        return self._frame(self._raw.drops, reason=self._words, writer=self._name)

    @property
    def conservation(self) -> Conservation:
        counts = self._raw.conservation
        return replace(counts, reasons=tuple(replace(each, reason=self._words(each.reason)) for each in counts.reasons))

    @property
    def states(self) -> dict[str, str]:
        return {self._name(writer): self._words(note) for writer, note in self._raw.states.items()}

    @property
    def writers(self) -> pl.DataFrame:
        return self._frame(self._raw.writers, writer=self._name).drop("host", strict=False)

    @property
    def logged(self) -> pl.DataFrame:
        return self._frame(self._raw.logged, name=self._name)

    def metrics(self, by: str | Sequence[str] = ("step",), **choice: Any) -> pl.DataFrame:
        return self._frame(self._raw.metrics(by, **choice))

    def statistics(self, slice: str = "all", **choice: Any) -> pl.DataFrame:
        return self._frame(self._raw.statistics(slice, **choice), key=KEPT.get(slice, str))

    def _note(self, text: str) -> str:
        return text and str(self._name(text))

    def _without(self, files: Sequence[str], words: str) -> str:
        """The words with these files as names may be shown."""
        for file in sorted(files, key=len, reverse=True):
            words = words.replace(file, self._name(file))
        return words


class _Scrubbed(_Changed):
    """A run without secrets and home folders. Its rows keep their texts."""

    _name = _words = staticmethod(scrubbed_text)
    _settings = staticmethod(scrubbed_settings)

    @staticmethod
    def _frame(frame: pl.DataFrame, **_: Change) -> pl.DataFrame:
        return changed(frame, scrubbed_text, *(name for name, kind in frame.schema.items() if kind == pl.String))


def _frame(frame: pl.DataFrame, **changes: Change) -> pl.DataFrame:
    """The frame with its text columns changed, and without texts of prompts and tokens."""
    changes = {name: change for name, change in {**KEPT, **changes}.items() if frame.schema.get(name) == pl.String}
    renewed = {}
    for name, change in changes.items():
        others = {text: new for text in frame[name].drop_nulls().unique().to_list() if (new := change(text)) != text}
        if others:
            renewed[name] = pl.col(name).replace_strict(others, default=pl.col(name), return_dtype=pl.String)
    empty = {name: pl.lit(None, frame.schema[name]) for name in TEXTS if name in frame.columns}
    return frame.with_columns(**renewed, **empty)


def _table(table: pa.Table, changes: Mapping[str, Change]) -> pa.Table:
    for name, change in changes.items():
        if is_recorded(table, name):
            new = {text: None if text is None else change(text) for text in set(table[name].to_pylist())}
            field = table.schema.field(name)
            values = pa.array([new[text] for text in table[name].to_pylist()], field.type)
            table = table.set_column(table.column_names.index(name), field, values)
    return table


def _plain(value: Any, depth: int = 0) -> Any:
    """A JSON value with a digest for every text and key that is no name."""
    if depth > _DEPTH:
        return None
    if isinstance(value, dict):
        return {name_or_digest(str(key)): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    return name_or_digest(value) if isinstance(value, str) else value


class _WithoutTexts(_Changed):
    """A run without texts."""

    _name: Callable[[str], str] = staticmethod(name_or_digest)
    _words: Callable[[str], str] = staticmethod(without_words)
    _settings: Callable[[dict[str, Any]], Any] = staticmethod(_plain)  # Any: as above
    _frame = staticmethod(_frame)

    def sequences(self, step: int | None = None, **choice: Any) -> pl.DataFrame:
        return _frame(self._raw.sequences(step, **choice))

    def sequence(self, step: int, sequence_id: str, minibatch: int | None = None) -> pl.DataFrame:
        return self.spans(step, [Span(sequence_id, minibatch)])[0]

    def spans(self, step: int, wanted: Sequence[Span]) -> list[pl.DataFrame]:
        own = self._own_ids(step)
        spans = [replace(span, sequence_id=own.get(span.sequence_id, span.sequence_id)) for span in wanted]
        return [_frame(frame) for frame in self._raw.spans(step, spans)]

    def prompt_ids(self, step: int, sequence_id: str) -> list[int] | None:
        return self._raw.prompt_ids(step, self._own_ids(step).get(sequence_id, sequence_id))

    def tokens(self, steps: Sequence[int] | None = None, columns: Sequence[str] | None = None) -> pl.LazyFrame:
        return _frame(self._raw.tokens(steps, columns).collect()).lazy()

    def records(self, steps: Sequence[int] | None = None) -> pl.LazyFrame:
        return _frame(self._raw.records(steps).collect()).lazy()

    def rows(self, step: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Texts stay in these rows: prompts are paired and tokens classed by them."""
        return _table(self._raw.rows(step, columns), KEPT)

    def topk(self, step: int) -> pa.Table:
        """Ids stay, because metrics compare them; no page and no file shows one."""
        return _table(self._raw.topk(step), KEPT)

    def beside(self, records: pa.Table, step: int, gap: str) -> pa.Table:
        back = (
            _table(records, {"sequence_id": lambda text: own.get(text, text)})
            if (own := self._own_ids(step))
            else records
        )
        return _table(self._raw.beside(back, step, gap), KEPT)

    def _own_ids(self, step: int) -> dict[str, str]:
        """The id that a sequence has here -> its own, for sequences that have another here."""
        every = set(self._raw.rows(step, ())["sequence_id"].to_pylist())
        return {named: own for own in every if own is not None and (named := name_or_digest(own)) != own}


class _WithoutPrompts(_WithoutTexts):
    """A run without the texts of its rows."""

    _name = _words = staticmethod(scrubbed_text)
    _settings = staticmethod(scrubbed_settings)


def has_texts(run: Run) -> bool:
    """False if the texts of the run were left out."""
    return not isinstance(run, _WithoutTexts)
