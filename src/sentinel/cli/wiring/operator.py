"""Builds the SentinelConfig operator, and a pulse for each of its configurations."""

from __future__ import annotations

import hashlib
import os
import socket
import uuid
from collections.abc import Mapping

from sentinel.cli.wiring.broker import build_publisher
from sentinel.cli.wiring.kube import KubeConnection, build_event_recorder
from sentinel.cli.wiring.pulse import build_pulse, build_pulse_metrics, build_watched_fleet
from sentinel.cli.wiring.serve import ServiceContext
from sentinel.operator.plans import PulsePlan
from sentinel.operator.service import Operator
from sentinel.pulse.report import PulseObserver, PulseObservers
from sentinel.runtime.kube.leader_election import LeaderCallbacks, LeaderElector
from sentinel.runtime.lifecycle.dynamic_parts import DynamicParts
from sentinel.runtime.lifecycle.part import Part
from sentinel.runtime.settings.broker import EMULATOR

_MAX_NAME = 253
"""The longest name of an object in Kubernetes."""
COMPONENT = "hyperfleet-sentinel"
"""The name of the operator in Kubernetes: the source of Events, and the manager of fields."""


def build_operator(
    kube: KubeConnection,
    context: ServiceContext,
    *,
    name: str,
    elects_leaders: bool,
    parts: DynamicParts,
    environ: Mapping[str, str] = os.environ,
) -> Part:
    """Build the operator as a part. With `elects_leaders`, of several replicas only one publishes."""
    identity = f"{socket.gethostname()}_{uuid.uuid4()}"

    def pulse(plan: PulsePlan) -> Part:
        return build_config_pulse(plan, context=context, environ=environ)

    def elector(config_name: str, callbacks: LeaderCallbacks) -> LeaderElector:
        return LeaderElector(
            api=kube.api,
            name=lease_name(config_name),
            namespace=kube.namespace,
            identity=identity,
            callbacks=callbacks,
            clock=context.clock,
            log=context.log,
        )

    return Operator(
        api=kube.api,
        namespace=kube.namespace,
        name=name,
        parts=parts,
        build_pulse=pulse,
        identity=identity,
        build_elector=elector if elects_leaders else None,
        metrics=build_pulse_metrics(context.metrics),
        events=build_event_recorder(kube.api, component=COMPONENT, instance=identity, context=context),
        clock=context.clock,
        log=context.log,
        set_secrets_in_use=context.redactor.set_in_use,
        emulator_host=environ.get(EMULATOR, ""),
    ).part()


def lease_name(config_name: str) -> str:
    """Return the name of the Lease of a SentinelConfig. A long one ends in a hash, because names are limited."""
    name = f"sentinel-{config_name}"
    if len(name) <= _MAX_NAME:
        return name
    digest = hashlib.sha256(config_name.encode()).hexdigest()[:16]
    return f"{name[: _MAX_NAME - 17].rstrip('.-')}-{digest}"


def build_config_pulse(
    plan: PulsePlan, *, context: ServiceContext, environ: Mapping[str, str] = os.environ
) -> Part:
    """Build the pulse of a SentinelConfig, with a connection to its own broker."""
    definition = plan.config.definition
    publisher = build_publisher(plan.config.broker, mode=definition.event_mode)
    log_fields = {"config": plan.name}
    fleet = build_watched_fleet(
        definition,
        environ=environ,
        tracer=context.tracer,
        log_fields=log_fields,
        position=plan.stream_position,
    )

    def watch(telemetry: PulseObserver) -> PulseObserver:
        return PulseObservers(telemetry, plan.observer, log=context.log)

    plan.publishers.add(publisher)

    async def close() -> None:
        plan.publishers.discard(publisher)
        try:
            await fleet.reader.close()
        finally:
            await publisher.close()

    built = build_pulse(
        definition,
        fleet=fleet,
        publisher=publisher,
        clock=context.clock,
        tracer=context.tracer,
        series=plan.series,
        pacer=plan.pacer,
        may_publish=plan.may_publish,
        log_fields=log_fields,
        watch=watch,
    )
    return Part(
        name=built.name,
        loops=built.loops,
        checks=built.checks,
        liveness=built.liveness,
        start=publisher.open,
        close=close,
    )
