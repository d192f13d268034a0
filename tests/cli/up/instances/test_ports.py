"""The ports of instances."""

from __future__ import annotations

import socket
from pathlib import Path
from random import Random

import pytest

from sentinel.cli.up.instances.ports import MAX_INSTANCES, NoFreePorts, Ports, is_free, load_or_choose

RANDOM = Random(1)  # noqa: S311  # ports are no secrets

RANDOM = Random(1)  # noqa: S311  # ports are no secrets


def test_the_preferred_ports_are_taken_if_they_are_free(tmp_path: Path) -> None:
    chosen = load_or_choose(tmp_path / "ports.json", random=RANDOM, is_free=lambda port: True)

    assert chosen == Ports(8100)


def test_other_ports_are_taken_if_one_of_the_preferred_is_in_use(tmp_path: Path) -> None:
    chosen = load_or_choose(tmp_path / "ports.json", random=RANDOM, is_free=lambda port: port != 8152)

    assert chosen.base >= 10_000


def test_ports_that_were_chosen_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "ports.json"
    chosen = load_or_choose(file, random=RANDOM, is_free=lambda port: port >= 10_000)

    kept = load_or_choose(file, random=RANDOM, is_free=lambda port: False)

    assert kept == chosen


def test_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "ports.json"
    file.write_text("{")

    assert load_or_choose(file, random=RANDOM, is_free=lambda port: True) == Ports(8100)
    assert load_or_choose(file, random=RANDOM, is_free=lambda port: False) == Ports(8100)


def test_a_machine_without_free_ports_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(NoFreePorts, match="expected 100 free ports in a row"):
        load_or_choose(tmp_path / "ports.json", random=RANDOM, is_free=lambda port: False)


def test_no_two_listeners_share_a_port() -> None:
    ports = Ports(8100)
    numbers = range(1, MAX_INSTANCES + 1)

    used = [ports.upstream, ports.next_upstream]
    used += [base + number for base in (ports.listener, ports.metrics) for number in numbers]

    assert len(set(used)) == len(used)
    assert set(used) <= set(ports.all)


def test_a_port_in_use_is_recognized() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        assert not is_free(port)
