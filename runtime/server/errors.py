"""Errors in the form that OpenAI's clients understand."""

from typing import Any

from hw.errors import WordlineError
from runtime.engine import EngineError, EngineStopped, PromptError, QueueFull, TimeLimit

__all__ = ["ApiError", "as_api_error"]

TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
         405: "invalid_request_error", 408: "timeout_error", 409: "conflict_error", 413: "invalid_request_error",
         415: "invalid_request_error", 429: "rate_limit_error", 500: "server_error", 503: "service_unavailable_error",
         504: "timeout_error"}


class ApiError(Exception):
    """An answer other than what was asked for.

    Parameters
    ----------
    status : int
        HTTP status.
    message : str
        What was wanted, what came, and the mend.
    param, code : str or None
        The field at fault; a word for programs.
    headers : dict
        Headers to send along.
    """

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None,
                 headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = headers or {}

    def body(self) -> dict[str, Any]:
        """The answer's body."""
        return {"error": {"message": self.message, "type": TYPES[self.status], "param": self.param, "code": self.code}}


def as_api_error(error: WordlineError) -> ApiError:
    """An error of the engine, or of whatever it was given, as an answer."""
    message = str(error)
    match error:
        case PromptError():
            return ApiError(400, message, code="invalid_prompt")
        case QueueFull():
            return ApiError(429, message, code="queue_full", headers={"retry-after": "1"})
        case TimeLimit():
            return ApiError(504, message, code="time_limit")
        case EngineStopped():
            return ApiError(503, message, code="unavailable", headers={"retry-after": "1"})
        case EngineError():
            return ApiError(500, message, code="device_error")
    return ApiError(400, message)
