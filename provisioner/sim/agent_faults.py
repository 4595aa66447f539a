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
)
