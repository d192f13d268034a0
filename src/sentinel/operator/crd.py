"""The CustomResourceDefinition of SentinelConfig: its status, and what each broker needs of the spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sentinel.core.json import Json
from sentinel.operator.sentinel_config import SENTINEL_CONFIG, BrokerSpec, SentinelConfigSpec, ShardSelector
from sentinel.runtime.kube.custom_resource import INTEGER, TIME, CustomResource, reason_columns, status_schema

_OBJECT_RULES: Final[Mapping[object, Mapping[str, Json]]] = {
    ShardSelector: {"x-kubernetes-map-type": "atomic"},
    BrokerSpec: {
        "x-kubernetes-validations": [
            {
                "rule": "self.type != 'gcp-pubsub' || (has(self.projectID) && self.projectID != '')",
                "message": "required with type gcp-pubsub",
                "fieldPath": ".projectID",
                "reason": "FieldValueRequired",
            },
            {
                "rule": "self.type != 'rabbitmq' || (has(self.url) && self.url != '')",
                "message": "required with type rabbitmq",
                "fieldPath": ".url",
                "reason": "FieldValueRequired",
            },
        ]
    },
}
"""What cannot be said of a single field, by struct."""

_STATUS: Final = status_schema(
    "What the operator observed. Only the operator writes it.",
    {
        "lastPollTime": {**TIME, "description": "When the resources were last read."},
        "resources": {**INTEGER, "description": "The number of resources that the last poll found."},
        "published": {
            **INTEGER,
            "description": "The number of events since the pulse was started, reloads included.",
        },
    },
    conditions="`Accepted` (reasons `Valid`, `Invalid`, `Duplicate`), `Running` (`Polling`,"
    " `Stopped`), `Degraded` (`FetchFailed`, `PublishFailed`, `Healthy`).",
)
_COLUMNS: list[Json] = [
    {"name": "Resource", "type": "string", "jsonPath": ".spec.resourceType"},
    *reason_columns("Accepted", "Running", "Degraded"),
    {"name": "Resources", "type": "integer", "jsonPath": ".status.resources"},
    {"name": "Published", "type": "integer", "jsonPath": ".status.published"},
    {"name": "Last Poll", "type": "date", "jsonPath": ".status.lastPollTime"},
]

_DEFINITION: Final = CustomResource(
    kind=SENTINEL_CONFIG,
    description="A pulse: which resources it watches, when their events are due, and where they are sent.",
    spec=SentinelConfigSpec,
    status=_STATUS,
    columns=_COLUMNS,
    short_names=["sc"],
    rules=_OBJECT_RULES,
)
document: Final = _DEFINITION.document
"""Returns the CustomResourceDefinition."""
