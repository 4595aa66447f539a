"""The version of a drive: its model and the firmware that runs, as one text.

Firmware of one model does not run on another, so the matrix pins "MODEL@FIRMWARE" for each model,
and an edge leads from a firmware to another of the same model.
"""

from __future__ import annotations

import re

NVME_FIRMWARE = "drive.nvme"  # the component kind
# NVM Express Base Specification, Identify Controller: MN has 40 characters and FR has 8
_MODEL_MAX = 40
_FIRMWARE = re.compile(r"[!-?A-~]{1,8}")  # printable, without the separator
_MODEL = re.compile(r"[!-?A-~]+( [!-?A-~]+)*")


def join_version(model: str, firmware: str) -> str | None:
    """Return the version of a drive as the matrix writes it; None if a part has no such form.

    Drives pad both fields with blanks.
    """
    model = " ".join(model.split())
    firmware = firmware.strip()
    if len(model) > _MODEL_MAX or not _MODEL.fullmatch(model) or not _FIRMWARE.fullmatch(firmware):
        return None
    return f"{model}@{firmware}"


def split_version(version: str) -> tuple[str, str]:
    """Return (model, firmware); ("", "") for a text of another form."""
    model, _, firmware = version.partition("@")
    return (model, firmware) if join_version(model, firmware) == version else ("", "")


def have_same_model(first: str, second: str) -> bool:
    """Return whether both versions are of drives of one model."""
    model = split_version(first)[0]
    return model != "" and model == split_version(second)[0]
