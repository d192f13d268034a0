"""The CustomResourceDefinition of OpenBaoCluster: its status, and which names are possible."""

from __future__ import annotations

from typing import Final

from sentinel.core.json import Json
from sentinel.drift.operator.openbao.cluster import OPENBAO_CLUSTER, QUANTITY, OpenBaoClusterSpec
from sentinel.runtime.kube.custom_resource import TIME, CustomResource, Schema, reason_columns, status_schema

_COUNT: Final[Schema] = {"type": "integer", "format": "int32", "minimum": 0}
_DRIFT: Final[Schema] = {
    "type": "object",
    "description": "Drift: what was detected and corrected.",
    "properties": {
        "lastDriftDetected": {**TIME, "description": "When drift was last detected."},
        "driftCorrectionCount": {**_COUNT, "description": "How many triggers were handled."},
        "lastCorrectionTime": {
            **TIME,
            "description": "When drift was last corrected; before `lastDriftDetected` while a correction fails.",
        },
        "lastDriftResource": {
            "type": "string",
            "description": "The object that drifted: `KIND/NAMESPACE/NAME`, or `unknown`.",
        },
        "lastFullReconcileTime": {**TIME, "description": "When all steps last succeeded."},
        "consecutiveFastPaths": {**_COUNT, "description": "The fast paths since the last full pass."},
    },
}
_STATUS: Final = status_schema(
    "What the operator observed and did. Only the operator writes it.",
    {
        "version": {"type": "string", "description": "The version that the last upgrade step applied."},
        "backup": {
            "type": "object",
            "description": "What the last backup step recorded.",
            "properties": {
                "configHash": {"type": "string", "description": "The SHA-256 of the configuration."},
                "version": {"type": "string", "description": "The version of OpenBao."},
            },
        },
        "drift": _DRIFT,
        "steps": {
            "type": "object",
            "description": "The steps `certs`, `infra`, `upgrade` and `backup`.",
            "additionalProperties": {
                "type": "object",
                "properties": {"lastRun": {**TIME, "description": "When the step last succeeded."}},
            },
        },
    },
    conditions="`Ready` (reasons `Reconciled`, `StepFailed`, `Paused`), `Degraded` (`AdmissionPoliciesNotReady`,"
    " `AdmissionPoliciesReady`, `SentinelDisabled`), `Healthy` (`Active`, `Standby`, `Sealed`,"
    " `NotInitialized`, `Unreachable` and other states of OpenBao).",
)
_COLUMNS: Final[list[Json]] = [
    {"name": "Version", "type": "string", "jsonPath": ".spec.version"},
    *reason_columns("Ready", "Degraded", "Healthy"),
    {"name": "Drifts", "type": "integer", "jsonPath": ".status.drift.driftCorrectionCount"},
    {"name": "Last Drift", "type": "date", "jsonPath": ".status.drift.lastDriftDetected"},
]
_NAME_RULE: Final[Schema] = {
    # 52: the pods of a StatefulSet have its name and a hash in a label, and labels are limited to 63 characters.
    "rule": "size(self.metadata.name) <= 52 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
    "message": "metadata.name: expected at most 52 lower case letters, digits and '-', beginning with a letter",
}
_DECIMAL: Final = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)"
_QUANTITY_PATTERN: Final = rf"^[+-]?{_DECIMAL}([KMGTPE]i|[numkMGTPE]|[eE][+-]?{_DECIMAL})?$"
_DEFINITION: Final = CustomResource(
    kind=OPENBAO_CLUSTER,
    description="A cluster of OpenBao servers, and the sidecar that watches it for drift.",
    spec=OpenBaoClusterSpec,
    status=_STATUS,
    columns=_COLUMNS,
    short_names=["bao"],
    types={
        QUANTITY.expected: {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": _QUANTITY_PATTERN,
        }
    },
    root_rules={"x-kubernetes-validations": [_NAME_RULE]},
    is_spec_required=False,
)
document: Final = _DEFINITION.document
"""Returns the CustomResourceDefinition."""
