"""Keeps the agent's token out of the agent's own log.

ironic-python-agent takes its token in the query string of each command, and logs each request's
path with the query (api/request_log.py, 13.0.0). A person with a shell on the ramdisk, or a caller
of `log.collect_system_logs`, could read it there.
"""

from __future__ import annotations

import logging
import re

_TOKEN = re.compile(r"(agent_token['\"]?\s*[=:]\s*['\"]?)[^\s&'\",}]+")
HIDDEN = r"\1***"


def redact(text: str) -> str:
    """Return the text without the value after `agent_token=` or `"agent_token": `."""
    return _TOKEN.sub(HIDDEN, text)


class _Factory:
    """Makes every log record of this process, and removes the token before a handler gets it."""

    def __init__(self, before: type[logging.LogRecord]) -> None:
        self.before = before

    def __call__(self, *args: object, **kwargs: object) -> logging.LogRecord:
        record = self.before(*args, **kwargs)  # type: ignore[arg-type]
        try:
            text = record.getMessage()
        except Exception:  # the handler reports a broken format
            return record
        clean = redact(text)
        if clean != text:
            record.msg, record.args = clean, ()
        return record


def install() -> None:
    """Install the factory for every logger of the process; a second call changes nothing."""
    before = logging.getLogRecordFactory()
    if not isinstance(before, _Factory):
        logging.setLogRecordFactory(_Factory(before))  # type: ignore[arg-type]
