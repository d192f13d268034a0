"""Hypothesis strategies for objects of a type that has every kind of field."""

from __future__ import annotations

from hypothesis import strategies as st

from sentinel.core.json import Json
from sentinel.testing.kube.field_types import ATOMIC, MAP, SET, FieldType, keyed, struct

EVERY_FIELD: FieldType = struct(
    labels=MAP,
    finalizers=SET,
    selector=ATOMIC,
    ports=keyed("port", "protocol", protocol="TCP"),
    containers=keyed("name", items=struct(env=keyed("name"))),
)
"""Fields that are not named are scalars, atomic lists and nested objects."""

scalars = st.one_of(st.integers(0, 2), st.sampled_from(["a", "b"]), st.booleans())
names = st.sampled_from(["a", "b", "c"])


def items_with(
    key: str, values: st.SearchStrategy[Json], **members: st.SearchStrategy[Json]
) -> st.SearchStrategy[Json]:
    """Lists of objects whose `key` is unique."""
    item = st.fixed_dictionaries({key: values}, optional=members)
    return st.lists(item, max_size=3, unique_by=lambda each: str(each[key])).map(list)


env = items_with("name", names, value=scalars)
objects: st.SearchStrategy[dict[str, Json]] = st.fixed_dictionaries(
    {},
    optional={
        "replicas": scalars,
        "args": st.lists(scalars, max_size=2),
        "labels": st.dictionaries(names, scalars, max_size=3),
        "finalizers": st.lists(names, max_size=3, unique=True),
        "selector": st.dictionaries(names, scalars, max_size=2),
        "ports": items_with("port", st.integers(1, 3), protocol=st.just("TCP"), name=names),
        "containers": items_with("name", names, image=scalars, env=env),
        "nested": st.fixed_dictionaries({}, optional={"x": scalars, "y": st.lists(scalars, max_size=2)}),
    },
)
"""Objects of the type `EVERY_FIELD`."""
