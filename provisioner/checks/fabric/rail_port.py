"""A node as a member of a test among nodes. Names are restricted, as they go into command lines."""

from __future__ import annotations

from pydantic import Field

from provisioner.model.base import Record

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
_ADDRESS = r"^[A-Za-z0-9][A-Za-z0-9.:_-]{0,254}$"


class RailPort(Record):
    """One rail of a node: the RDMA device, its address in the maintenance VRF, the nearest GPU."""

    rail: int = Field(ge=0, le=63)
    device: str = Field(pattern=_NAME)  # "mlx5_3"; text from a host is hostile
    address: str = Field(default="", pattern=rf"^$|{_ADDRESS}")
    gpu: int = Field(ge=0, le=63)
    gid: int | None = Field(None, ge=0, le=1023)  # of RoCE v2, as read; None: InfiniBand


class Member(Record):
    node: str = Field(pattern=_NAME)
    address: str = Field(pattern=_ADDRESS)  # in-band, where its agent or SSH answers
    gpus: int = Field(default=8, ge=1, le=64)
    rails: tuple[RailPort, ...] = ()

    def find_port(self, rail: int) -> RailPort:
        """Return the port of one rail. Raises KeyError where the node does not have that rail."""
        for port in self.rails:
            if port.rail == rail:
                return port
        raise KeyError(f"{self.node} has no rail {rail}")
