"""Generated templates render the same here and in Go."""

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
from tests.golden.gotemplate.oracle import GoNotFound, Oracle, RenderResult, ours

EXAMPLES = 2000
TEMPLATES = 10_000
BATCH = 200


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return oracle.build(tmp_path_factory.mktemp("gotemplate"))
    except GoNotFound as error:
        pytest.fail(f"{error}: run `make .venv`, which installs one")


@pytest.fixture(scope="module")
def go(program: Path) -> Iterator[Oracle]:
    with oracle.serving(program) as serving:
        yield serving


def is_comparable(result: RenderResult) -> bool:
    """Go has none of our limits, or much wider ones. An address differs between runs."""
    incomparable = ("stopped", "maximum template depth", "prints an address")
    return not any(part in result.problem for part in incomparable)


def assert_same(source: str, document: Json, our: RenderResult, theirs: RenderResult) -> None:
    assert our.fails == theirs.fails, (source, document, our, theirs)
    assert our.output == theirs.output, (source, document)


def test_go_reproduces_the_golden_table(program: Path, tmp_path: Path) -> None:
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
def test_a_generated_template_renders_as_in_go(go: Oracle, random: Random) -> None:
    generator = TemplateGenerator(random)
    source, document = generator.template(), generator.document()

    our = ours(source, document)
    assume(is_comparable(our))

    (theirs,) = go.render([(source, document)])
    assert_same(source, document, our, theirs)


@pytest.mark.timeout(600)
def test_ten_thousand_seeded_templates_render_as_in_go(go: Oracle) -> None:
    generator = TemplateGenerator(Random(1))  # noqa: S311 - the same templates every time
    outcomes: Counter[str] = Counter()

    for _ in range(TEMPLATES // BATCH):
        cases = [(generator.template(), generator.document()) for _ in range(BATCH)]
        compared = [(*case, our) for case in cases if is_comparable(our := ours(*case))]
        results = go.render([(source, document) for source, document, _ in compared])
        for (source, document, our), theirs in zip(compared, results, strict=True):
            assert_same(source, document, our, theirs)
            outcomes[our.fails or "output"] += 1

    # Most templates must not be invalid.
    assert outcomes["output"] > TEMPLATES / 3
    assert outcomes["parse"] > TEMPLATES / 20
