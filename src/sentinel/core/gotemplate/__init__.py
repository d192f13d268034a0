"""Go's text/template over JSON, the language of `message_data`.

`lex`, `tokens`, `expressions` and `parse` build the `tree`. `template` compiles it with `evaluate` and `steps`,
and runs it. `functions`, `printf`, `verbs`, `printer` and `floats` print values. `reads` computes which fields a
template reads.
"""

from sentinel.core.gotemplate.errors import MissingField, RenderError, TemplateError
from sentinel.core.gotemplate.parse import parse_path
from sentinel.core.gotemplate.printer import go_string
from sentinel.core.gotemplate.template import Template
from sentinel.core.gotemplate.values import describe_type

__all__ = ["MissingField", "RenderError", "Template", "TemplateError", "describe_type", "go_string", "parse_path"]
