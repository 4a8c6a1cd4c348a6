"""Calls whose arguments the method does not have. Python would raise TypeError into the training before any of our code runs."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class CountsFailures(Protocol):
    """An object that counts a failure, and raises it if it is strict."""

    def failed(self, what: str, error: Exception) -> None:
        """See Collector.failed."""
        ...


S = TypeVar("S", bound=CountsFailures)


def keeps_unfit_calls(
    instead: Callable[[], R],
) -> Callable[[Callable[Concatenate[S, P], R]], Callable[Concatenate[S, P], R]]:
    """The method takes any arguments: one that it has no name for is left out and counted as a failure, and the rest is taken.

    A call that then still does not fit, because an argument is missing or stands without its name, is counted, and the
    result of `instead` is returned. TypeErrors from within the method are the method's own business.

    A RecursionError ends here, too: if the trainer calls with a few frames left, the method has none for its own answer to it.
    """

    def kept(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
        @wraps(method)
        def called(self: S, *given: P.args, **named: P.kwargs) -> R:
            try:
                return fitted(self, *given, **named)
            except RecursionError as error:
                try:
                    self.failed(method.__name__, error)
                except RecursionError as again:
                    if again is error:
                        raise  # of a strict collector; any other means that too few frames are left even to count it
                return instead()

        def fitted(self: S, *given: P.args, **named: P.kwargs) -> R:
            try:
                return method(self, *given, **named)
            except TypeError as error:
                if not _is_of_the_call(error):
                    raise
                self.failed(f"arguments of {method.__name__}", TypeError(str(error)))
            fitting = inspect.signature(method)
            known: dict[str, Any] = {name: value for name, value in named.items() if name in fitting.parameters}
            try:
                fitting.bind(self, *given, **known)
            except TypeError:
                return instead()
            return method(self, *given, **known)

        return called  # type: ignore[return-value]  # mypy gives what is wrapped a named self

    return kept


def _is_of_the_call(error: TypeError) -> bool:
    """True if the error was raised by the call itself, before the first line of the method."""
    trace = error.__traceback__
    return trace is not None and trace.tb_next is None
