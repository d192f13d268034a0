"""JSON patches as in RFC 6902, and as Kubernetes reads it."""

from __future__ import annotations

import copy

import msgspec
import pytest

from sentinel.core.json import Json
from sentinel.testing.kube import json_patch
from sentinel.testing.kube.errors import ApiError

DOCUMENT: Json = {"a": {"b": 1}, "list": [1, 2, 3], "x/y": {"m~n": 0}}


def apply(*operations: dict[str, Json]) -> Json:
    return json_patch.apply(DOCUMENT, json_patch.decode(msgspec.json.encode(operations)))


def changed(**members: Json) -> Json:
    assert isinstance(DOCUMENT, dict)
    return {**DOCUMENT, **members}


@pytest.mark.parametrize(
    ("operation", "result"),
    [
        ({"op": "add", "path": "/new", "value": 1}, changed(new=1)),
        ({"op": "add", "path": "/a/b", "value": 2}, changed(a={"b": 2})),
        ({"op": "add", "path": "/list/1", "value": 9}, changed(list=[1, 9, 2, 3])),
        ({"op": "add", "path": "/list/3", "value": 9}, changed(list=[1, 2, 3, 9])),
        ({"op": "add", "path": "/list/-", "value": 9}, changed(list=[1, 2, 3, 9])),
        ({"op": "add", "path": "", "value": 7}, 7),
        ({"op": "remove", "path": "/a/b"}, changed(a={})),
        ({"op": "remove", "path": "/list/0"}, changed(list=[2, 3])),
        ({"op": "replace", "path": "/a/b", "value": {"c": 1}}, changed(a={"b": {"c": 1}})),
        ({"op": "replace", "path": "/list/2", "value": 9}, changed(list=[1, 2, 9])),
        (
            {"op": "replace", "path": "/x~1y/m~0n", "value": 5},
            {"a": {"b": 1}, "list": [1, 2, 3], "x/y": {"m~n": 5}},
        ),
        ({"op": "move", "from": "/a/b", "path": "/c"}, changed(a={}, c=1)),
        ({"op": "copy", "from": "/a", "path": "/list/0"}, changed(list=[{"b": 1}, 1, 2, 3])),
        ({"op": "replace", "path": "/missing", "value": 1}, changed(missing=1)),
        ({"op": "replace", "path": "", "value": 1}, 1),
        ({"op": "test", "path": "/a/b", "value": 1.0}, changed()),
        ({"op": "test", "path": "/missing", "value": None}, changed()),
        ({"op": "test", "path": "/list/0", "value": 1}, changed()),
    ],
)
def test_an_operation_changes_what_it_names(operation: dict[str, Json], result: Json) -> None:
    assert apply(operation) == result


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/missing/x", "value": 1},
        {"op": "add", "path": "/list/4", "value": 1},
        {"op": "add", "path": "/list/x", "value": 1},
        {"op": "add", "path": "/a/b/c", "value": 1},
        {"op": "add", "path": "a", "value": 1},
        {"op": "remove", "path": "/missing"},
        {"op": "remove", "path": ""},
        {"op": "remove", "path": "/list/-1"},
        {"op": "remove", "path": "/a/b/c"},
        {"op": "replace", "path": "/missing/x", "value": 1},
        {"op": "replace", "path": "/list/3", "value": 1},
        {"op": "move", "from": "/missing", "path": "/b"},
        {"op": "test", "path": "/a/b", "value": True},
        {"op": "test", "path": "/missing", "value": 1},
        {"op": "other", "path": "/a"},
    ],
)
def test_an_operation_that_does_not_fit_fails(operation: dict[str, Json]) -> None:
    before = copy.deepcopy(DOCUMENT)

    with pytest.raises(ApiError) as caught:
        apply(operation)

    assert caught.value.code == 422
    assert before == DOCUMENT


def test_operations_apply_in_order_and_leave_the_target_alone() -> None:
    before = copy.deepcopy(DOCUMENT)

    result = apply({"op": "add", "path": "/c", "value": []}, {"op": "add", "path": "/c/-", "value": 1})

    assert result == changed(c=[1])
    assert before == DOCUMENT


def test_a_body_that_is_not_a_patch_is_a_bad_request() -> None:
    with pytest.raises(ApiError) as caught:
        json_patch.decode(b'{"op": "add"}')

    assert caught.value.code == 400
