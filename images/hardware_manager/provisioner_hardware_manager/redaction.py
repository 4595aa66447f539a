"""Keeps the agent's token out of its own log.

ironic-python-agent takes its token in the query string of each command, and writes each request's
path with the query into its log (api/request_log.py, 13.0.0), which anyone with a shell on the
ramdisk, or `log.collect_system_logs`, can read.
"""

from __future__ import annotations

import logging
import re

_TOKEN = re.compile(r"(agent_token['\"]?\s*[=:]\s*['\"]?)[^\s&'\",}]+")
HIDDEN = r"\1***"


def redacted(text: str) -> str:
    """The text without what follows `agent_token=` or `"agent_token": `."""
    return _TOKEN.sub(HIDDEN, text)


class _Factory:
    """Makes every log record of this process, and takes the token out before a handler sees it."""

    def __init__(self, before: type[logging.LogRecord]) -> None:
        self.before = before

    def __call__(self, *args: object, **kwargs: object) -> logging.LogRecord:
        record = self.before(*args, **kwargs)  # type: ignore[arg-type]
        try:
            text = record.getMessage()
        except Exception:  # a broken format is the handler's to report
            return record
        clean = redacted(text)
        if clean != text:
            record.msg, record.args = clean, ()
        return record


def install() -> None:
    """From now on, for every logger of the process; a second call changes nothing."""
    before = logging.getLogRecordFactory()
    if not isinstance(before, _Factory):
        logging.setLogRecordFactory(_Factory(before))  # type: ignore[arg-type]
