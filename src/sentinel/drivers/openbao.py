"""Requests the health of OpenBao servers: the status of the response to `GET /v1/sys/health` says it."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from sentinel.drivers.rest.client import RestClient
from sentinel.drivers.rest.errors import RequestRejected, ServerError
from sentinel.drivers.rest.tls import Tls, TlsSettings
from sentinel.ports.errors import Misconfigured

TIMEOUT: Final = timedelta(seconds=3)
_LIMIT: Final = 64 * 1024


async def request_health(url: str, ca_certificate: str, *, user_agent: str) -> tuple[int, str]:
    """Return the status of the response, or 0 and why there is none. `ca_certificate` is trusted, in PEM."""
    client = RestClient(
        base_url=url, user_agent=user_agent, tls=Tls(TlsSettings(ca_data=ca_certificate)), connections=1
    )
    try:
        response = await client.request("GET", "/v1/sys/health", timeout=TIMEOUT, limit=_LIMIT)
    except RequestRejected as error:
        return error.response.status, ""
    except (ServerError, Misconfigured) as error:
        return 0, str(error)
    finally:
        await client.close()
    return response.status, ""
