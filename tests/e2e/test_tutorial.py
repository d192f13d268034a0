"""The tutorials, run as their pages say.

The commands run unchanged from the checkout, each in its terminal. Only the environment differs from that of a
reader: the home folder belongs to the test, ports are free ones (output is compared as if they were 8080, and 8100
and up for proxies), and `make` only prints what it would install.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from random import SystemRandom

import pytest

from sentinel.cli.up.instances.ports import Ports, is_free, load_or_choose
from tests.e2e import tutorial_page
from tests.e2e.tutorial_page import InvalidPage, is_expected
from tests.e2e.tutorial_terminal import Terminal, TutorialRunner
from tools.services.server import free_port

CHECKOUT = Path(__file__).parents[2]
TUTORIALS = CHECKOUT / "docs" / "tutorial"
PAGE = TUTORIALS / "first-cluster.md"
PROXY_PAGE = TUTORIALS / "first-proxy.md"
PAGE_PORTS = Ports(8100)
"""The ports of proxies on the page."""


def clean_environ(home: Path, *, port: int) -> dict[str, str]:
    """Return the environment of a new user: no command of the checkout is on the path."""
    path = [each for each in os.environ["PATH"].split(":") if not Path(each).is_relative_to(CHECKOUT)]
    return {
        "PATH": ":".join(path),
        "HOME": str(home),
        "PWD": str(CHECKOUT),
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "MAKEFLAGS": "n",
        "SENTINEL_LISTEN": f"127.0.0.1:{port}",
        "SENTINEL_LISTEN_GRPC": "127.0.0.1:0",
        "SENTINEL_SERVER": f"http://127.0.0.1:{port}",
    }


def move_ports(line: str, *, source: Ports, target: Ports) -> str:
    """Replace the ports of proxies in a line."""

    def moved(found: re.Match[str]) -> str:
        port = int(found[1])
        return f"127.0.0.1:{target.base + port - source.base}" if port in source.all else found[0]

    return re.sub(r"127\.0\.0\.1:([0-9]+)", moved, line)


async def run_page(page: str, home: Path, *, port: int = 8080, proxies: Ports = PAGE_PORTS) -> None:
    environ = clean_environ(home, port=port)
    async with (
        Terminal(folder=CHECKOUT, environ=environ, environ_file=home / ".first") as first,
        Terminal(folder=CHECKOUT, environ=environ, environ_file=home / ".second") as second,
    ):
        runner = TutorialRunner(
            {"first": first, "second": second},
            rewrite=lambda line: move_ports(
                line.replace(f"127.0.0.1:{port}", "127.0.0.1:8080"), source=proxies, target=PAGE_PORTS
            ),
            rewrite_command=lambda command: move_ports(command, source=PAGE_PORTS, target=proxies),
        )
        await runner.run(tutorial_page.parse(page))


async def test_every_command_of_the_tutorial_does_what_the_page_says(tmp_path: Path) -> None:
    await run_page(PAGE.read_text(), tmp_path, port=free_port())

    assert not (tmp_path / "first-cluster").exists()


async def test_every_command_of_the_proxy_tutorial_does_what_the_page_says(tmp_path: Path) -> None:
    folder = tmp_path / "first-proxy" / "data" / "instances"
    folder.mkdir(parents=True)
    proxies = load_or_choose(
        folder / "ports.json",
        random=SystemRandom(),
        is_free=lambda port: port != PAGE_PORTS.base and is_free(port),
    )

    await run_page(PROXY_PAGE.read_text(), tmp_path, port=free_port(), proxies=proxies)

    assert not (tmp_path / "first-proxy").exists()


@pytest.mark.parametrize("file", [PAGE, PROXY_PAGE], ids=lambda file: file.stem)
def test_a_tutorial_is_linked_and_its_links_are_valid(file: Path) -> None:
    page = file.read_text()

    missing = [link for link in tutorial_page.links(page) if not (file.parent / link).is_file()]

    assert missing == []
    assert f"({file.relative_to(CHECKOUT)})" in (CHECKOUT / "README.md").read_text()


@pytest.mark.parametrize(
    "page",
    [
        pytest.param("    sentinel up", id="indented code"),
        pytest.param("~~~\nsentinel up\n~~~", id="another fence"),
        pytest.param("<pre>sentinel up</pre>", id="HTML"),
        pytest.param("```\nsentinel up\n```", id="a block without a language"),
        pytest.param("```console\n$ sentinel up\n```", id="no terminal"),
        pytest.param("```console third\n$ sentinel up\n```", id="an unknown terminal"),
        pytest.param("Run this:\n```sh\nsentinel up\n```", id="neither file nor terminal"),
        pytest.param("Now `sentinel.sh`:\n```sh\nsentinel up\n```", id="a script"),
        pytest.param("```console first\n$ sentinel up", id="no end"),
        pytest.param("Try `.venv/bin/sentinel up --demo`, too.", id="in a sentence"),
    ],
)
def test_a_command_that_would_not_run_is_refused(page: str) -> None:
    with pytest.raises(InvalidPage, match=r"^line [12]: expected"):
        tutorial_page.parse(page)


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        pytest.param("$ echo one\ntwo", "line 3: echo one: unexpected output", id="other output"),
        pytest.param("$ echo one; echo two\none", "unexpected output", id="more output"),
        pytest.param("$ echo one\none\ntwo", "unexpected output", id="less output"),
        pytest.param("$ echo one; exit 3\none", "line 3: .*: the command failed", id="a failure"),
        pytest.param("one\n$ echo one", "line 3: : unexpected output", id="no command"),
    ],
)
async def test_a_wrong_page_fails_with_its_line(page: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=problem):
        await run_page(f"\n```console second\n{page}\n```\n", tmp_path)


async def test_a_terminal_keeps_files_folder_and_variables(tmp_path: Path) -> None:
    page = """
```console second
$ cd && export NUMBER=7
```

Write `seven.txt`:

```text
seven
```

```console second
$ echo "$NUMBER is $(cat seven.txt)"
7 is seven
```

```console first
$ echo "${NUMBER-unknown}"
unknown
```
"""
    await run_page(page, tmp_path)


@pytest.mark.parametrize(
    ("expected", "shown", "matches"),
    [
        (["a", "b"], ["a", "", "b  "], True),
        (["READY  AGE"], ["READY   AGE"], True),
        (["age … ago"], ["age 3s ago"], True),
        (["age … ago"], ["age 3s"], False),
        (["a", "…", "c"], ["a", "c"], True),
        (["a", "…", "c"], ["a", "b", "c", "b", "c"], True),
        (["a", "…", "c"], ["a", "b", "c", "d"], False),
        (["a", "…", "b", "c", "…"], ["a", "b", "x", "b", "c"], True),
        (["a", "…", "a"], ["a"], False),
        (["…"], [], True),
        ([], ["a"], False),
        (["3.5"], ["3x5"], False),
    ],
)
def test_output_is_compared_by_line_except_for_ellipses(
    expected: list[str], shown: list[str], matches: bool
) -> None:
    assert is_expected(expected, shown) is matches


def test_a_running_command_may_show_more_but_not_less() -> None:
    assert is_expected(["a", "…", "c"], ["a", "c", "d"], is_partial=True)
    assert not is_expected(["a", "…", "c"], ["a", "b"], is_partial=True)
    assert not is_expected(["b"], ["a", "b"], is_partial=True)
