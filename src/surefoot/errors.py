"""The exceptions of surefoot. Each type has the exit code that the command line returns for it."""

from __future__ import annotations

__all__ = ["BadInput", "MissingDependency", "RankLost", "RunLocked", "StorageFault", "SurefootError"]


class SurefootError(Exception):
    """Base class of the errors that surefoot raises on purpose; the text is one sentence for a person.

    Attributes:
        exit_code: Exit code of the command line.
    """

    exit_code = 1


class BadInput(SurefootError, ValueError):
    """An argument, a file or an option is not valid; the text names it, its value and the remedy."""

    exit_code = 2


class RunLocked(BadInput):
    """Another process trains the run; a later attempt may succeed."""


class RankLost(SurefootError):
    """Another rank of the same training died, stopped responding or failed, so that no rank can continue."""


class MissingDependency(SurefootError, ImportError):
    """An optional package is not installed; the text names the extra that installs the package."""

    exit_code = 2


class StorageFault(SurefootError, OSError):
    """The disk refused a write; no partial file is left under the final name."""

    exit_code = 4
