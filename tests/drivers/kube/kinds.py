"""Kinds for tests."""

from __future__ import annotations

from sentinel.ports.kube import KubeKind

CONFIG_MAP = KubeKind("", "v1", "ConfigMap", "configmaps")
CONFIG = KubeKind("hyperfleet.redhat.com", "v1alpha1", "SentinelConfig", "sentinelconfigs")
NAMESPACE = KubeKind("", "v1", "Namespace", "namespaces", is_namespaced=False)
