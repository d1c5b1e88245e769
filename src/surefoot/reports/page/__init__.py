"""The report page: one HTML file that shows what happened in the runs of a folder. No torch."""

from surefoot.reports.page.html import build, embedded, policy, report
from surefoot.reports.page.payload import PayloadCache, payload

__all__ = ["PayloadCache", "build", "embedded", "payload", "policy", "report"]
