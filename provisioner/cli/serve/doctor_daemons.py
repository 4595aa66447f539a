"""Compares the daemons that share a database, for `provisioner doctor`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from provisioner.model.input_error import InputError
from provisioner.planning.intake import examination as judge
from provisioner.planning.intake.examination import Examined
from provisioner.planning.watch.membership import Joined, find_differences
from provisioner.store.database.postgres import extra_missing, is_postgres, postgres_url, shown

AREA = "daemons"


def examine_daemons(database: str, digests: Mapping[str, str]) -> tuple[Examined, ...]:
    """Compare living daemons with one another, and with these options; () for a file."""
    if not is_postgres(database):
        return ()
    where = shown(postgres_url(database))
    try:
        import psycopg

        from provisioner.store.database.seat import read_members
    except ModuleNotFoundError as missing:
        raise extra_missing(where, str(missing.name)) from None
    try:
        members = read_members(database)
    except (psycopg.Error, InputError) as error:
        remedy = "Check its address, the user's rights, and that its schema is this version's."
        return (judge.report_bad(AREA, where, " ".join(str(error).split()), remedy),)
    if not members:
        return (judge.report_good(AREA, where, "no daemon runs"),)
    return _compared(members[-1], members, digests)


def _compared(
    newest: Joined, members: Sequence[Joined], digests: Mapping[str, str]
) -> tuple[Examined, ...]:
    findings = []
    for member in members:
        apart = find_differences(newest, member)
        if apart:
            detail = f"works by another {', '.join(apart)} than {newest.id}, which joined last"
            remedy = "Give it the same version, matrix, overlays and settings; restart it."
            findings.append(judge.report_bad(AREA, member.id, detail, remedy))
        else:
            findings.append(judge.report_good(AREA, member.id, "works by the same as all"))
    options = Joined(id="", digests={k: v for k, v in digests.items() if k in newest.digests})
    mine = [p for p in options.digests if newest.digests[p] != options.digests[p]]
    if mine:
        detail = f"{', '.join(mine)} as given here differ from what the daemons work by"
        remedy = "Give `doctor` the same --matrix and --settings as `serve`."
        findings.append(judge.report_warning(AREA, "these options", detail, remedy))
    return tuple(findings)
