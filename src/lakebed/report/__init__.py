"""A lake on one page: what it holds, what happened, what somebody may want to mend."""

from lakebed.report.build import write_report as write_report

__all__ = ["write_report"]
