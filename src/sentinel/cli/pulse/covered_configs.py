"""The configurations that `sentinel coverage` compares: settings files and SentinelConfigs.

Both become the definition of a pulse, with a name for the output. The environment and `--set` apply to settings
files as in `run`. Of a SentinelConfig they replace only the connection to the API: its URL is often known only
inside a cluster, and its token is in a Secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from sentinel.operator import manifests
from sentinel.operator.sentinel_config import SentinelConfig
from sentinel.ports.kube import KubeObject
from sentinel.pulse import settings as pulse_settings
from sentinel.pulse.definition import PulseDefinition
from sentinel.pulse.settings import PulseSettings
from sentinel.runtime import durations
from sentinel.runtime.secrets import Secret
from sentinel.runtime.settings.log import LogSettings
from sentinel.runtime.settings.report import Loaded


class CoveredConfig(msgspec.Struct, frozen=True):
    """A pulse to compare with others."""

    name: str
    """The file as the user wrote it, `FILE#NAME` if it holds several, or `NAMESPACE/NAME` in a cluster."""
    definition: PulseDefinition
    log: LogSettings
    is_sentinel_config: bool = False


class CoveredConfigs(msgspec.Struct, frozen=True):
    """Configurations, and what is wrong with them."""

    configs: tuple[CoveredConfig, ...] = ()
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    secrets: tuple[Secret, ...] = ()


class ConfigLoader:
    """Loads configurations with one environment and one command line."""

    def __init__(
        self, *, environ: Mapping[str, str], sets: Sequence[str], log_overrides: Mapping[str, str]
    ) -> None:
        self._environ = environ
        self._sets = sets
        self._log_overrides = log_overrides

    def load_files(self, files: Iterable[Path]) -> CoveredConfigs:
        """Load settings files, and every SentinelConfig in manifests."""
        return joined(self._load_file(file) for file in files)

    def load_objects(self, objects: Iterable[KubeObject]) -> CoveredConfigs:
        """Load SentinelConfigs of a cluster. Invalid ones and duplicates are warnings: they do not run."""
        loaded = [(each, manifests.read_object(each)) for each in objects]
        valid = sorted((each.settings for _, each in loaded if each.settings is not None), key=_age)
        duplicates = {(later.namespace, later.name): earlier for earlier, later in manifests.duplicates(valid)}
        return joined(self._load_object(document, each, duplicates) for document, each in loaded)

    def _load_file(self, file: Path) -> CoveredConfigs:
        found = manifests.read_file(file)
        if found is None:
            loaded = self._load_settings(file=file)
            pulse = loaded.settings
            configs = () if pulse is None else (CoveredConfig(str(file), pulse.definition, pulse.log),)
            return CoveredConfigs(configs, tuple(map(str, loaded.problems)), loaded.warnings, loaded.secrets)
        of_file = CoveredConfigs(problems=tuple(map(str, found.problems)))
        has_several = len(found.configs) > 1
        return joined([of_file, *(self._load_manifest(each, file, has_several) for each in found.configs)])

    def _load_manifest(self, loaded: Loaded[SentinelConfig], file: Path, has_several: bool) -> CoveredConfigs:
        config = loaded.settings
        if config is None:
            return CoveredConfigs(problems=tuple(map(str, loaded.problems)))
        return self._connected(config, f"{file}#{config.name}" if has_several else str(file))

    def _load_object(
        self,
        document: KubeObject,
        loaded: Loaded[SentinelConfig],
        duplicates: Mapping[tuple[str, str], SentinelConfig],
    ) -> CoveredConfigs:
        """`duplicates` maps the namespace and name of each duplicate to the SentinelConfig that runs instead."""
        config = loaded.settings
        if config is not None:
            older = duplicates.get((config.namespace, config.name))
            if older is None:
                return self._connected(config, f"{config.namespace}/{config.name}")
            shard = f"{config.definition.resource_type} ({config.definition.shard})"
            warning = f"{config.name} is not counted: Duplicate: {older.name} watches the same {shard}"
            return CoveredConfigs(warnings=(warning,))
        metadata = document.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        return CoveredConfigs(warnings=tuple(f"{name} is not counted: {each}" for each in loaded.problems))

    def _connected(self, config: SentinelConfig, name: str) -> CoveredConfigs:
        """Return the SentinelConfig with the connection that the environment and `--set` say."""
        definition = config.definition
        loaded = self._load_settings(
            defaults={
                "resource_type": definition.resource_type,
                "hyperfleet_api.endpoint": definition.api.endpoint,
                "hyperfleet_api.timeout": durations.render(definition.api.timeout),
                "hyperfleet_api.page_size": str(definition.api.page_size),
            }
        )
        pulse = loaded.settings
        if pulse is None:
            return CoveredConfigs(problems=tuple(map(str, loaded.problems)), warnings=loaded.warnings)
        warnings = loaded.warnings
        api = pulse.hyperfleet_api
        if config.spec.hyperfleet_api.token_secret_ref is not None and not (api.token or api.token_file):
            warnings = (*warnings, f"{name}: Secrets are not read here; set HYPERFLEET_API_TOKEN to the token")
        connected = msgspec.structs.replace(definition, api=api)
        return CoveredConfigs(
            (CoveredConfig(name, connected, pulse.log, is_sentinel_config=True),),
            warnings=warnings,
            secrets=loaded.secrets,
        )

    def _load_settings(
        self, *, file: Path | None = None, defaults: Mapping[str, str] | None = None
    ) -> Loaded[PulseSettings]:
        return pulse_settings.load(
            file=file,
            environ=self._environ,
            sets=self._sets,
            overrides=self._log_overrides,
            defaults=defaults,
        )


def _age(config: SentinelConfig) -> tuple[datetime, str]:
    """As the operator compares two for the same resources: the older one runs."""
    return config.created or datetime.max.replace(tzinfo=UTC), config.name


def joined(parts: Iterable[CoveredConfigs]) -> CoveredConfigs:
    """Return the configurations of several sources."""
    each = list(parts)

    def unique(texts: Iterator[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(texts))  # a bad variable is a problem of every configuration

    return CoveredConfigs(
        tuple(config for part in each for config in part.configs),
        unique(problem for part in each for problem in part.problems),
        unique(warning for part in each for warning in part.warnings),
        tuple(secret for part in each for secret in part.secrets),
    )
