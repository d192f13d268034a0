"""How the built-in kinds are merged: Kubernetes' own rules, as far as they differ from the default.

Taken from the schema that client-go 1.36 ships for its apply configurations. What is not listed is an object whose
fields are owned separately, a list that is one value, or a scalar.
"""

from __future__ import annotations

from sentinel.testing.kube.field_types import ATOMIC, MAP, METADATA, SET, FieldType, keyed, struct

_RESOURCES = struct(claims=keyed("name"), limits=MAP, requests=MAP)
_ENV = keyed(
    "name",
    items=struct(
        valueFrom=struct(
            configMapKeyRef=ATOMIC,
            fieldRef=ATOMIC,
            fileKeyRef=ATOMIC,
            resourceFieldRef=ATOMIC,
            secretKeyRef=ATOMIC,
        )
    ),
)
_CONTAINERS = keyed(
    "name",
    items=struct(
        env=_ENV,
        ports=keyed("containerPort", "protocol", protocol="TCP"),
        resources=_RESOURCES,
        volumeDevices=keyed("devicePath"),
        volumeMounts=keyed("mountPath"),
    ),
)
_CONDITIONS = struct(conditions=keyed("type"))
_WITH_SECRET = struct(secretRef=ATOMIC)
_CLAIM_TEMPLATE = struct(
    metadata=METADATA, spec=struct(dataSource=ATOMIC, resources=struct(limits=MAP, requests=MAP), selector=ATOMIC)
)
_VOLUMES = keyed(
    "name",
    items=struct(
        cephfs=_WITH_SECRET,
        cinder=_WITH_SECRET,
        csi=struct(nodePublishSecretRef=ATOMIC, volumeAttributes=MAP),
        ephemeral=struct(volumeClaimTemplate=_CLAIM_TEMPLATE),
        flexVolume=struct(options=MAP, secretRef=ATOMIC),
        iscsi=_WITH_SECRET,
        rbd=_WITH_SECRET,
        scaleIO=_WITH_SECRET,
        storageos=_WITH_SECRET,
    ),
)
_POD_SPEC = struct(
    affinity=struct(nodeAffinity=struct(requiredDuringSchedulingIgnoredDuringExecution=ATOMIC)),
    containers=_CONTAINERS,
    ephemeralContainers=_CONTAINERS,
    hostAliases=keyed("ip"),
    imagePullSecrets=keyed("name", items=ATOMIC, name=""),
    initContainers=_CONTAINERS,
    nodeSelector=ATOMIC,
    overhead=MAP,
    resourceClaims=keyed("name"),
    resources=_RESOURCES,
    schedulingGates=keyed("name"),
    topologySpreadConstraints=keyed("topologyKey", "whenUnsatisfiable", items=struct(labelSelector=ATOMIC)),
    volumes=_VOLUMES,
)
_TEMPLATE = struct(metadata=METADATA, spec=_POD_SPEC)
_WORKLOAD_SPEC = struct(selector=ATOMIC, template=_TEMPLATE)

OBJECT = struct(metadata=METADATA)
CONFIG_MAP = struct(metadata=METADATA, data=MAP, binaryData=MAP)
SECRET = struct(metadata=METADATA, data=MAP, stringData=MAP)
SERVICE = struct(
    metadata=METADATA,
    spec=struct(ports=keyed("port", "protocol", protocol="TCP"), selector=ATOMIC),
    status=_CONDITIONS,
)
POD = struct(
    metadata=METADATA,
    spec=_POD_SPEC,
    status=struct(
        allocatedResources=MAP,
        conditions=keyed("type"),
        podIPs=keyed("ip"),
        resourceClaimStatuses=keyed("name"),
        resources=_RESOURCES,
    ),
)
EVENT = struct(metadata=METADATA, involvedObject=ATOMIC, related=ATOMIC)
SERVICE_ACCOUNT = struct(metadata=METADATA, secrets=keyed("name", items=ATOMIC))
NAMESPACE = struct(metadata=METADATA, status=_CONDITIONS)
WORKLOAD = struct(metadata=METADATA, spec=_WORKLOAD_SPEC, status=_CONDITIONS)
JOB = struct(
    metadata=METADATA,
    spec=_WORKLOAD_SPEC,
    status=struct(uncountedTerminatedPods=struct(failed=SET, succeeded=SET)),
)
ROLE_BINDING = struct(metadata=METADATA, roleRef=ATOMIC)
CUSTOM_RESOURCE_DEFINITION = struct(
    metadata=METADATA, status=struct(conditions=keyed("type"), storedVersions=ATOMIC)
)
VALIDATING_ADMISSION_POLICY = struct(
    metadata=METADATA,
    spec=struct(
        matchConditions=keyed("name"),
        matchConstraints=ATOMIC,
        paramKind=ATOMIC,
        variables=keyed("name", items=ATOMIC),
    ),
    status=_CONDITIONS,
)
VALIDATING_ADMISSION_POLICY_BINDING = struct(
    metadata=METADATA,
    spec=struct(matchResources=ATOMIC, paramRef=ATOMIC, validationActions=SET),
)


def with_metadata(declared: FieldType) -> FieldType:
    """Return the type of a custom resource: what its schema declares, with Kubernetes' metadata."""
    if declared.is_untyped:
        return FieldType(fields={"metadata": METADATA}, members=declared)
    return FieldType(fields={**declared.fields, "metadata": METADATA}, members=declared.members)
