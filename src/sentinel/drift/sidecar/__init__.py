"""The sidecar of one cluster: it watches the cluster's objects and triggers the operator when one of them drifts.

The modules, from the outside in: `service` is the whole sidecar, `object_watch` judges the objects of one kind,
`trigger_loop` writes triggers, `report` is what observers get; `telemetry`, `kube_events` and `webhook` are
observers.
"""
