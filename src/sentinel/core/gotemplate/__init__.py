"""Go's text/template over JSON, as `message_data` is written in it.

`lex` → `parse` → `tree`; `evaluate`, `steps` and `program` compile the tree and run it; `functions`, `printf`,
`verbs`, `printer` and `floats` are what it prints with; `reads` says beforehand what it will look at.
"""

from sentinel.core.gotemplate.errors import Failed, Missing, TemplateError
from sentinel.core.gotemplate.paths import parse_path
from sentinel.core.gotemplate.printer import go_string
from sentinel.core.gotemplate.template import Template
from sentinel.core.gotemplate.values import described

__all__ = ["Failed", "Missing", "Template", "TemplateError", "described", "go_string", "parse_path"]
