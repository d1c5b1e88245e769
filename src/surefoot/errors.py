"""What can go wrong, as types. The exit code of the command line is part of the type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surefoot.deprecated import renamed_names

__all__ = ["BadInput", "MissingDependency", "RankLost", "RunLocked", "StorageFault", "SurefootError"]


class SurefootError(Exception):
    """Base of every error that surefoot raises on purpose; its text is one sentence for a person."""

    exit_code = 1


class BadInput(SurefootError, ValueError):
    """An argument, file or option is not what it must be; the text names it, its value and the remedy."""

    exit_code = 2


class RunLocked(BadInput):
    """Another process is at work on the run; it may be looked at again later."""


class RankLost(SurefootError):
    """Another process of the same training died, fell silent or refused its part; none can go on without it."""


class MissingDependency(SurefootError, ImportError):
    """An optional package is needed; the text names the extra that brings it."""

    exit_code = 2


class StorageFault(SurefootError, OSError):
    """The disk refused a write; nothing half-written is left under the final name."""

    exit_code = 4


if not TYPE_CHECKING:  # a module's __getattr__ would hide wrong names from type checkers
    __getattr__ = renamed_names(__name__)
