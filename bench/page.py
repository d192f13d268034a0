"""The performance page: a heading, and a section for each topic, which is replaced when the topic is measured."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

HEADING = """\
# Performance

<!-- Written by `make bench`. -->

Measured on loopback, with a real RabbitMQ, Google's Pub/Sub emulator and a server in another process; resources
of 1.8 kB. CPU is that of the Sentinel process alone. `make bench` measures everything, and `make bench
TOPICS="hub agent"` only the sections that it names. Each section says when and on what machine it was measured.
Compare what the machines need for the same work before you compare sections.
"""

_SECTION = re.compile(r"<!-- ([a-z]+) -->\n(.*?)(?=<!-- [a-z]+ -->\n|\Z)", re.DOTALL)


def replace_sections(page: str, sections: Mapping[str, Sequence[str]], order: Sequence[str]) -> str:
    """Return the page with these sections, each a list of lines, in place of the ones before."""
    texts = {found[1]: found[2].strip() for found in _SECTION.finditer(page)}
    texts |= {name: "\n".join(lines).strip() for name, lines in sections.items()}
    return HEADING + "".join(f"\n<!-- {name} -->\n{texts[name]}\n" for name in order if name in texts)
