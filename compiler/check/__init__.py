"""The independent checker of finished images; what it proves and why that holds stands in `compiler.check.image`."""

from compiler.check.image import LIMIT, CheckError, Report, check

__all__ = ["LIMIT", "CheckError", "Report", "check"]
