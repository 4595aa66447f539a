"""Names of GPU models, matched by whole tokens: "*H200*" is no GH200, and "*H20*" is no H200. Pure.

A model is printed inside longer names ("NVIDIA H100 80GB HBM3"), and the names of other machines
contain it, so that a plain glob takes a superchip for a baseboard.
"""

from __future__ import annotations

import re
from fnmatch import translate
from functools import lru_cache


def matches_token(glob: str, model: str) -> bool:
    """Return whether the glob, its outer "*" ending at edges of tokens, matches the model.

    At a leading "*" no letter or digit precedes the token; at a trailing one no digit follows it
    (MI300X is an MI300). Upper and lower case are the same.
    """
    return _pattern(glob).fullmatch(model.lower()) is not None


@lru_cache(maxsize=1024)  # as many as a matrix has profiles; far below
def _pattern(glob: str) -> re.Pattern[str]:
    token = glob.lower().strip("*")
    before = ".*(?<![a-z0-9])" if token[:1].isalnum() else ".*"
    after = "(?![0-9]).*" if token[-1:].isalnum() else ".*"
    before = before if glob.startswith("*") else ""
    after = after if glob.endswith("*") else ""
    return re.compile(before + translate(token).removesuffix(r"\Z") + after, re.DOTALL)
