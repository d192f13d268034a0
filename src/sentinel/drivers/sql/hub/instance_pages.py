"""Pages of instances.

A selector is a function over labels, so it reads the labels of all instances in the states that were asked for. It
decodes equal labels once: in most fleets, many instances have the same. Only the page itself is read whole.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping

from sentinel.drivers.sql.engine.statements import Session
from sentinel.drivers.sql.hub import rows, statements
from sentinel.ports.hub_store import InstancePage, InstanceQuery, InstanceRecord


def find(session: Session, query: InstanceQuery) -> InstancePage:
    states = frozenset(query.states)
    if query.matches is not None:
        return _select(session, query, query.matches)
    total = int(session.rows(statements.count(states))[0][0])
    # One more than asked for shows whether there are more.
    found = session.rows(statements.page(states), after=query.after, limit=query.limit + 1)
    page = [rows.to_instance(row) for row in found[: query.limit]]
    return InstancePage(page, total, is_last=len(found) <= query.limit)


def by_id(session: Session, instance_ids: Collection[str]) -> dict[str, InstanceRecord]:
    """Return the instances that exist."""
    found = session.rows(statements.INSTANCES_BY_ID, ids=rows.json_texts(instance_ids))
    return {row[0]: rows.to_instance(row) for row in found}


def _select(session: Session, query: InstanceQuery, matches: Callable[[Mapping[str, str]], bool]) -> InstancePage:
    decisions: dict[bytes, bool] = {}
    selected: list[str] = []
    for instance_id, labels in session.rows(statements.labels(frozenset(query.states))):
        decision = decisions.get(labels)
        if decision is None:
            decision = decisions[labels] = matches(rows.decode_labels(labels))
        if decision:
            selected.append(instance_id)
    start = bisect_right(selected, query.after)
    page = selected[start : start + query.limit]
    found = by_id(session, page)
    present = [found[each] for each in page if each in found]
    return InstancePage(present, len(selected), is_last=start + query.limit >= len(selected))
