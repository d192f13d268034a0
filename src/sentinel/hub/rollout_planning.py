"""What a deployment would do, and what keeps it from being started."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from sentinel.core.hub import deployment, deployment_plan
from sentinel.core.hub.deployment import InstanceFacts, Request, TargetVersion
from sentinel.core.hub.deployment_plan import Plan
from sentinel.core.hub.versions import VersionName
from sentinel.hub import version_problems
from sentinel.hub.checking import ConfigChecker
from sentinel.hub.rollout_step import facts_of
from sentinel.hub.version_problems import VersionProblems
from sentinel.ports.hub_store import ConfigVersion, HubStore, InstanceQuery, InstanceRecord
from sentinel.web.errors import Invalid, NotFound
from sentinel.web.problem import FieldError, shown

_PAGE: Final = 1_000
_MAX_COMPARED: Final = 10
"""How many versions that instances run now are compared with the new one."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A plan, and the version that it is for."""

    plan: Plan
    version: ConfigVersion
    version_problems: VersionProblems

    @property
    def to(self) -> TargetVersion:
        version = self.version
        return TargetVersion(VersionName(version.config_id, version.version), version.hash)


class RolloutPlanning:
    """Plans deployments. Every method may raise `Unavailable`."""

    def __init__(self, *, store: HubStore, checker: ConfigChecker) -> None:
        self._store = store
        self._checker = checker

    async def draft(self, request: Request) -> Draft:
        """Plan a request. Raises `Invalid`, `NotFound`."""
        wrong = deployment.problems(request)
        if wrong:
            raise Invalid(tuple(FieldError(each.field, each.message) for each in wrong))
        version = await self._store.version(VersionName(request.config_id, request.version))
        if version is None:
            raise NotFound(f"there is no version {shown(f'{request.config_id}@{request.version}')}")
        plan = deployment_plan.plan(request, await self._facts(request))
        problems = await version_problems.find(self._checker, version)
        return Draft(plan=plan, version=version, version_problems=problems)

    async def compare(self, draft: Draft) -> tuple[str, bool]:
        """Return the difference to what most instances are assigned now, and whether any has to restart."""
        targets = [facts for batch in draft.plan.batches for facts in batch]
        assigned = Counter(None if facts.assigned is None else facts.assigned.name for facts in targets)
        diff, restart_required = "", False
        for index, (name, _) in enumerate(assigned.most_common(_MAX_COMPARED)):
            before = None if name is None else await self._store.version(name)
            found = await self._checker.compare(
                "" if before is None else before.content,
                draft.version.content,
                before_name="/dev/null" if name is None else str(name),
                after_name=str(draft.to.name),
            )
            diff = found.diff if index == 0 else diff
            # The hub does not know what an instance without an assignment runs.
            restart_required = restart_required or (before is not None and found.restart_required)
        return diff, restart_required

    async def facts_by_id(self, instance_ids: Iterable[str]) -> Sequence[InstanceFacts]:
        """Return what is known about these instances. Those that do not exist are left out."""
        ids, found = [*instance_ids], []
        for start in range(0, len(ids), _PAGE):
            records = await self._store.instances_by_id(ids[start : start + _PAGE])
            found += [facts_of(each) for each in records.values()]
        return found

    async def _facts(self, request: Request) -> Sequence[InstanceFacts]:
        selector = request.targets.selector
        if selector is None:
            return await self.facts_by_id(request.targets.ids)
        found: list[InstanceRecord] = []
        while True:
            after = found[-1].id if found else ""
            page = await self._store.instances(InstanceQuery(after=after, limit=_PAGE, matches=selector.matches))
            found += page.instances
            if page.is_last:
                return [facts_of(each) for each in found]
