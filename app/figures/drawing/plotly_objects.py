"""The objects of plotly, which is imported when the first is made: pages are read without it, as Markdown and JSON."""

from functools import reduce
from typing import TYPE_CHECKING, Any

from ratioscope.errors import MissingExtra

if TYPE_CHECKING:
    import plotly.graph_objects as go
else:

    class _Member:
        """A member of plotly: an annotation may name it, and a call makes the object."""

        def __init__(self, *names: str) -> None:
            self._names = names

        def __getattr__(self, name: str) -> "_Member":
            return _Member(*self._names, name)

        def __or__(self, other: object) -> "_Member":
            return self

        __ror__ = __or__

        def __call__(self, *given: Any, **options: Any) -> Any:  # Any: plotly's own arguments
            try:
                import plotly.graph_objects
            except ImportError:
                raise MissingExtra("a chart", "dashboard") from None
            return reduce(getattr, self._names, plotly.graph_objects)(*given, **options)

    go = _Member()

__all__ = ["go"]
