"""The options of `sentinel drift-operator`."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from sentinel.cli.drift_operator.command import drift_operator


@pytest.mark.parametrize("name", ["Sidecars", "a b", "-a", "a" * 254])
def test_a_sidecar_config_that_is_no_name_is_refused(name: str) -> None:
    result = CliRunner().invoke(drift_operator, [f"--sidecar-config={name}"])

    assert result.exit_code == 2
    assert "expected the name of a ConfigMap" in result.output
