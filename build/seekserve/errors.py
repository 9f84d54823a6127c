"""Every error this toolkit raises on purpose.

    SeekserveError                      exit 1   (never raised itself)
    ├── InputError                      exit 2   what the user gave is wrong
    │   ├── ConfigError                 a file or flag holds a bad key or value
    │   ├── CheckpointError             the checkpoint is not what it should be
    │   ├── BundleError                 the bundle is damaged, foreign or of another schema
    │   ├── NotAccepted                 the service judged the request wrong (carries its code and field)
    │   └── MissingDependency           an optional part is not installed
    ├── ConflictError                   exit 3   each value is fine, together they are not
    │   ├── DoesNotFit                  an answer, not a crash: the numbers and the smallest thing that would fit
    │   ├── TargetExists                the target is taken by something this run did not make
    │   └── RenderError                 a template or its result is wrong
    ├── ToolFailed                      exit 4   a program that was run ended badly; the message has its own status
    └── ServerError                     exit 4   the server or the connection to it
        ├── StartFailed                 tritonserver or a model did not become ready
        ├── Refused                     the service refused or expired the request (carries the hint)
        ├── RequestFailed               the service accepted, then failed
        ├── TimedOut                    nothing arrived within the stated time
        └── ProtocolError               the answer is not in the agreed form

A message says what, where, the two numbers that disagree, and what to do next.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "BundleError",
    "CheckpointError",
    "ConfigError",
    "ConflictError",
    "DoesNotFit",
    "InputError",
    "MissingDependency",
    "NotAccepted",
    "ProtocolError",
    "Refused",
    "RenderError",
    "RequestFailed",
    "SeekserveError",
    "ServerError",
    "StartFailed",
    "TargetExists",
    "TimedOut",
    "ToolFailed",
]


class SeekserveError(Exception):
    """Base of the tree; `hint` is the next thing to do and is printed on a line of its own."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  hint: {self.hint}"


class InputError(SeekserveError):
    exit_code = 2


class ConfigError(InputError):
    pass


class CheckpointError(InputError):
    pass


class BundleError(InputError):
    pass


class NotAccepted(InputError):
    """The service judged the request itself wrong; sent unchanged it fails everywhere."""

    def __init__(self, message: str, *, code: str, reason: str, field: str | None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.reason = reason
        self.field = field


class MissingDependency(InputError):
    pass


class ConflictError(SeekserveError):
    exit_code = 3


class DoesNotFit(ConflictError):
    pass


class TargetExists(ConflictError):
    pass


class RenderError(ConflictError):
    pass


class ToolFailed(SeekserveError):
    """A child could not be started, ended badly, or left something else than it was asked for."""

    exit_code = 4


class ServerError(SeekserveError):
    exit_code = 4


class StartFailed(ServerError):
    pass


class Refused(ServerError):
    """The service said no. `retry_after_ms` is None when trying again can never help."""

    def __init__(
        self,
        message: str,
        *,
        code: str,
        reason: str,
        retry_after_ms: int | None,
        request_id: str,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.reason = reason
        self.retry_after_ms = retry_after_ms
        self.request_id = request_id


class RequestFailed(ServerError):
    """`code` and `reason` are the service's own words where it sent any; None for what only the transport says."""

    def __init__(
        self, message: str, *, code: str | None = None, reason: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.reason = reason


class TimedOut(ServerError):
    pass


class ProtocolError(ServerError):
    pass
