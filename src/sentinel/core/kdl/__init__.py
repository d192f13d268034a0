"""KDL 2, the language of the proxy's configuration, with the position of everything.

`text` decodes a file, `lex` makes tokens of it (`quoted` and `strings` those of strings), `parse` makes a
`document` of them (`entries` the arguments and properties of a node, `values` and `numbers` their values).
`reading` puts that together; where `lost_quotes` or `wrong_braces` find what was meant, it reads the text again
with `repairs`. `printer` writes documents, `upgrade` rewrites version 1, `spans` finds pieces of the text for
rewriting them.
"""

from sentinel.core.kdl.characters import is_word
from sentinel.core.kdl.document import Annotation, Document, Node, Place, Property, Scalar, Value
from sentinel.core.kdl.numbers import MAX_DIGITS
from sentinel.core.kdl.parse import MAX_DEPTH, Parsed
from sentinel.core.kdl.printer import print_document, print_name, print_node, print_value
from sentinel.core.kdl.problems import MAX_PROBLEMS, Code, Problem
from sentinel.core.kdl.reading import parse
from sentinel.core.kdl.spans import Spans
from sentinel.core.kdl.text import MAX_BYTES, split_lines
from sentinel.core.kdl.upgrade import Upgraded, upgrade

__all__ = [
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_DIGITS",
    "MAX_PROBLEMS",
    "Annotation",
    "Code",
    "Document",
    "Node",
    "Parsed",
    "Place",
    "Problem",
    "Property",
    "Scalar",
    "Spans",
    "Upgraded",
    "Value",
    "is_word",
    "parse",
    "print_document",
    "print_name",
    "print_node",
    "print_value",
    "split_lines",
    "upgrade",
]
