from __future__ import annotations

import pytest

from sentinel.core.hub import secret_names


@pytest.mark.parametrize("name", ["api-cert", "a", "A.b_c~d-1", "x" * 128])
def test_a_name_is_a_segment_of_a_url(name: str) -> None:
    assert secret_names.is_secret_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "a#b", "é", "a\n", "x" * 129])
def test_other_names_are_refused(name: str) -> None:
    assert not secret_names.is_secret_name(name)


def test_only_the_hubs_own_secrets_count_each_once() -> None:
    references = ("env:A", "secret:b", "vault:kv/x#y", "secret:a", "secret:b", "secret:secret:c")

    assert secret_names.names(references) == ("b", "a", "secret:c")
