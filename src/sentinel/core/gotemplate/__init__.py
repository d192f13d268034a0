"""Go's text/template, as far as `message_data` needs it: for now, how Go prints values."""

from sentinel.core.gotemplate.printer import go_string

__all__ = ["go_string"]
