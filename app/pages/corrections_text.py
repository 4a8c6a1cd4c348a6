"""The corrections that the page Fix compares, as one line of text that fits a URL, and back; each in a trainer's syntax.

    none                          every weight 1
    truncate:token:2              also mask, reject; token, sequence, geometric; low:high where there is a low bound
    veto:1e-4                     sequences with a token whose weight is below
    ours:token-TIS-2              one of metrics.correction.CORRECTIONS
    verl:decoupled_token_is       a trainer's preset
    verl=eyJ...                   a trainer's own configuration, as base64url of JSON

Parts are separated by commas; a lone - compares nothing. A part that cannot be read is left out, and the page names it.
"""

import base64
import binascii
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, isfinite
from typing import Any

from ratioscope.errors import ConfigError, RatioscopeError
from ratioscope.ingest.analysis.correction_effects import TrainerCorrection
from ratioscope.ingest.analysis.correction_ranking import bound_of, does_the_same, reads, title_of
from ratioscope.ingest.importers.config_text import mapping_in
from ratioscope.metrics.corrections.correction import CORRECTIONS, NONE, USUAL, Correction, Reject, WeightedGap
from ratioscope.metrics.corrections.threshold import LEVEL_BY_NAME, RULE_BY_NAME, RULES, Threshold, threshold_of
from ratioscope.metrics.dialects import NAMES, dialect
from ratioscope.metrics.dialects.translation import correction_in, own_written, same_effect, written
from ratioscope.metrics.distribution import LEVELS
from ratioscope.record import GAPS

from ..blocks import Action, Actions, Block, Link, Paragraph
from ..presentation.escape import visible
from .face import Choice, Face, Several, Text

EMPTY = "-"
IN_USE = "own"
"""The text of the run's own correction, which no address has to name."""
MOST = 6
LONGEST = 8000
"""Most characters of the whole text."""
PASTED = 3000
"""Most characters of a configuration."""
OURS = {correction.name.replace(" ", "-"): correction for correction in CORRECTIONS if correction is not NONE}


@dataclass(frozen=True)
class Entry:
    """One correction to compare."""

    text: str
    """Its part of the text in the URL."""
    name: str
    made: Threshold | Correction | TrainerCorrection
    """A Threshold can be read from distributions; the others need token rows."""

    def correction(self, gap: WeightedGap) -> Correction | TrainerCorrection:
        """The correction to compute on token rows. Ours reads this gap; a trainer's own reads the gap that the trainer reads."""
        if isinstance(self.made, Threshold):
            return self.made.correction(gap)
        return Correction(self.name, self.made.steps, gap) if isinstance(self.made, Correction) else self.made


@dataclass(frozen=True)
class Comparison:
    """The compared corrections of a text."""

    entries: tuple[Entry, ...]
    """At most MOST, no two alike."""
    refused: tuple[tuple[str, str], ...]
    """(part, reason) of parts that were left out."""

    @property
    def parts(self) -> list[str]:
        return [entry.text for entry in self.entries]

    @property
    def text(self) -> str:
        return comparison_text(self.parts)


def comparison_of(text: str) -> Comparison:
    """The corrections that the text names."""
    if len(text) > LONGEST:
        return Comparison((), ((text, f"is longer than {LONGEST:,} characters"),))
    entries: dict[str, Entry] = {}
    refused = []
    for part in (part.strip() for part in text.split(",")):
        if part in ("", EMPTY):
            continue
        try:
            entry = entry_of(part)
            if len(entries) == MOST and entry.text not in entries:
                raise ConfigError(f"is one too many: {MOST} corrections can be told apart in a chart")
            entries.setdefault(entry.text, entry)
        except RatioscopeError as error:
            refused.append((part, str(error)))
    return Comparison(tuple(entries.values()), tuple(refused))


def with_own(own: Correction | TrainerCorrection | None, gap: WeightedGap, entries: Sequence[Entry]) -> list[Entry]:
    """The run's own correction, if it weighs this gap, and then the entries, without one that does the same."""
    if own is None or not reads(own, gap):
        return [*entries]
    others = [each for each in entries if not does_the_same(own, each.correction(gap))]
    return [Entry(IN_USE, title_of(own), bound_of(own) or own), *others]


def comparison_text(parts: Sequence[str]) -> str:
    return ",".join(parts) or EMPTY


def adding(compared: Comparison, *parts: str) -> Link:
    """The page with these parts in its comparison."""
    return Link("", {"lab": comparison_text([*dict.fromkeys((*compared.parts, *parts))])})


def entry_of(part: str) -> Entry:
    """The entry for one part of the text; ConfigError if it cannot be read."""
    kind, colon, rest = part.partition(":")
    trainer, equals, encoded = part.partition("=")
    if equals and trainer in NAMES:
        return _own(trainer, encoded)
    if part == "none":
        return Entry(part, "no correction: every weight is 1", NONE)
    if kind in RULES and colon:
        return _threshold(kind, rest)
    if kind == "veto" and colon:
        return _veto(rest)
    if kind == "ours" and rest in OURS:
        return Entry(part, OURS[rest].name, OURS[rest])
    if kind in NAMES and rest in dialect(kind).PRESETS:
        return Entry(part, f"{kind} {rest}", TrainerCorrection(f"{kind} {rest}", kind, dialect(kind).PRESETS[rest]))
    if kind in NAMES:
        raise ConfigError(f"{kind} has no such preset; it has {', '.join(dialect(kind).PRESETS)}")
    raise ConfigError(f"wanted one of none, {', '.join(RULES)}, veto, ours, {', '.join(NAMES)}")


def threshold_text(threshold: Threshold) -> str:
    """The part of the text that names this threshold.

    >>> threshold_text(Threshold("truncate", high=2.0)), threshold_text(Threshold("mask", "sequence", 0.5))
    ('truncate:token:2', 'mask:sequence:0.5:inf')
    """
    bounds = [_number_text(threshold.high)]
    if threshold.low > 0 or threshold.high == inf:
        bounds = [_number_text(threshold.low), *bounds]
    return ":".join([threshold.rule, threshold.level, *bounds])


def own_text(trainer: str, text: str) -> str:
    """The part of the text that names a pasted trainer configuration; ConfigError if it cannot be read."""
    if len(text) > PASTED:
        raise ConfigError(f"the text has {len(text):,} characters; wanted the part on corrections, at most {PASTED:,}")
    config = mapping_in(text)
    try:
        packed = json.dumps(config, separators=(",", ":"), allow_nan=True)
    except (TypeError, ValueError):
        raise ConfigError("the text holds dates or other values that no trainer's settings have") from None
    part = f"{trainer}={base64.urlsafe_b64encode(packed.encode()).decode().rstrip('=')}"
    return entry_of(part).text


def _threshold(rule: str, rest: str) -> Entry:
    level, *bounds = rest.split(":")
    if level not in LEVELS or len(bounds) not in (1, 2):
        raise ConfigError(f"wanted {rule}:LEVEL:CAP or {rule}:LEVEL:LOWER:CAP, LEVEL one of {', '.join(LEVELS)}")
    low, high = (0.0, _number(bounds[0])) if len(bounds) == 1 else (_number(bounds[0]), _number(bounds[1]))
    made = Threshold(RULE_BY_NAME[rule], LEVEL_BY_NAME[level], low, high)
    if not made.bounds:
        raise ConfigError("bounds nothing; give a lower bound above 0 or a cap below inf")
    return Entry(threshold_text(made), made.name, made)


def _veto(rest: str) -> Entry:
    low = _number(rest)
    if not 0 < low < 1:
        raise ConfigError("wanted a weight between 0 and 1, such as veto:1e-4")
    name = f"veto below {low:.6g}"
    return Entry(f"veto:{_number_text(low)}", name, Correction(name, (Reject("weight", "any", low=low),)))


def _own(trainer: str, encoded: str) -> Entry:
    try:
        raw = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
        text = raw.decode()
    except (binascii.Error, ValueError):
        raise ConfigError("is no base64url of JSON; paste the configuration again") from None
    if len(text) > 2 * PASTED:
        raise ConfigError(f"its configuration is longer than {2 * PASTED:,} characters")
    config = mapping_in(text, "its configuration")
    try:
        dialect(trainer).parse(config)
    except RatioscopeError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError):  # the trainer would not start with settings of this shape
        raise ConfigError(f"{trainer} does not read settings of this shape") from None
    title = f"{trainer} own: {visible(_brief(config), 60)}"
    return Entry(f"{trainer}={encoded}", title, TrainerCorrection(title, trainer, config))


def _brief(config: dict[str, Any]) -> str:
    """The innermost settings that are not empty, in words."""
    settings = []
    for key, value in config.items():
        if isinstance(value, dict):
            settings.append(_brief(value))
        elif value not in (None, False):
            settings.append(f"{key} {value}")
    return ", ".join(filter(None, settings)) or "nothing set"


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not value >= 0:
        raise ConfigError(f"{visible(text, 20)!r} is no weight; wanted a number of at least 0, or inf")
    return value


def _number_text(value: float) -> str:
    return f"{value:.12g}" if isfinite(value) else "inf"


DEFAULT = comparison_text(["none", *(threshold_text(bound) for bound in map(threshold_of, USUAL) if bound)])
"""The text of metrics.correction.USUAL, which the verb `corrections` compares too."""
NEARLY = (
    "The trainer applies these bounds in its own way (it limits log-ratios before exponentiation, or inverts a band), so the "
    "effect may differ from the one shown at extreme weights."
)


def syntax(entry: Entry, gap: WeightedGap, trainer: str) -> tuple[str | None, Sequence[str]]:
    """(the correction in the trainer's syntax, notes on it); (None, [reason why the trainer cannot express it])."""
    made = entry.correction(gap if gap in GAPS else "mismatch")
    try:
        if isinstance(made, TrainerCorrection) and made.dialect == trainer:
            text = own_written(trainer, made.config)
            notes = [str(note) for note in dialect(trainer).parse(made.config).warnings]
        else:
            correction = made if isinstance(made, Correction) else correction_in(made.dialect, made.config)
            text = written(trainer, correction)
            notes = [] if same_effect(trainer, correction) else [NEARLY]
    except RatioscopeError as error:
        return None, [str(error)]
    return text if text.strip() else "# nothing to set: this is the default of the trainer", notes


LAB = Text(
    "lab",
    "the comparison as text, as in the URL",
    placeholder=DEFAULT,
    width="stretch",
    most=LONGEST,
    help="parts separated by commas: none, truncate|mask|reject:token|sequence|geometric:LOWER:CAP, veto:LOWER, ours:NAME, "
    "TRAINER:PRESET, TRAINER=configuration",
)
PROBLEM = "_paste_problem"
"""The session's key of what was wrong with the configuration that was pasted last."""


def compared(face: Face) -> Comparison:
    """The compared corrections of the URL."""
    return comparison_of(face.known(LAB) or DEFAULT)


def controls(face: Face, comparison: Comparison) -> Iterator[Block]:
    """The controls that change the comparison: standard corrections, a trainer's presets, a pasted configuration."""
    is_full = len(comparison.entries) >= MOST
    with face.row("add"):
        with face.menu("new_rule", "a standard correction", icon="add", is_off=is_full):
            ours = [*OURS]
            name = face.ask(
                Choice("our_rule", "standard correction", ours, ours[0], lambda each: OURS[each].name, in_url=False)
            )
            yield Paragraph(OURS[name].source, "muted")
            yield Action("add_ours", "add", adding(comparison, f"ours:{name}"))
            title = "or reject sequences that have a token weight below"
            veto = face.ask(Text("veto_floor", title, "1e-4", width="stretch", most=12, in_url=False))
            yield Action("add_veto", "add the veto", adding(comparison, f"veto:{veto.strip()}"))
        with face.menu("new_preset", "a trainer's preset", icon="add", is_off=is_full):
            trainer = face.ask(Choice("preset_trainer", "trainer", NAMES, NAMES[0], in_url=False))
            presets = [*dialect(trainer).PRESETS]
            chosen = face.ask(Several(f"presets_{trainer}", "presets", presets, most=MOST, in_url=False))
            parts = (f"{trainer}:{preset}" for preset in chosen)
            yield Action("add_presets", "add", adding(comparison, *parts), is_off=not chosen)
        with face.menu("new_own", "your configuration", icon="add", is_off=is_full):
            trainer = face.ask(Choice("paste_trainer", "trainer of the configuration", NAMES, NAMES[0], in_url=False))
            title = "the part about corrections, as YAML or JSON"
            face.ask(Text("pasted", title, width="stretch", most=PASTED, height=180, in_url=False))
            yield Action("add_pasted", "add", partial(_pasted, face, trainer))
            if problem := face.remembered(PROBLEM, ""):
                yield Paragraph(problem, "wrong")
    yield Actions("compared", tuple(_chip(comparison, at) for at in range(len(comparison.entries))))
    for part, reason in comparison.refused:
        yield Paragraph(f"left out: {visible(part, 60)} {visible(reason, 300)}", "wrong")
    with face.menu("as_text", "as text", is_wide=True):
        face.ask(LAB)


def _pasted(face: Face, trainer: str) -> Link | None:
    """Adds the pasted configuration, or keeps the reason why it cannot be read."""
    face.forget(PROBLEM)
    try:
        return adding(compared(face), own_text(trainer, face.remembered("pasted", "")))
    except RatioscopeError as error:
        face.remembered(PROBLEM, visible(str(error), 400))
        return None


def _chip(comparison: Comparison, at: int) -> Action:
    """The button that takes a correction out of the comparison."""
    name, others = comparison.entries[at].name, [*comparison.parts[:at], *comparison.parts[at + 1 :]]
    about = f"take {visible(name, 200)} out of the comparison"
    return Action(f"remove_{at}", visible(name, 60), Link("", {"lab": comparison_text(others)}), about, icon="close")
