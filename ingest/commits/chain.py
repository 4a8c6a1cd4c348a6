"""Whether the lines of a commit log are those that its writer wrote, in order: each has a number and a digest of all before it.

A digest is no signature: who rewrites a log from some line to its end leaves no trace there. Lines that are lost at the end look
like those of a writer that was killed.
"""

from dataclasses import dataclass, field

from ratioscope.layout import chain_of, chained_line, decode_line, follows

_MOST_TOLD = 3


@dataclass(frozen=True)
class Link:
    """The number that the next line has, and the digest of the line before it; None: unknown. is_numbered None: no line yet."""

    number: int = 0
    chain: str | None = ""
    is_numbered: bool | None = None


UNNUMBERED = Link(0, None, False)
"""Anywhere in a log of before there were numbers."""


@dataclass
class Chain:
    """link: how far it reaches; breaks: how often it broke; told: the first of them in words."""

    link: Link = Link()
    breaks: int = 0
    told: list[str] = field(default_factory=list)

    def take(self, line: bytes) -> None:
        """The next line of the log, without its newline. One that is altered is told of elsewhere: the next goes on from it."""
        if not line:
            return
        link = self.link
        if link.chain is not None and (own := follows(line, link.chain)) is not None:
            self.link = Link(link.number + 1, own, True)
        elif (own := chain_of(line)) is None and link.is_numbered is False:
            return
        elif (entry := decode_line(line)) is None:
            self.link = Link(link.number + 1, None, link.is_numbered)
        elif own is not None:
            self._take_other(entry, own)
        elif link.is_numbered is None and not link.number:
            self.link = UNNUMBERED
        else:
            self._break(f"a line without a number stands before line {link.number}")

    def _take_other(self, entry: dict[str, object], own: str) -> None:
        """A sound line that is not, byte for byte, the next one."""
        wanted, number = self.link.number, entry.get("line")
        if self.link.is_numbered is False:
            self._break("lines without a number stand before those that have one")
        elif type(number) is not int or number < 0:
            self._break(f"line {wanted} has no number")
        elif number > wanted:
            self._break(
                f"line {wanted} is missing" if number == wanted + 1 else f"lines {wanted} to {number - 1} are missing"
            )
        elif number < wanted:
            self._break(f"line {number} stands again, or moved, where line {wanted} should")
        elif self.link.chain is not None and _rewritten(entry, self.link.chain) != own:
            self._break(f"line {number} is not the one that was written there")
        self.link = Link(number + 1 if type(number) is int else wanted + 1, own, True)

    def _break(self, told: str) -> None:
        self.breaks += 1
        if self.breaks <= _MOST_TOLD:
            self.told.append(told)

    @property
    def said(self) -> str:
        """All of it in words."""
        more = self.breaks - len(self.told)
        return "; ".join([*self.told, *([f"{more} more like these"] if more > 0 else [])])


def _rewritten(entry: dict[str, object], before: str) -> str:
    """The digest that the entry would have after this one, in whatever form its line was written."""
    own = {name: value for name, value in entry.items() if name not in ("line", "chain")}
    number = entry["line"]
    assert isinstance(number, int)
    return chained_line(own, number, before)[1]
