"""Resources of every kind, and a valid request for every route."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.fleet.api_client import ApiClient, ApiReply
from tests.support.fleet.http_client import ROOT, Body


class Family:
    """A resource of each kind. Each request gets its own, because it may delete them."""

    def __init__(self, fleet: ApiClient, number: int) -> None:
        self._fleet = fleet
        self._number = number
        self._ids = {plural: f"{plural}-{number}" for plural in ("clusters", "nodepools", "machines", "manifests")}

    async def create(self, *, token: str = "") -> None:
        for path, plural in (
            ("clusters", "clusters"),
            (f"clusters/{self._ids['clusters']}/nodepools", "nodepools"),
            (f"nodepools/{self._ids['nodepools']}/machines", "machines"),
            ("manifests", "manifests"),
        ):
            body = {"name": f"old-{self._number}", "id": self._ids[plural]}
            assert (await self._fleet.call("POST", path, body, token=token)).status == 201

    async def try_route(
        self, method: str, path: str, *, token: str = "", headers: Mapping[str, str] | None = None
    ) -> ApiReply:
        """Send a request that succeeds if the caller is permitted."""
        segments = path.removeprefix(f"{ROOT}/").split("/")
        kind = segments[2] if "{parent_id}" in segments else segments[0]
        where = path.replace("{parent_id}", self._ids.get(segments[0], "")).replace(
            "{id}", self._ids.get(kind, self._ids["clusters"])
        )
        return await self._fleet.call(method, where, self._body(method, path), token=token, headers=headers)

    def _body(self, method: str, path: str) -> Body | None:
        last = path.rsplit("/", 1)[1]
        if method in ("GET", "DELETE") or last in ("pulse", "pause", "resume"):
            return None
        if last == "statuses":
            return self._fleet.report("dns")
        if last == "force-delete":
            return {"reason": "r"}
        if method == "PATCH":
            return {}
        new: Body = {"name": f"new-{self._number}"}
        owner = {"nodepools": "clusters", "machines": "nodepools"}.get(last)
        if owner and "{parent_id}" not in path:
            new["owner_references"] = {"id": self._ids[owner]}
        return new
