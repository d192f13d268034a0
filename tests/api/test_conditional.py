"""Conditional requests: `If-Match` and `If-None-Match`."""

from __future__ import annotations

import pytest

from tests.support.fleet.api_client import ApiClient, ApiReply


async def patch(fleet: ApiClient, condition: str, **spec: object) -> ApiReply:
    return await fleet.call("PATCH", "clusters/one", {"spec": spec}, headers={"If-Match": condition})


async def get(fleet: ApiClient, condition: str, path: str = "clusters/one") -> ApiReply:
    return await fleet.call("GET", path, headers={"If-None-Match": condition})


@pytest.fixture
async def etag(fleet: ApiClient) -> str:
    """The ETag of the new cluster `one`."""
    return (await fleet.call("POST", "clusters", {"name": "one", "id": "one"})).etag


async def test_every_write_changes_the_etag_and_reading_does_not(fleet: ApiClient, etag: str) -> None:
    seen = [etag]
    for method, path, body in (
        ("PATCH", "clusters/one", {"spec": {"a": 1}}),
        ("POST", "clusters/one/pause", None),
        ("POST", "clusters/one/statuses", fleet.report("dns", generation=2)),
        ("DELETE", "clusters/one", None),
    ):
        await fleet.call(method, path, body)
        seen.append((await fleet.call("GET", "clusters/one")).etag)
        assert (await fleet.call("GET", "resources/one")).etag == seen[-1]

    assert len(set(seen)) == 5


async def test_a_write_with_the_current_etag_succeeds(fleet: ApiClient, etag: str) -> None:
    reply = await patch(fleet, etag, a=1)

    assert (reply.status, reply.json["generation"]) == (200, 2)
    assert reply.etag != etag


async def test_a_write_with_an_outdated_etag_is_rejected(fleet: ApiClient, etag: str) -> None:
    await patch(fleet, etag, a=1)

    (await patch(fleet, etag, b=1)).assert_problem(412, code="HYPERFLEET-CNF-002")
    assert (await fleet.get("clusters/one"))["spec"] == {"a": 1}


async def test_a_report_changes_the_etag(fleet: ApiClient, etag: str) -> None:
    await fleet.reports("clusters/one", "dns")

    (await patch(fleet, etag, a=1)).assert_problem(412)


@pytest.mark.parametrize("condition", ["*", '"nope", {}', '{}, "nope"'])
async def test_one_matching_etag_of_several_is_enough(fleet: ApiClient, etag: str, condition: str) -> None:
    assert (await patch(fleet, condition.format(etag), a=1)).status == 200


@pytest.mark.parametrize("condition", ["W/{}", '"nope"', 'W/{}, "nope"', "nope"])
async def test_a_weak_or_different_etag_does_not_match_a_write(
    fleet: ApiClient, etag: str, condition: str
) -> None:
    (await patch(fleet, condition.format(etag), a=1)).assert_problem(412)


@pytest.mark.parametrize("condition", ["", '"1', '"a" "b"', "W/", "*, *"])
async def test_an_invalid_etag_is_rejected(fleet: ApiClient, etag: str, condition: str) -> None:
    (await patch(fleet, condition, a=1)).assert_problem(400, "If-Match")
    (await get(fleet, condition)).assert_problem(400, "If-None-Match")


async def test_a_star_does_not_match_a_missing_resource(fleet: ApiClient) -> None:
    (await patch(fleet, "*", a=1)).assert_problem(404)


async def test_a_deletion_can_be_conditional(fleet: ApiClient, etag: str) -> None:
    await patch(fleet, "*", a=1)

    (await fleet.call("DELETE", "clusters/one", headers={"If-Match": etag})).assert_problem(412)
    assert "deleted_time" not in await fleet.get("clusters/one")
    current = (await fleet.call("GET", "clusters/one")).etag
    assert (await fleet.call("DELETE", "clusters/one", headers={"If-Match": current})).status == 202


async def test_the_precondition_is_checked_before_the_state(fleet: ApiClient, etag: str) -> None:
    await fleet.call("DELETE", "clusters/one")

    (await patch(fleet, etag, a=1)).assert_problem(412)
    (await patch(fleet, "*", a=1)).assert_problem(409)


@pytest.mark.parametrize("condition", ["{}", "W/{}", "*", '"x", {}'])
@pytest.mark.parametrize("path", ["clusters/one", "resources/one"])
async def test_a_version_that_the_client_has_is_not_sent_again(
    fleet: ApiClient, etag: str, condition: str, path: str
) -> None:
    reply = await get(fleet, condition.format(etag), path)

    assert (reply.status, reply.content, reply.etag) == (304, b"", etag)
    assert "content-length" not in reply.headers


async def test_a_new_version_is_sent(fleet: ApiClient, etag: str) -> None:
    await patch(fleet, "*", a=1)

    reply = await get(fleet, etag)

    assert (reply.status, reply.json["generation"]) == (200, 2)


async def test_head_has_the_headers_of_get_without_a_body(fleet: ApiClient, etag: str) -> None:
    reply = await fleet.call("HEAD", "clusters/one")

    assert (reply.status, reply.etag) == (200, etag)
    assert (await fleet.call("HEAD", "clusters/missing")).status == 404


async def test_a_reused_id_has_different_etags(fleet: ApiClient) -> None:
    first = await fleet.call("POST", "manifests", {"id": "m1", "name": "one"})
    await fleet.call("DELETE", "manifests/m1")
    await fleet.later()
    await fleet.call("POST", "manifests", {"id": "m1", "name": "one", "spec": {"other": True}})

    read = await fleet.call("GET", "manifests/m1", headers={"If-None-Match": first.etag})
    patched = await fleet.call("PATCH", "manifests/m1", {"spec": {"a": 1}}, headers={"If-Match": first.etag})

    assert read.status == 200
    assert patched.status == 412


# --- A resource with its statuses --------------------------------------------------------------------------------


async def with_statuses(fleet: ApiClient, path: str = "clusters/one", **headers: str) -> ApiReply:
    return await fleet.call("GET", path, headers=headers, statuses="true")


@pytest.fixture
async def pool(fleet: ApiClient, etag: str) -> str:
    """The id of a child of `one` with a report."""
    await fleet.create("clusters/one/nodepools", "pool", id="pool")
    await fleet.reports("nodepools/pool", "validation")
    return "pool"


@pytest.mark.parametrize("path", ["nodepools/pool", "clusters/one/nodepools/pool", "resources/pool"])
async def test_a_single_resource_may_include_its_statuses(fleet: ApiClient, pool: str, path: str) -> None:
    plain = await fleet.get(path)
    listed = (await fleet.get("nodepools/pool/statuses"))["items"]

    read = await with_statuses(fleet, path)

    assert "statuses" not in plain
    assert len(listed) == 1
    assert read.json == {**plain, "statuses": listed}


async def test_a_resource_without_reports_has_empty_statuses(fleet: ApiClient, etag: str) -> None:
    assert (await with_statuses(fleet)).json["statuses"] == []


async def test_statuses_may_be_declined(fleet: ApiClient, etag: str) -> None:
    assert "statuses" not in await fleet.get("clusters/one", statuses="false")


@pytest.mark.parametrize(
    ("name", "value"), [("statuses", "maybe"), ("statuses", ""), ("statuses", "null"), ("status", "true")]
)
async def test_an_invalid_query_of_a_resource_is_named(fleet: ApiClient, etag: str, name: str, value: str) -> None:
    reply = await fleet.send("GET", "/api/hyperfleet/v1/clusters/one", query={name: value})

    reply.assert_problem(400, name)


async def test_with_statuses_the_etag_changes_with_work_in_progress(fleet: ApiClient, etag: str) -> None:
    await fleet.reports("clusters/one", "dns")
    plain, before = await fleet.call("GET", "clusters/one"), await with_statuses(fleet)
    await fleet.later(1)

    await fleet.call("PUT", "clusters/one/statuses", fleet.report("dns", available="Unknown"))

    after = await with_statuses(fleet, **{"If-None-Match": before.etag})
    again = await with_statuses(fleet, **{"If-None-Match": after.etag})
    unchanged = await fleet.call("GET", "clusters/one", headers={"If-None-Match": plain.etag})
    assert (after.status, "in_progress" in after.json["statuses"][0]) == (200, True)
    assert after.etag != before.etag
    assert (again.status, unchanged.status) == (304, 304)


async def test_an_etag_that_was_read_with_statuses_is_good_for_a_write(fleet: ApiClient, etag: str) -> None:
    await fleet.reports("clusters/one", "dns")
    await fleet.later(1)
    await fleet.call("PUT", "clusters/one/statuses", fleet.report("dns", available="Unknown"))
    read = (await with_statuses(fleet)).etag

    assert (await patch(fleet, read, a=1)).status == 200
    (await patch(fleet, read, b=1)).assert_problem(412)


async def test_a_changed_document_changes_both_etags(fleet: ApiClient, etag: str) -> None:
    before = (await with_statuses(fleet)).etag
    await patch(fleet, "*", a=1)

    assert (await with_statuses(fleet)).etag != before
    assert (await fleet.call("GET", "clusters/one")).etag != etag
