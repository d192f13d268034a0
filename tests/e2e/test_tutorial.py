"""The tutorial that leads to a healed cluster, followed to the letter.

Its commands run as they stand on the page, each in the terminal it is for, from the checkout. What differs from a
reader's machine is said by the environment alone: the home folder is the test's own, the port is a free one (and
read as 8080 where it is shown), and `make` only says what it would install.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e import tutorial_page
from tests.e2e.tutorial_page import Unclear, is_shown
from tests.e2e.tutorial_terminal import Reader, Terminal
from tools.services.server import free_port

CHECKOUT = Path(__file__).parents[2]
PAGE = CHECKOUT / "docs" / "tutorial" / "first-cluster.md"


def environ_of_a_reader(home: Path, *, port: int = 8080) -> dict[str, str]:
    """Of somebody who has never used this: nothing of ours is on the path."""
    path = [each for each in os.environ["PATH"].split(":") if not Path(each).is_relative_to(CHECKOUT)]
    return {
        "PATH": ":".join(path),
        "HOME": str(home),
        "PWD": str(CHECKOUT),
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "MAKEFLAGS": "n",
        "SENTINEL_LISTEN": f"127.0.0.1:{port}",
        "SENTINEL_SERVER": f"http://127.0.0.1:{port}",
    }


async def follow(page: str, home: Path, *, port: int = 8080) -> None:
    environ = environ_of_a_reader(home, port=port)
    async with (
        Terminal(folder=CHECKOUT, environ=environ, memory=home / ".first") as first,
        Terminal(folder=CHECKOUT, environ=environ, memory=home / ".second") as second,
    ):
        reader = Reader(
            {"first": first, "second": second},
            as_printed=lambda line: line.replace(f"127.0.0.1:{port}", "127.0.0.1:8080"),
        )
        await reader.follow(tutorial_page.read(page))


async def test_every_command_of_the_tutorial_does_what_the_page_says(tmp_path: Path) -> None:
    await follow(PAGE.read_text(), tmp_path, port=free_port())

    assert not (tmp_path / "first-cluster").exists()


def test_the_tutorial_is_linked_and_its_links_are_valid() -> None:
    page = PAGE.read_text()

    missing = [link for link in tutorial_page.links(page) if not (PAGE.parent / link).is_file()]

    assert missing == []
    assert f"({PAGE.relative_to(CHECKOUT)})" in (CHECKOUT / "README.md").read_text()


@pytest.mark.parametrize(
    "page",
    [
        pytest.param("    sentinel up", id="indented code"),
        pytest.param("~~~\nsentinel up\n~~~", id="another sort of fence"),
        pytest.param("<pre>sentinel up</pre>", id="HTML"),
        pytest.param("```\nsentinel up\n```", id="a block that says nothing"),
        pytest.param("```console\n$ sentinel up\n```", id="no terminal"),
        pytest.param("```console third\n$ sentinel up\n```", id="an unknown terminal"),
        pytest.param("Run this:\n```sh\nsentinel up\n```", id="neither a file nor a terminal"),
        pytest.param("Now `sentinel.sh`:\n```sh\nsentinel up\n```", id="a script"),
        pytest.param("```console first\n$ sentinel up", id="no end"),
        pytest.param("Try `.venv/bin/sentinel up --demo`, too.", id="in a sentence"),
    ],
)
def test_a_command_that_would_not_run_is_refused(page: str) -> None:
    with pytest.raises(Unclear, match=r"^line [12]: expected"):
        tutorial_page.read(page)


@pytest.mark.parametrize(
    ("page", "objection"),
    [
        pytest.param("$ echo one\ntwo", "line 3: echo one: it shows something else", id="something else"),
        pytest.param("$ echo one; echo two\none", "shows something else", id="more"),
        pytest.param("$ echo one\none\ntwo", "shows something else", id="less"),
        pytest.param("$ echo one; exit 3\none", "line 3: .*: it fails", id="a failure"),
        pytest.param("one\n$ echo one", "line 3: : it shows something else", id="nothing"),
    ],
)
async def test_a_wrong_page_fails_with_its_line(page: str, objection: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=objection):
        await follow(f"\n```console second\n{page}\n```\n", tmp_path)


async def test_a_terminal_keeps_files_folder_and_variables(
    tmp_path: Path,
) -> None:
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
    await follow(page, tmp_path)


@pytest.mark.parametrize(
    ("promised", "shown", "holds"),
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
    promised: list[str], shown: list[str], holds: bool
) -> None:
    assert is_shown(promised, shown) is holds


def test_a_running_command_may_show_more_but_not_less() -> None:
    assert is_shown(["a", "…", "c"], ["a", "c", "d"], so_far=True)
    assert not is_shown(["a", "…", "c"], ["a", "b"], so_far=True)
    assert not is_shown(["b"], ["a", "b"], so_far=True)
