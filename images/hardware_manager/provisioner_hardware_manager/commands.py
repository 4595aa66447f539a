"""Runs the tools in the ramdisk, never through a shell, with limits on time and output.

A tool that is missing, hangs or fails is a value here, so that one broken disk never hides the
others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ironic_python_agent import utils
from oslo_concurrency import processutils

# characters kept of a tool's output; `lsblk` of 128 disks needs some 40,000
OUTPUT_MAX = 1 << 20
WORDS_MAX = 300  # characters of an error that go into an answer


@dataclass(frozen=True)
class Output:
    """How a tool ended. `status` None: it did not start, or did not end within its limit."""

    status: int | None
    text: str
    error: str = ""

    @property
    def ok(self) -> bool:
        return self.status == 0


Run = Callable[..., Output]  # run(*arguments, timeout_s=...); tests pass their own


def run(*arguments: str, timeout_s: float = 60.0) -> Output:
    """Run a tool with the C locale. Raises nothing.

    Bytes that are not text survive as surrogates (`encode_raw` restores them).
    """
    try:
        text, error = utils.execute(
            *arguments,
            use_standard_locale=True,
            log_stdout=False,
            timeout=timeout_s,
        )
    except processutils.ProcessExecutionError as failure:
        status = failure.exit_code if isinstance(failure.exit_code, int) else None
        return Output(status, str(failure.stdout or "")[:OUTPUT_MAX], shorten(failure.stderr))
    except (OSError, ValueError) as failure:
        return Output(None, "", shorten(failure))
    except Exception as failure:  # a timeout has several types in oslo's versions
        return Output(None, "", shorten(failure) or "it did not end in time")
    return Output(0, str(text or "")[:OUTPUT_MAX], shorten(error))


def shorten(thing: object) -> str:
    """Return one printable line of at most WORDS_MAX characters."""
    line = " ".join(str(thing or "").split())
    return "".join(c if c.isprintable() else "?" for c in line)[:WORDS_MAX]


def encode_raw(text: str) -> bytes:
    """Return the bytes that a tool wrote, from text that was decoded with surrogates."""
    return text.encode("utf-8", "surrogateescape")
