"""Uses the API as a backend and its admins would, with the client that openapi-python-client generated.

scripts/check-contract runs this against a new perdiem at PERDIEM_URL, with an admin's PERDIEM_KEY.
"""

import datetime as dt
import os
from uuid import UUID

from perdiem_client import AuthenticatedClient
from perdiem_client.api.changes import list_changes
from perdiem_client.api.claims import claim, claim_batch, get_usage
from perdiem_client.api.entries import adjust, list_entries, reset
from perdiem_client.api.grants import (
    confirm_grant,
    explain_grant,
    get_grant,
    list_grants,
    reverse_grant,
)
from perdiem_client.api.keys import create_key, get_key, get_own_key, list_keys, replace_key, revoke_key
from perdiem_client.api.overrides import (
    delete_override,
    get_override,
    list_overrides,
    put_override,
)
from perdiem_client.api.policies import (
    archive_policy,
    backtest_policy,
    get_policy,
    list_policy_versions,
    put_policy,
)
from perdiem_client.models import (
    AdjustmentRequest,
    Anything,
    BacktestBody,
    BatchBody,
    BatchClaim,
    ChangeKind,
    ClaimAnswer,
    ClaimBody,
    ClaimBodyMetadataType0,
    ClaimOutcome,
    DenialBody,
    EntryKind,
    GrantedItem,
    GrantState,
    KeyAnswer,
    KeyBody,
    KeyReplacementBody,
    LimitBody,
    Mode,
    OnlyTrue,
    OverrideBody,
    OverrideLimitBody,
    PolicyBody,
    Problem,
    ResetRequest,
    ReversalRequest,
    Role,
)
from perdiem_client.types import UNSET

# In this zone it is noon, so that no day ends during the run.
OFFSET_HOURS = 12 - dt.datetime.now(dt.timezone.utc).hour
ZONE = f"{OFFSET_HOURS:+03d}:00"

client = AuthenticatedClient(
    base_url=os.environ["PERDIEM_URL"],
    token=os.environ["PERDIEM_KEY"],
    raise_on_unexpected_status=True,
)


def ask(operation, status, *arguments, **named):
    """Calls an operation. The status must be the expected one. Returns the parsed answer."""
    response = operation.sync_detailed(*arguments, client=client, **named)
    assert response.status_code == status, (operation.__name__, response.status_code, response.parsed)
    return response.parsed


def policies():
    limits = [LimitBody(max_=3, per="day"), LimitBody(max_=30, per="month")]
    made = ask(put_policy, 201, "benefit", body=PolicyBody(time_zone=ZONE, limits=limits))
    assert (made.name, made.version, made.time_zone) == ("benefit", 1, ZONE)
    assert [(limit.max_, limit.per) for limit in made.limits] == [(3, "day"), (30, "month")]

    changed = PolicyBody(time_zone=ZONE, limits=limits, description="3 a day", reason="words")
    stale = ask(put_policy, 412, "benefit", body=changed, if_match='"9"')
    assert isinstance(stale, Problem) and stale.type_ == "/docs/problems#precondition-failed"
    assert ask(put_policy, 200, "benefit", body=changed, if_match='"1"').version == 2
    assert ask(get_policy, 200, "benefit").description == "3 a day"
    versions = ask(list_policy_versions, 200, "benefit").items
    assert [(version.version, version.reason) for version in versions] == [(2, "words"), (1, None)]

    alias = PolicyBody(time_zone="GMT+8", limits=limits)
    assert ask(put_policy, 201, "alias", body=alias).time_zone == "+08:00"
    wrong = ask(put_policy, 422, "wrong", body=PolicyBody(time_zone="Mars/Base", limits=[]))
    assert {part.pointer for part in wrong.errors} == {"#/time_zone", "#/limits"}


def claims():
    def order(number, **named):
        metadata = ClaimBodyMetadataType0.from_dict({"order": f"A-{number}"})
        return {
            "policy": "benefit",
            "idempotency_key": f"order-{number}",
            "body": ClaimBody(subject="member-42", metadata=metadata, **named),
        }

    first = ask(claim, 201, **order(1))
    assert isinstance(first, ClaimAnswer) and first.outcome is ClaimOutcome.GRANTED
    assert isinstance(first.grant.id, UUID) and first.grant.state is GrantState.GRANTED
    assert first.grant.metadata["order"] == "A-1"
    assert [(limit.used, limit.remaining) for limit in first.limits] == [(1, 2), (1, 29)]
    again = ask(claim, 200, **order(1))
    assert again.grant == first.grant
    reused = ask(claim, 422, **order(1, units=2))
    assert reused.type_ == "/docs/problems#idempotency-key-reused"

    would = ask(claim, 200, "benefit", body=ClaimBody(subject="member-42", units=2, dry_run=True))
    assert would.outcome is ClaimOutcome.GRANTED and would.grant is UNSET
    ask(claim, 201, **order(2))
    ask(claim, 201, **order(3))
    denied = ask(claim, 429, **order(4))
    assert isinstance(denied, DenialBody) and denied.violated_policies == ["day"]
    would = ask(claim, 200, "benefit", body=ClaimBody(subject="member-42", dry_run=True))
    assert would.outcome is ClaimOutcome.DENIED

    usage = ask(get_usage, 200, "benefit", "member-42")
    assert [(limit.per, limit.used) for limit in usage.limits] == [("day", 3), ("month", 3)]
    why = ask(get_usage, 200, "benefit", "member-42", units=1)
    assert why.outcome is ClaimOutcome.DENIED and why.lacking == ["day"]
    assert [entry.units for entry in why.limits[0].entries] == [1, 1, 1]
    # The client percent-encodes a subject, also its slash.
    ask(claim, 201, "benefit", body=ClaimBody(subject="group/ö 1"))
    assert ask(get_usage, 200, "benefit", "group/ö 1").limits[0].used == 1
    return first.grant


def grants(first):
    assert ask(get_grant, 200, first.id) == first
    explained = ask(explain_grant, 200, first.id)
    assert explained.grant == first and explained.took[0].last == 1
    seen, cursor = [], UNSET
    while cursor is not None:
        page = ask(list_grants, 200, policy="benefit", subject="member-42", limit=2, cursor=cursor)
        seen += page.items
        cursor = page.next_cursor
    assert len(seen) == 3 and seen[-1] == first
    found = ask(list_grants, 200, idempotency_key="order-1", state=GrantState.GRANTED)
    assert found.items == [first]
    ask(list_grants, 422, cursor="nobody-gave-this-one")


def corrections(first):
    """Reverses a grant, once. Enters units by hand."""
    reason = ReversalRequest(reason="SMS gateway refused")
    reversed_ = ask(reverse_grant, 201, first.id, body=reason)
    assert reversed_.grant.state is GrantState.REVERSED
    assert reversed_.grant.reversal.reason == "SMS gateway refused"
    assert reversed_.limits[0].used == 2
    assert ask(reverse_grant, 200, first.id, body=reason).grant == reversed_.grant
    assert ask(get_grant, 200, first.id) == reversed_.grant
    conflict = ask(confirm_grant, 409, first.id)
    assert isinstance(conflict, Problem)
    nobody = UUID("0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42")
    assert ask(reverse_grant, 404, nobody, body=reason).type_ == "/docs/problems#not-found"

    opening = {
        "body": AdjustmentRequest(units=2, reason="opening balance"),
        "idempotency_key": "opening-7",
    }
    entered = ask(adjust, 201, "benefit", "member-7", **opening)
    assert entered.kind is EntryKind.ADJUSTMENT and entered.limits[0].used == 2
    assert ask(adjust, 200, "benefit", "member-7", **opening) == entered
    ask(adjust, 422, "benefit", "member-7", body=AdjustmentRequest(units=-3, reason="too many"))
    begun = {"body": ResetRequest(per="day", reason="ticket 4711"), "idempotency_key": "ticket-4711"}
    begins = ask(reset, 201, "benefit", "member-7", **begun)
    assert begins.kind is EntryKind.RESET and begins.limits[0].used == 0
    assert ask(reset, 200, "benefit", "member-7", **begun) == begins
    ask(reset, 409, "benefit", "member-7", body=ResetRequest(per="day", reason="once more"))
    entries = ask(list_entries, 200, "benefit", "member-42").items
    kinds = [entry.kind for entry in entries]
    assert kinds == [EntryKind.REVERSAL, EntryKind.GRANT, EntryKind.GRANT, EntryKind.GRANT]
    assert (entries[0].units, entries[0].grant) == (-1, first.id)


def batches():
    """Sends several claims at once, and all or nothing. Confirms a hold."""
    body = BatchBody(
        claims=[
            BatchClaim(policy="benefit", subject="member-8", idempotency_key="batch-1"),
            BatchClaim(policy="benefit", subject="member-9", units=4),
            BatchClaim(policy="nowhere", subject="member-9"),
        ]
    )
    granted, refused, unknown = ask(claim_batch, 200, body=body).items
    assert isinstance(granted, GrantedItem) and granted.status == 201
    assert isinstance(refused, Problem) and refused.status == 422
    assert isinstance(unknown, Problem) and unknown.status == 404
    body.claims = [
        BatchClaim(policy="benefit", subject="member-10"),
        BatchClaim(policy="benefit", subject="member-8", units=3),
    ]
    body.atomic = True
    spared, denied = ask(claim_batch, 200, body=body).items
    assert isinstance(spared, Problem) and spared.status == 424
    assert isinstance(denied, DenialBody) and denied.status == 429
    assert ask(get_usage, 200, "benefit", "member-10").limits[0].used == 0

    hold = ask(claim, 201, "benefit", body=ClaimBody(subject="member-11", hold_seconds=600)).grant
    assert hold.state is GrantState.HELD
    confirmed = ask(confirm_grant, 201, hold.id).grant
    assert confirmed.state is GrantState.GRANTED
    assert ask(confirm_grant, 200, hold.id).grant == confirmed


def overrides():
    """Gives one customer more units for a day."""
    tomorrow = dt.datetime.now(dt.timezone.utc) + dt.timedelta(days=1)
    more = OverrideBody(
        limits=[OverrideLimitBody(max_=10, per="day")], until=tomorrow, reason="vip"
    )
    made = ask(put_override, 201, "benefit", "member-42", body=more)
    assert (made.subject, made.version, made.until) == ("member-42", 1, tomorrow)
    limits = ask(get_usage, 200, "benefit", "member-42").limits
    assert [limit.max_ for limit in limits] == [10, 30]
    assert ask(get_override, 200, "benefit", "member-42") == made
    assert ask(list_overrides, 200, "benefit").items == [made]
    ask(put_override, 412, "benefit", "member-42", body=more, if_none_match=Anything.VALUE_0)
    ask(delete_override, 200, "benefit", "member-42", reason="the day is over")
    assert ask(get_usage, 200, "benefit", "member-42").limits[0].max_ == 3
    hourly = OverrideBody(limits=[OverrideLimitBody(max_=1, per="hour")])
    wrong = ask(put_override, 422, "benefit", "member-42", body=hourly)
    assert wrong.errors[0].pointer == "#/limits/0/per"


def drafts():
    """Observes a limit without denials. Tries a draft of another limit on today's grants."""
    limits = [LimitBody(max_=1, per="day")]
    watching = PolicyBody(time_zone=ZONE, limits=limits, mode=Mode.OBSERVE)
    assert ask(put_policy, 201, "coupon", body=watching).mode is Mode.OBSERVE
    for would_deny in [UNSET, True]:
        seen = ask(claim, 201, "coupon", body=ClaimBody(subject="member-42"))
        assert seen.grant.would_deny == would_deny
    marked = ask(list_grants, 200, policy="coupon", would_deny=OnlyTrue.TRUE).items
    assert [grant.id for grant in marked] == [seen.grant.id]
    draft = PolicyBody(time_zone=ZONE, limits=limits, reason="a try")
    today = dt.datetime.now(dt.timezone(dt.timedelta(hours=OFFSET_HOURS))).date()
    days = {"from_": today - dt.timedelta(days=1), "to": today + dt.timedelta(days=1)}
    tried = ask(backtest_policy, 200, "benefit", body=BacktestBody(policy=draft, **days))
    assert (tried.total.denied_grants, tried.total.denied_subjects) == (2, 1)
    assert tried.first_denied[0].subject == "member-42"
    tried = ask(put_policy, 200, "benefit", body=draft, dry_run=OnlyTrue.TRUE)
    assert tried.version == 3 and ask(get_policy, 200, "benefit").version == 2


def keys():
    """Replaces a key. Makes a key for a backend and one policy, and revokes it."""
    till = ask(create_key, 201, body=KeyBody(name="till", role=Role.CLAIM, policies=["benefit"]))
    new = ask(replace_key, 201, till.id, body=KeyReplacementBody(keep_seconds=3600, reason="once a year"))
    assert (new.name, new.policies, new.replaced.id) == ("till", ["benefit"], till.id)
    assert new.secret != till.secret and new.ends_at is None and new.replaced.ends_at is not None
    for key in [till, new]:
        client = AuthenticatedClient(base_url=os.environ["PERDIEM_URL"], token=key.secret)
        assert get_own_key.sync_detailed(client=client).parsed.id == key.id
    shop = KeyBody(name="shop", role=Role.CLAIM, policies=["benefit"], reason="the shop's backend")
    made = ask(create_key, 201, body=shop)
    assert made.role is Role.CLAIM and made.secret.startswith("perdiem_")
    backend = AuthenticatedClient(base_url=os.environ["PERDIEM_URL"], token=made.secret)
    order = ClaimBody(subject="member-77")
    assert claim.sync_detailed("benefit", client=backend, body=order).status_code == 201
    assert list_keys.sync_detailed(client=backend).status_code == 403
    own = get_own_key.sync_detailed(client=backend).parsed
    assert (own.id, own.name, own.policies, own.ends_at) == (made.id, "shop", ["benefit"], UNSET)
    assert ask(get_own_key, 200).role is Role.ADMIN
    revoked = ask(revoke_key, 200, made.id, reason="the shop moved")
    shown = ask(get_key, 200, made.id)
    assert revoked.revoked and (shown.revoked, shown.version) == (True, revoked.version)
    assert claim.sync_detailed("benefit", client=backend, body=order).status_code == 401
    assert [key.id for key in ask(list_keys, 200).items][0] == made.id


def changes():
    """Lists changes, newest first."""
    revoked, made, *_ = ask(list_changes, 200, limit=2).items
    assert (revoked.kind, made.kind) == (ChangeKind.KEY, ChangeKind.KEY)
    assert made.before is None and isinstance(made.after, KeyAnswer)
    assert (revoked.before.revoked, revoked.after.revoked) == (False, True)
    assert revoked.reason == "the shop moved" and revoked.revision > made.revision
    listed = ask(list_changes, 200, policy="benefit").items
    assert {change.kind for change in listed} == {ChangeKind.POLICY, ChangeKind.OVERRIDE}


def farewell():
    archived = ask(archive_policy, 200, "benefit", reason="the campaign is over")
    assert archived.archived
    gone = ask(claim, 404, "benefit", body=ClaimBody(subject="member-42"))
    assert gone.type_ == "/docs/problems#unknown-policy"


policies()
granted = claims()
grants(granted)
corrections(granted)
batches()
overrides()
drafts()
keys()
changes()
farewell()
print("the generated client got the answers that openapi.yaml describes")
