"""The base of every error that a user can cause, so that one place turns them into a line and exit code 2."""

__all__ = ["WordlineError"]


class WordlineError(Exception):
    """What was wanted, what came, and the mend, in one line."""
