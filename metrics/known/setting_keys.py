"""The content of this folder's tables on one key of a trainer's settings: the lag that it allows, and remedies that name it."""

from dataclasses import dataclass
from math import isfinite, prod

from .faults import FaultSettings, at_key, numbers_at, remedies
from .tables import table


@dataclass(frozen=True)
class AllowedLag:
    """The largest lag that settings allow."""

    lag: int
    """In updates."""
    keys: tuple[str, ...]
    """Ends of the keys that it follows from."""


def allowed_lag(settings: FaultSettings, trainer: str | None) -> AllowedLag | None:
    """The largest lag that the settings of a trainer allow; None where they are not on record, or not known."""
    for bound in table("remedies")["_lag_allowed"].get(trainer or "", ()):
        values = [max(numbers_at(key, settings).values(), default=None) for key in bound["keys"]]
        known = [value for value in values if value is not None]
        if len(known) == len(values) and isfinite(updates := prod(known)):
            return AllowedLag(int(updates) + int(bound["plus"]), tuple(bound["keys"]))
    return None


def causes_of_key(key: str, trainer: str | None) -> tuple[str, ...]:
    """Codes of the causes whose remedies in this trainer name the key, a dotted one. Empty without a trainer."""
    own = [each for each in remedies() if each.trainer == trainer]
    return tuple(dict.fromkeys(each.code for each in own if any(at_key(end, {key: ""}) for end in each.names)))
