"""Faults that the settings of a run betray: those of the table of known faults, and the warnings of the trainer's dialect."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ratioscope.errors import RatioscopeError
from ratioscope.metrics.dialects import dialect
from ratioscope.metrics.known.faults import faults_in
from ratioscope.metrics.known.trainers import trainer_named

from .own_settings import own_settings
from .run_settings import settings


@dataclass(frozen=True)
class SettingFault:
    """A fault that settings on record betray."""

    code: str
    """Its name in JSON; "settings" for a warning of a dialect."""
    statement: str
    """The fault in one sentence."""
    do: str
    """The change that mends it; empty for a warning of a dialect, whose statement names it."""
    because: dict[str, str]
    """Key on record -> its value."""
    source: str
    """The place where it was read."""

    @property
    def words(self) -> str:
        """The statement, the settings that betray it, and the change, in one line."""
        because = ", ".join(f"{key.removeprefix('config.')} is {value}" for key, value in self.because.items())
        return " ".join(part for part in (self.statement, f"Found: {because}." if because else "", self.do) if part)


def setting_faults(info: Mapping[str, Any]) -> tuple[SettingFault, ...]:
    """The faults that the settings of a run betray. info: the content of run.json."""
    faults = faults_in(settings(info), trainer_named(info.get("trainer")))
    known = [
        SettingFault(each.fault.code, each.fault.statement, each.fault.do, dict(each.because), each.fault.source)
        for each in faults
    ]
    return (*known, *_warnings(info))


def _warnings(info: Mapping[str, Any]) -> tuple[SettingFault, ...]:
    own = own_settings(info)
    if own is None:
        return ()
    try:
        notes = dialect(own.dialect).parse(own.config).warnings
    except RatioscopeError as error:
        notes = (f"the trainer would reject these settings: {error}",)
    source = f"the settings of {own.dialect}, as its dialect reads them"
    return tuple(SettingFault("settings", f"{note[0].upper()}{note[1:]}.", "", {}, source) for note in map(str, notes))
