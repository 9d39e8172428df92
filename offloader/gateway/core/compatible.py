"""Whether a consumer may join those that are there. The sentences are brokers'."""

from __future__ import annotations

from offloader.gateway.core.events import Joining
from offloader.gateway.values import ErrorCode, RefusedError, SubscriptionType

_NAMES = {
    SubscriptionType.EXCLUSIVE: "Exclusive",
    SubscriptionType.SHARED: "Shared",
    SubscriptionType.FAILOVER: "Failover",
    SubscriptionType.KEY_SHARED: "Key_Shared",
}


def check_compatible(there: Joining, joining: Joining) -> None:
    """Raises RefusedError. Where it does not, the two may share the subscription."""
    if joining.type != there.type:
        raise _different(
            f"Active subscription type of '{_NAMES[there.type]}' is different than the connecting consumer's type"
            f" '{_NAMES[joining.type]}'."
        )
    if there.type == SubscriptionType.EXCLUSIVE:
        raise RefusedError(ErrorCode.CONSUMER_BUSY, "Exclusive consumer is already connected")
    if there.type != SubscriptionType.KEY_SHARED:
        return
    ours, theirs = there.key_policy, joining.key_policy
    if ours.mode != theirs.mode:
        raise _different(
            f"Active subscription key_shared mode of '{ours.mode}' is different than the connecting consumer's"
            f" key_shared mode '{theirs.mode}'."
        )
    if ours.out_of_order and not theirs.out_of_order:
        raise _different(
            "Active subscription allows out of order delivery while the connecting consumer does not allow it."
        )
    if theirs.out_of_order and not ours.out_of_order:
        raise _different(
            "Active subscription does not allow out of order delivery while the connecting consumer allows it."
        )


def _different(text: str) -> RefusedError:
    return RefusedError(ErrorCode.CONSUMER_BUSY, f"Subscription is of different type. {text}")
