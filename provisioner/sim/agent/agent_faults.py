"""Named faults of maintenance agents: name, number in the catalogue, meaning."""

from __future__ import annotations

ALL = (
    ("agent_silent", "M1", "the ramdisk boots, its agent never calls"),
    ("agent_wrong_mac", "M2", "the agent looks itself up by an address of no node"),
    ("agent_wrong_token", "M3", "the agent calls with a token that it was not given"),
    ("agent_dies", "M4", "the agent dies in the middle of its next command"),
    ("erase_fails", "M5", "a disk fails every erasure"),
    ("erase_unsupported", "M6", "a disk offers no erasure"),
    ("image_digest_wrong", "M7", "an image arrives with a byte too much"),
    ("image_truncated", "M8", "an image arrives without its last byte"),
    ("disk_unseen", "M9", "the host does not see its last disk, which its BMC lists"),
    ("disks_change", "M10", "every look of the agent shows another first disk"),
    ("sanitize_fails", "M11", "a disk fails to sanitize, and can be formatted"),
    ("read_back_wrong", "M12", "a disk gives other bytes than were written to it"),
    ("boot_entry_refused", "M14", "the firmware accepts no boot entry for the written disk"),
    ("root_on_other_disk", "M15", "the written system runs from another disk than it is on"),
    ("owner_key_enrolled", "M16", "shim trusts a key that a tenant enrolled"),
    ("steps_garbled", "M13", "the agent's answers about disks are nonsense"),
)
