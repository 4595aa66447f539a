"""Find the index of a port's RoCE v2 GID, in a shell and in the line that the shell prints.

The index depends on the order in which addresses came to the interface: on mlx5 the first IPv4
address has 3, an address that is set anew or an interface with IPv6 alone has another one. So it is
read from sysfs and never assumed. An InfiniBand port needs none.
source: Linux Documentation/ABI/stable/sysfs-class-infiniband, gid_attrs/types and gids.
"""

from __future__ import annotations

import re

NO_GID = "none"
INFINIBAND = "InfiniBand"
# $p: a folder such as /sys/class/infiniband/mlx5_0. $g: the index, "none" or "InfiniBand"; an IPv4
# address (in its IPv6 form) comes before a global IPv6 address, and link-local ones do not count
FIND_GID = (
    f"g={NO_GID}; if grep -qs {INFINIBAND} $p/ports/1/link_layer; then g={INFINIBAND};"
    " else for q in $(grep -ls 'RoCE v2' $p/ports/1/gid_attrs/types/* | sort -V);"
    " do q=${q##*/}; case $(cat $p/ports/1/gids/$q) in"
    " 0000:0000:0000:0000:0000:ffff:*) g=$q; break;; fe80:*) ;;"
    f' *) [ "$g" = {NO_GID} ] && g=$q;; esac; done; fi;'
)
_SHOWN = re.compile(rf"{NO_GID}|{INFINIBAND}|\d{{1,3}}")


def read_gid(shown: str) -> int | None:
    """Return the index that `FIND_GID` found; None: an InfiniBand port, which needs none.

    Raises ValueError where the port has no RoCE v2 GID, or the text is something else.
    """
    if not _SHOWN.fullmatch(shown) or shown == NO_GID:
        raise ValueError(f"no RoCE v2 GID: {shown[:16]!r}")
    return None if shown == INFINIBAND else int(shown)
