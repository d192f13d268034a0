"""The tokens with which the parts of one `sentinel up` show who they are, and the one for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from sentinel.cli.up.data_dir import DataDir, Kept
from sentinel.cli.up.plan import UpPlan
from sentinel.core.access import Role


class UpTokens(msgspec.Struct, frozen=True, kw_only=True):
    """Whoever asks the API, and the token of each."""

    pulse: Kept
    """Of all pulses, and of the view, which reads no more than they do."""
    adapters: Mapping[str, Kept]
    """By the adapter's name."""
    demo: Kept | None = None
    admin: Kept | None = None
    """For people, where they need one."""

    @property
    def secrets(self) -> Iterator[str]:
        """All of them, to be kept out of every log."""
        for kept in (self.pulse, *self.adapters.values(), self.demo, self.admin):
            if kept is not None:
                yield kept.token


def make_keys(plan: UpPlan, home: DataDir, *, has_demo: bool) -> UpTokens:
    """Those that the plan needs, each made where there is none yet. Raises `Uninhabitable`."""
    return UpTokens(
        pulse=home.part_token("pulse", role=Role.PULSE),
        adapters={
            name: home.part_token(f"adapter-{name}", role=Role.ADAPTER, adapter=name)
            for name in (each.adapter.name for each in plan.adapters)
        },
        demo=home.part_token("demo", role=Role.OPERATOR) if has_demo else None,
        admin=home.admin_token() if plan.is_open_to_others else None,
    )
