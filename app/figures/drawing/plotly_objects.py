"""The objects of plotly. A stand-in takes their place if it is not installed: pages are read then, and nothing is drawn."""

from typing import TYPE_CHECKING, Any

from ratioscope.errors import MissingExtra

if TYPE_CHECKING:
    import plotly.graph_objects as go
else:
    try:
        import plotly.graph_objects as go
    except ImportError:

        class _Missing:
            """Any member of plotly: an annotation may name it, and a call says what to install."""

            def __getattr__(self, name: str) -> "_Missing":
                return self

            def __or__(self, other: object) -> "_Missing":
                return self

            __ror__ = __or__

            def __call__(self, *_: Any, **__: Any) -> None:  # Any: plotly's own arguments
                raise MissingExtra("a chart", "dashboard")

        go = _Missing()

__all__ = ["go"]
