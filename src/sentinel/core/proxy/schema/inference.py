"""Rows of a route's `inference` block: upstreams that serve language models."""

from __future__ import annotations

from typing import Final

from sentinel.core.proxy.schema.row import Entry, Kind, Repeated, Row, value
from sentinel.core.proxy.schema.types import (
    ANY_TEXT,
    BOOLEAN,
    COUNT,
    MILLISECONDS,
    STATUS,
    TEXT,
    Choice,
    Number,
    Pattern,
)

_PROVIDER: Final = Choice(("generic", "openai", "anthropic"), ("open-ai", "open_ai"))
_FAILURE_MODE: Final = Choice(("open", "closed"))


def _guardrail(name: str, description: str, actions: tuple[str, ...], *rows: Row, timeout: int) -> Row:
    return Row(
        name,
        description,
        rows=(
            Row("enabled", "Whether it is on.", value(BOOLEAN), default=False),
            Row("agent", "The agent that decides.", value(TEXT, refers_to=Kind.AGENT), is_required=True),
            Row("action", "What to do.", value(Choice(actions)), default="log"),
            *rows,
            Row("timeout-ms", "Timeout of the agent.", value(MILLISECONDS), default=timeout),
            Row("failure-mode", "What to do if the agent fails.", value(_FAILURE_MODE), default="open"),
        ),
    )


INFERENCE: Final = Row(
    "inference",
    "For upstreams that serve language models.",
    rows=(
        Row("provider", "Their API.", value(_PROVIDER), default="generic"),
        Row("model-header", "Header with the model.", value(TEXT)),
        Row(
            "rate-limit",
            "Limits in tokens.",
            rows=(
                Row("tokens-per-minute", "Tokens.", value(COUNT), is_required=True),
                Row("requests-per-minute", "Requests.", value(COUNT)),
                Row("burst-tokens", "Tokens at once.", value(COUNT), default=10_000),
                Row(
                    "estimation-method",
                    "How tokens are counted.",
                    value(Choice(("chars", "words", "tiktoken"), ("characters",))),
                    default="chars",
                ),
            ),
        ),
        Row(
            "routing",
            "How to choose a target.",
            rows=(
                Row(
                    "strategy",
                    "The rule.",
                    value(
                        Choice(
                            ("least-tokens-queued", "round-robin", "least-latency"),
                            ("least_tokens_queued", "round_robin", "least_latency"),
                        )
                    ),
                    default="least-tokens-queued",
                ),
                Row("queue-depth-header", "Header with the length of the queue.", value(TEXT)),
            ),
        ),
        Row(
            "model-routing",
            "Upstreams by model.",
            rows=(
                Row(
                    "model",
                    "A model, `*` for any, and its upstream.",
                    value(TEXT, name="pattern"),
                    properties=(
                        Entry(TEXT, "upstream", refers_to=Kind.UPSTREAM),
                        Entry(_PROVIDER, "provider", is_required=False),
                    ),
                    repeated=Repeated.ALL,
                ),
                Row("default-upstream", "For all others.", value(TEXT, refers_to=Kind.UPSTREAM)),
            ),
        ),
        Row(
            "budget",
            "Tokens for a period.",
            rows=(
                Row(
                    "period",
                    "hourly, daily, monthly, or seconds.",
                    value(
                        Pattern(
                            "hourly, daily, monthly or a number of seconds", "hourly|daily|monthly|[0-9]+", "daily"
                        )
                    ),
                    default="daily",
                ),
                Row("limit", "Tokens.", value(COUNT), is_required=True),
                Row("alert-thresholds", "Shares at which to warn.", value(Number(0, 1), is_many=True)),
                Row("enforce", "Whether to refuse requests.", value(BOOLEAN), default=True),
                Row("rollover", "Whether the rest is kept.", value(BOOLEAN), default=False),
                Row("burst-allowance", "Share above the limit.", value(Number())),
            ),
        ),
        Row(
            "cost-attribution",
            "Costs of requests.",
            rows=(
                Row("enabled", "Whether to compute them.", value(BOOLEAN), default=True),
                Row("default-input-cost", "Per million tokens.", value(Number()), default=1),
                Row("default-output-cost", "Per million tokens.", value(Number()), default=2),
                Row("currency", "Currency.", value(TEXT), default="USD"),
                Row(
                    "pricing",
                    "Prices by model.",
                    rows=(
                        Row(
                            "model",
                            "A model, `*` for any.",
                            value(TEXT, name="pattern"),
                            rows=(
                                Row("input-cost-per-million", "Price.", value(Number()), is_required=True),
                                Row("output-cost-per-million", "Price.", value(Number()), is_required=True),
                                Row("currency", "Currency.", value(TEXT)),
                            ),
                            repeated=Repeated.ALL,
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "guardrails",
            "Agents that look at prompts and answers.",
            rows=(
                _guardrail(
                    "prompt-injection",
                    "Detect prompt injection.",
                    ("log", "block", "warn"),
                    Row("block-status", "Status of a refusal.", value(STATUS), default=400),
                    Row("block-message", "Text of a refusal.", value(ANY_TEXT)),
                    timeout=500,
                ),
                _guardrail(
                    "pii-detection",
                    "Detect personal data.",
                    ("log", "redact", "block"),
                    Row("categories", "What to look for.", value(TEXT, is_many=True)),
                    timeout=1000,
                ),
            ),
        ),
    ),
)
