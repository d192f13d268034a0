"""The settings of drift detection: what is watched, what counts as drift, and when the operator is triggered.

Every name of the OpenBao operator is a default, so that another operator can be watched by configuration. The
docstring of each field is its entry in the reference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Final, Unpack

import msgspec

from sentinel.core.drift import rules
from sentinel.core.drift.rules import AnnotationNames, Rules, Unowned
from sentinel.core.drift.trigger import DriftMode
from sentinel.drift import setting_types
from sentinel.drift.setting_types import IgnoreSettings, KindSettings, TargetSettings
from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings import field_types, loader
from sentinel.runtime.settings.log import LogSettings
from sentinel.runtime.settings.report import Loaded, Origin, SettingsProblem, quoted
from sentinel.runtime.settings.webhook_url import WEBHOOK_URL

MAX_WAIT_WINDOWS: Final = 5
"""The default of `max_wait`, in debounce windows with their jitter."""

_NAMESPACE_VARIABLE: Final = "POD_NAMESPACE"
_NAME_VARIABLE: Final = "CLUSTER_NAME"
_DNS_LABEL: Final = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_CLUSTER_NAME: Final = r"(?=.{1,63}$)[a-z0-9]([a-z0-9.-]*[a-z0-9])?"  # it is the value of a label


def _default_labels() -> Mapping[str, str]:
    return {rules.MANAGED_BY_LABEL: "openbao-operator", rules.INSTANCE_LABEL: setting_types.NAME_PLACEHOLDER}


class DriftSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the sidecar. `sentinel drift explain` reads those that judge."""

    debounce_window_seconds: Annotated[int, field_types.integer(1, 60)] = 2
    """Drift within this many seconds, from 1 to 60, becomes one trigger. Each further drift restarts the window,
    until `max_wait`."""

    debounce_jitter_seconds: Annotated[int, field_types.integer(0, 60)] = 0
    """Up to this many seconds, from 0 to 60, are added to the window. How many is a hash of the cluster's name, so
    that the sidecars of many clusters do not trigger at the same moment."""

    max_wait: timedelta | None = None
    """The longest time from the first drift to the trigger, however much drift follows. Unset: 5 windows, each
    with the jitter."""

    ack_timeout: timedelta = timedelta(seconds=60)
    """How long the operator may take to clear the trigger before it is set again."""

    mode: DriftMode = DriftMode.ENFORCE
    """What happens on drift. `enforce`: it is reported and the operator is triggered. `observe`: it is only
    reported. `off`: nothing is judged. An annotation of the cluster can reduce the mode."""

    managers: Annotated[tuple[str, ...], setting_types.managers()] = tuple(sorted(rules.OPENBAO.managers))
    """The operator's field managers. The fields that they hold are owned by the operator, and their writes are
    never drift. `manager` is every write under that name; `manager/Apply` and `manager/Update` are those with one
    operation, and `manager/Update/scale` those of one subresource. Use these where other controllers have the same
    name, as `manager` is the default of many."""

    kinds: Annotated[tuple[KindSettings, ...], setting_types.kinds()] = (
        KindSettings("apps/v1", "StatefulSet"),
        KindSettings("v1", "Service"),
        KindSettings("v1", "ConfigMap"),
    )
    """The kinds to watch: a list of `{apiVersion, kind}`, with `plural` where it is not the kind in lower case
    with an s. Secrets are rejected."""

    unowned: Unowned = Unowned.SPEC
    """Which fields that another manager adds are drift. `none`: none. `spec`: those outside `metadata` and
    `status`, and annotations with `annotation_prefix`. `all`: all but `status`."""

    ignore: Annotated[tuple[IgnoreSettings, ...], setting_types.ignore_rules()] = ()
    """Changes that are not drift: a list of `{kind, name, path, manager}`, each a glob, of which every given one
    must match. `*`, `?`, `[abc]`, `[a-c]` and `[!abc]` do not match `/`, `**` does. Paths are JSON pointers with
    members of lists by their key, such as `/spec/template/spec/containers/name=bao/image`. A rule without `path`
    also covers deletion."""

    events: bool = False
    """Whether to write Kubernetes Events about drift. The sidecar's Role must allow it."""

    webhook_url: Annotated[Secret | None, WEBHOOK_URL] = None
    """A URL that gets a POST with a summary of each drift. Treated as a secret. Unset: none."""

    labels: Annotated[Mapping[str, str], setting_types.labels()] = msgspec.field(default_factory=_default_labels)
    """The labels that select the operator's objects. In a value, `{name}` is the name of the cluster."""

    target: TargetSettings = msgspec.field(default_factory=TargetSettings)
    """The kind of the cluster, whose annotations trigger the operator."""

    annotation_prefix: Annotated[str, setting_types.ANNOTATION_PREFIX] = rules.OPENBAO.annotations.prefix
    """The prefix of all annotations: `sentinel-trigger` and the others follow it."""

    log: LogSettings = msgspec.field(default_factory=LogSettings)
    """Logging."""

    @property
    def debounce_window(self) -> timedelta:
        return timedelta(seconds=self.debounce_window_seconds)

    @property
    def debounce_jitter(self) -> timedelta:
        return timedelta(seconds=self.debounce_jitter_seconds)

    @property
    def longest_wait(self) -> timedelta:
        """The longest time from the first drift to the trigger."""
        if self.max_wait is not None:
            return self.max_wait
        return MAX_WAIT_WINDOWS * (self.debounce_window + self.debounce_jitter)

    @property
    def annotations(self) -> AnnotationNames:
        return AnnotationNames.with_prefix(self.annotation_prefix)

    @property
    def rules(self) -> Rules:
        """What a judgement depends on."""
        return Rules(
            managers=frozenset(self.managers),
            managed_labels=tuple(self.labels),
            annotations=self.annotations,
            unowned=self.unowned,
            ignore=tuple(each.rule for each in self.ignore),
        )

    def labels_of(self, cluster_name: str) -> Mapping[str, str]:
        """Return the labels of the objects of a cluster."""
        return {
            name: value.replace(setting_types.NAME_PLACEHOLDER, cluster_name)
            for name, value in self.labels.items()
        }


class ClusterIdentity(msgspec.Struct, frozen=True):
    """The cluster that a sidecar watches, from its environment."""

    namespace: str
    """`POD_NAMESPACE`."""
    name: str
    """`CLUSTER_NAME`."""


def load(**options: Unpack[loader.LoadOptions]) -> Loaded[DriftSettings]:
    """Load the settings as `runtime.settings.loader.load` does."""
    return loader.load(DriftSettings, **options)


def load_cluster_identity(environ: Mapping[str, str]) -> Loaded[ClusterIdentity]:
    """Read the namespace and the name of the cluster from the environment. Both are required."""
    problems = [
        SettingsProblem.at(Origin(), variable, f"expected {expected}, got {_shown(environ.get(variable))}")
        for variable, expected, pattern in (
            (_NAMESPACE_VARIABLE, "the namespace of the pod", _DNS_LABEL),
            (_NAME_VARIABLE, "the name of the cluster", _CLUSTER_NAME),
        )
        if re.fullmatch(pattern, environ.get(variable, "")) is None
    ]
    if problems:
        return Loaded(None, tuple(problems))
    return Loaded(ClusterIdentity(environ[_NAMESPACE_VARIABLE], environ[_NAME_VARIABLE]))


def _shown(text: str | None) -> str:
    return quoted(text) if text else "nothing"
