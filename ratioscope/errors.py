"""Every error ratioscope raises on purpose. A message says what was found, what was wanted, and what to do next.

RatioscopeError(ValueError)
├── SchemaError      a column: absent, of the wrong type, of the wrong length
├── SourceError      a path: not a run, half-written, of a newer schema, unreadable
│   ├── Unread       the store failed while a file or folder was read
│   └── UnsafeFile   another program's file that names code, or decodes to too much
├── FieldError       one field of another program's dump
├── ConfigError      the settings of a correction or a dialect
└── MissingExtra     an optional dependency is not installed
"""

UPGRADE = "to upgrade it, in its checkout: git pull && pip install ."
"""The command that installs a newer ratioscope, which no index has."""


class RatioscopeError(ValueError):
    """The parent of all errors here; a command line shows its message in one line and nothing else."""


class SchemaError(RatioscopeError):
    """A column is absent, of the wrong type, or of the wrong length."""


class SourceError(RatioscopeError):
    """A path is not what it should be."""


class Unread(SourceError):
    """The store failed while a file or folder was read. That says nothing about its content: it is read again later."""


def not_writable(path: object, error: OSError) -> SourceError:
    """The error of a run folder that the system does not let us write."""
    return SourceError(f"{path} cannot be written: {error.strerror or error}; wanted a run folder that you may write")


class UnsafeFile(SourceError):
    """Another program's file names code, contradicts itself, or would decode to more than it may. Nothing of it was run."""


class FieldError(RatioscopeError):
    """A field of another program's dump cannot be read."""


class ConfigError(RatioscopeError):
    """A correction's or dialect's settings are not allowed."""


class MissingExtra(RatioscopeError):
    """An optional dependency is not installed; the message holds the command that installs it.

    pip finds ratioscope itself installed, and asks an index only for what the extra names.
    """

    def __init__(self, purpose: str, extra: str) -> None:
        super().__init__(
            f"{purpose} needs the extra '{extra}', which is not installed: pip install 'ratioscope[{extra}]'"
        )
