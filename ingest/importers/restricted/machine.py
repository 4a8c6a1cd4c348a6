"""Machine: the state of a pickle that is carried out with inert stand-ins for whatever it names. Nothing is imported.

Every value is charged to the budget before it is made.
"""

from collections.abc import Callable
from typing import Any

from ratioscope.errors import UnsafeFile

from .budget import OBJECT_BYTES, Allowance
from .inert import InertName
from .names import InertNames


class Machine:
    """The state of a pickle that is being carried out."""

    def __init__(
        self, data: memoryview, at: int, names: InertNames, budget: Allowance, persistent: Callable[[Any], Any] | None
    ) -> None:
        self.data, self.at, self.budget = data, at, budget
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self._names, self._persistent = names, persistent

    def push(self, value: Any) -> None:
        """Puts a value on the stack and charges the place of an object."""
        self.budget.spend(OBJECT_BYTES)
        self.stack.append(value)

    def pop(self) -> Any:
        """Takes the topmost value; UnsafeFile where a mark or nothing is there."""
        if not self.stack or (self.marks and self.marks[-1] == len(self.stack)):
            raise UnsafeFile("its pickle takes a value where there is none")
        return self.stack.pop()

    def top(self) -> Any:
        """The topmost value, which stays."""
        if not self.stack or (self.marks and self.marks[-1] == len(self.stack)):
            raise UnsafeFile("its pickle takes a value where there is none")
        return self.stack[-1]

    def since_mark(self) -> list[Any]:
        """Takes the values since the last mark."""
        if not self.marks:
            raise UnsafeFile("its pickle goes back to a mark that it never set")
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def take(self, count: int) -> bytes:
        """The next bytes of the file."""
        if count > len(self.data) - self.at:
            raise UnsafeFile(f"it states {count} bytes and has {len(self.data) - self.at} left")
        taken = bytes(self.data[self.at : self.at + count])
        self.at += count
        return taken

    def counted(self, width: int) -> bytes:
        """Bytes whose number stands before them, in `width` bytes. Charged before they are copied."""
        count = int.from_bytes(self.take(width), "little")
        if count > len(self.data) - self.at:
            raise UnsafeFile(f"it states {count} bytes and has {len(self.data) - self.at} left")
        self.budget.spend(2 * count)
        return self.take(count)

    def line(self) -> bytes:
        """The bytes up to the next line feed, at most 4096."""
        line = bytes(self.data[self.at : self.at + 4096]).partition(b"\n")
        if not line[1]:
            raise UnsafeFile("it holds a line that does not end")
        self.at += len(line[0]) + 1
        return line[0]

    def remember(self, index: int) -> None:
        """Puts the topmost value into the memo. The memo takes no more memory for a large index."""
        self.budget.spend(OBJECT_BYTES)
        self.memo[index] = self.top()

    def recall(self, index: int) -> None:
        """Pushes a value of the memo."""
        if index not in self.memo:
            raise UnsafeFile(f"it recalls value {index}, which it never remembered")
        self.push(self.memo[index])

    def named(self, module: str, name: str) -> InertName:
        """The stand-in of a name. UnsafeFile for a name that is not among those that the file may mention."""
        path = f"{module}.{name}"
        if path not in self._names:
            shown = path[:120].encode("ascii", "backslashreplace").decode()
            raise UnsafeFile(f"it names {shown}, which is not among the names that this kind of file may mention")
        return self._names[path]

    def persistent(self, key: Any) -> Any:
        """The value that a persistent id stands for."""
        if self._persistent is None:
            raise UnsafeFile("it refers to something outside of itself (a persistent id)")
        return self._persistent(key)
