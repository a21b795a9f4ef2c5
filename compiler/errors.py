"""Errors of the compiler: what a user's model file, request or device configuration can get wrong.

Every text says what was wanted, what came and the mend, in one line.
"""

from hw.errors import WordlineError

__all__ = ["ModelFileError", "PlacementError"]


class ModelFileError(WordlineError, ValueError):
    """A model file is damaged, foreign, or describes a computation that is not supported."""


class PlacementError(WordlineError):
    """A model that does not fit the device: names the tensor or buffer, the shortfall and a setting that holds it."""
