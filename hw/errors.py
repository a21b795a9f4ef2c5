"""The root of every error the project raises on purpose, so that a command line can print one line and stop.

Specialised errors live in the part that raises them and derive from `WordlineError`; an error that escapes as anything
else is a bug in the project.
"""

__all__ = ["ConfigurationError", "WordlineError"]


class WordlineError(Exception):
    """Something was wanted, something else came; the text says both and names the mend."""


class ConfigurationError(WordlineError, ValueError):
    """A hardware configuration, a setting or an argument is outside what the machine can be."""
