"""The store of campaigns, their nodes, release pins, and notices to tenants."""

from __future__ import annotations
