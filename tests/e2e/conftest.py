"""What end-to-end tests share."""

from __future__ import annotations

import pytest

from tests.support.brokers.inbox import Inbox
from tests.support.brokers.rabbitmq import Inbox as Queue


@pytest.fixture
def inbox(rabbitmq_url: str, mailbox: Queue) -> Inbox:
    """A queue in which to read what was published."""
    return Inbox(rabbitmq_url, mailbox)
