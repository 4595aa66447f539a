"""Settings of scheduled backups: a part of `Settings`."""

from __future__ import annotations

from pydantic import Field

from provisioner.model.base import Record


class BackupSettings(Record):
    """Backups that the daemon makes by itself. Of several daemons, one has a directory."""

    backup_directory: str = Field(
        "", description="Where the daemon backs its database up, on another disk; empty: nowhere."
    )
    backup_every_h: float = Field(
        24.0, ge=0.1, le=720, description="Hours between two scheduled backups."
    )
    backup_keep: int = Field(
        14, ge=1, le=1000, description="Scheduled backups that are kept; older ones are removed."
    )
