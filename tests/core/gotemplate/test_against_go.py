"""Our templates beside Go's own, on templates that nobody has thought of."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sentinel.core.json import Json
from tests.golden.gotemplate import oracle
from tests.golden.gotemplate.generator import TemplateGenerator
from tests.golden.gotemplate.oracle import Answer, NoGo, Oracle, ours

EXAMPLES = 2000
SWEPT = 10_000
BATCH = 200


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return oracle.build(tmp_path_factory.mktemp("gotemplate"))
    except NoGo as error:
        pytest.fail(f"{error}: run `make .venv`, which installs one")


@pytest.fixture(scope="module")
def go(program: Path) -> Iterator[Oracle]:
    with oracle.serving(program) as serving:
        yield serving


def is_bounded(answer: Answer) -> bool:
    """Go has no such bounds, or much wider ones, and would take its time."""
    return any(words in answer.problem for words in ("stopped", "maximum template depth"))


def is_unlike_go(answer: Answer) -> bool:
    """An address, which is never twice the same."""
    return "asks for an address" in answer.problem


def assert_alike(source: str, document: Json, our: Answer, theirs: Answer) -> None:
    assert our.fails == theirs.fails, (source, document, our, theirs)
    assert our.output == theirs.output, (source, document)


def test_go_still_makes_the_golden_table_as_it_stands(program: Path, tmp_path: Path) -> None:
    made = tmp_path / "golden.jsonl"

    subprocess.run([program, "-to", made], cwd=oracle.FOLDER, check=True, timeout=60)

    assert made.read_bytes() == (oracle.FOLDER / "golden.jsonl").read_bytes()


@pytest.mark.timeout(600)
@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
@given(st.randoms(use_true_random=False))
def test_a_template_does_what_go_makes_of_it(go: Oracle, random: Random) -> None:
    author = TemplateGenerator(random)
    source, document = author.template(), author.document()

    our = ours(source, document)
    assume(not is_bounded(our) and not is_unlike_go(our))

    (theirs,) = go.render([(source, document)])
    assert_alike(source, document, our, theirs)


@pytest.mark.timeout(600)
def test_ten_thousand_further_templates_do_what_go_makes_of_them(go: Oracle) -> None:
    author = TemplateGenerator(Random(1))  # noqa: S311 - the same templates every time
    outcomes: Counter[str] = Counter()

    for _ in range(SWEPT // BATCH):
        cases = [(author.template(), author.document()) for _ in range(BATCH)]
        compared = [(*case, our) for case in cases if not (is_bounded(our := ours(*case)) or is_unlike_go(our))]
        answers = go.render([(source, document) for source, document, _ in compared])
        for (source, document, our), theirs in zip(compared, answers, strict=True):
            assert_alike(source, document, our, theirs)
            outcomes[our.fails or "output"] += 1

    # What is compared must not be mostly mistakes.
    assert outcomes["output"] > SWEPT / 3
    assert outcomes["parse"] > SWEPT / 20
