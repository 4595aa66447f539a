"""Rows of what nodes measured, and of what their fleet taught."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, delete, func, insert, select

from provisioner.model.cohort import Baseline, Sample
from provisioner.store.rows.damage import parse_each
from provisioner.store.schema.schema import baselines, samples

# made once: each node that waits for a tenant asks
_MARK = select(func.count(), func.sum(samples.c.taken_at)).where(
    samples.c.profile == bindparam("of"), samples.c.versions == bindparam("running")
)


def put_sample(connection: Connection, sample: Sample) -> None:
    """Store the newest sample of a node for its set of versions in place of the former one."""
    same = (samples.c.node == sample.node) & (samples.c.versions == sample.versions)
    connection.execute(delete(samples).where(same))
    connection.execute(
        insert(samples).values(
            node=sample.node,
            profile=sample.profile,
            versions=sample.versions,
            body=sample.model_dump_json(),
            taken_at=sample.taken_at,
        )
    )


def read_samples(
    connection: Connection, profile: str, versions: str | None, limit: int
) -> tuple[Sample, ...]:
    """Return the newest samples of a profile, of one set of versions or of all."""
    query = select(samples.c.node, samples.c.body).where(samples.c.profile == profile)
    if versions is not None:
        query = query.where(samples.c.versions == versions)
    query = query.order_by(samples.c.taken_at.desc(), samples.c.node).limit(limit)
    rows = connection.execute(query)
    return parse_each(connection, Sample, "samples", ((r.node, "", r.body) for r in rows))


def read_mark(connection: Connection, profile: str, versions: str) -> tuple[int, float]:
    """Return how many samples of a set of versions there are, and the sum of when they were taken.

    Not the newest time: by another daemon's clock, a sample may be replaced by one that is not.
    """
    row = connection.execute(_MARK, {"of": profile, "running": versions}).one()
    return int(row[0]), float(row[1] or 0.0)


def put_baseline(connection: Connection, baseline: Baseline) -> None:
    """Store the learned baseline of a metric in place of the former one."""
    same = (baselines.c.profile == baseline.profile) & (baselines.c.metric == baseline.metric)
    connection.execute(delete(baselines).where(same))
    connection.execute(
        insert(baselines).values(
            profile=baseline.profile,
            metric=baseline.metric,
            body=baseline.model_dump_json(),
            learned_at=baseline.learned_at,
        )
    )


def read_baselines(connection: Connection, profile: str) -> tuple[Baseline, ...]:
    """Return the baselines of a profile; "" is every profile's."""
    query = select(baselines).order_by(baselines.c.profile, baselines.c.metric)
    if profile:
        query = query.where(baselines.c.profile == profile)
    rows = connection.execute(query)
    listed = ((f"{r.profile}, {r.metric}", "", r.body) for r in rows)
    return parse_each(connection, Baseline, "baselines", listed)
