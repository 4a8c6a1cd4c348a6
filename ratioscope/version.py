"""The version of ratioscope: the one place that states it."""

__version__ = "0.1.0"
