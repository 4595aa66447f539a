"""One node as a test among nodes sees it. Names go into command lines: they are held to letters."""

from __future__ import annotations

from pydantic import Field

from provisioner.model.base import Record

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
_ADDRESS = r"^[A-Za-z0-9][A-Za-z0-9.:_-]{0,254}$"


class RailPort(Record):
    """One rail of a node: the RDMA device, its address in the maintenance VRF, the GPU beside."""

    rail: int = Field(ge=0, le=63)
    device: str = Field(pattern=_NAME)  # "mlx5_3"; what a host says is hostile
    address: str = Field(default="", pattern=rf"^$|{_ADDRESS}")
    gpu: int = Field(ge=0, le=63)


class Member(Record):
    """One node of a test."""

    node: str = Field(pattern=_NAME)
    address: str = Field(pattern=_ADDRESS)  # in-band, where its agent or SSH answers
    gpus: int = Field(default=8, ge=1, le=64)
    rails: tuple[RailPort, ...] = ()

    def port(self, rail: int) -> RailPort:
        """The port of one rail. KeyError: it has none."""
        for port in self.rails:
            if port.rail == rail:
                return port
        raise KeyError(f"{self.node} has no rail {rail}")
