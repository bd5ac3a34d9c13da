"""Every operation and every fault of the network, with both clients, against a real perdiem."""

import asyncio
import concurrent.futures
import email.utils
import inspect
import os
import sqlite3
import threading
import time

import httpx
import pytest
from conftest import KEY, URL

import perdiem
from perdiem import AsyncClient, Claim, Client

OVERLOADED = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: %s\r\nContent-Length: 0\r\n\r\n"


class Waiting:
    """An AsyncClient with the methods of a Client, so that each test runs with both."""

    def __init__(self, *args, **kwargs):
        self.args = args, kwargs

    def __getattr__(self, name):
        async def call(args, kwargs):
            positional, named = self.args
            # Certificates take long to load, and the tests use none.
            async with httpx.AsyncClient(verify=False) as http:
                return await getattr(AsyncClient(*positional, **named, http=http), name)(*args, **kwargs)

        return lambda *args, **kwargs: asyncio.run(call(args, kwargs))


@pytest.fixture(params=[Client, Waiting])
def kind(request):
    return request.param


@pytest.fixture
def client(kind):
    return kind(URL, KEY)


@pytest.fixture
def shaky(kind, proxy):
    """A client behind the proxy."""
    return kind(f"http://127.0.0.1:{proxy.port}", KEY, deadline_seconds=5, attempt_seconds=2)


@pytest.fixture
def claim(policy, subject):
    return Claim(policy, subject, key=f"{subject}.1")


def test_a_claim_is_granted_and_replayed(client, claim, admin):
    granted = client.claim(claim)
    assert not granted.replayed and not granted.provisional
    assert granted.grant.state == "granted" and granted.grant.held_until is None
    assert [(limit.per, limit.used, limit.remaining) for limit in granted.limits] == [("day", 1, 2)]
    again = client.claim(claim)
    assert again.replayed and again.grant == granted.grant
    assert len(admin.grants(claim.policy, claim.subject)) == 1


def test_a_claim_has_units_and_metadata(client, policy, subject):
    claim = Claim(policy, subject, "k", units=2, metadata={"order": "A-17", "sent_at": "soon"})
    grant = client.claim(claim).grant
    assert (grant.units, grant.metadata) == (2, {"order": "A-17", "sent_at": "soon"})


def test_a_denial_says_when_to_come_again(client, policy, subject):
    client.claim(Claim(policy, subject, "k1", units=3))
    with pytest.raises(perdiem.Denied) as denied:
        client.claim(Claim(policy, subject, "k2"))
    error = denied.value
    assert error.violated == ["day"] and error.limits[0].remaining == 0 and not error.may_be_granted
    assert abs(error.fits_at.timestamp() - time.time() - error.retry_after) < 2


def test_a_dry_run_counts_nothing(client, policy, subject, admin):
    claim = Claim(policy, subject, "k", units=3)
    assert client.dry_run(claim)[0].used == 3
    assert admin.grants(policy, subject) == []
    client.claim(claim)
    with pytest.raises(perdiem.Denied) as denied:
        client.dry_run(Claim(policy, subject, "k"))
    assert denied.value.fits_at is not None


def test_a_hold_is_confirmed(client, policy, subject):
    grant = client.claim(Claim(policy, subject, "k", units=3, hold_seconds=60)).grant
    assert grant.state == "held" and (grant.held_until - grant.granted_at).total_seconds() == 60
    assert client.confirm(grant.id, units=1).state == "granted"
    assert client.usage(policy, subject)[0].used == 1
    assert client.claim(Claim(policy, subject, "k", units=3, hold_seconds=60)).grant.state == "granted"


def test_a_hold_lapses(client, policy, subject):
    claim = Claim(policy, subject, "k", hold_seconds=1)
    grant = client.claim(claim).grant
    time.sleep(1.2)
    for call in (lambda: client.confirm(grant.id), lambda: client.claim(claim)):
        with pytest.raises(perdiem.Lapsed):
            call()


def test_a_grant_is_reversed(client, policy, subject):
    claim = Claim(policy, subject, "k", units=3)
    grant = client.claim(claim).grant
    for _ in range(2):
        client.reverse(grant.id, "one came back", units=1, key="k.refund")
    assert client.usage(policy, subject)[0].used == 2
    for _ in range(2):
        assert client.reverse(grant.id, "the gateway refused").state == "reversed"
    assert client.usage(policy, subject)[0].used == 0
    with pytest.raises(perdiem.Reversed):
        client.claim(claim)


def test_a_batch_has_a_result_for_each_claim(client, policy, subject):
    claims = [Claim(policy, subject, "k1"), Claim(policy, subject, "k2", units=4), Claim("nowhere", subject, "k3")]
    granted, invalid, unknown = client.batch(claims)
    assert granted.grant.units == 1 and not granted.replayed
    assert (invalid.code, unknown.code) == ("invalid", "unknown-policy")
    assert client.batch(claims[:1])[0].replayed
    failed, denied = client.batch([Claim(policy, f"{subject}.2", "k4"), Claim(policy, subject, "k5", 3)], atomic=True)
    assert failed.code == "failed-dependency" and isinstance(denied, perdiem.Denied)


def test_refusals_are_told_by_their_code(client, admin, policy, subject):
    admin.put(f"policies/{policy}/blocks/{subject}", {"reason": "fraud"})
    with pytest.raises(perdiem.Blocked) as blocked:
        client.claim(Claim(policy, subject, "k"))
    assert blocked.value.request_id and blocked.value.retry_after is None
    admin.put(f"policies/{policy}/pause", {"reason": "a fault"})
    with pytest.raises(perdiem.Inactive):
        client.claim(Claim(policy, f"{subject}.2", "k"))


def test_other_problems_are_one_error(client, policy, subject, kind):
    with pytest.raises(perdiem.PerdiemError) as unknown:
        client.claim(Claim("nowhere", subject, "k"))
    error = unknown.value
    assert (error.code, error.status) == ("unknown-policy", 404) and error.detail and error.request_id
    assert not isinstance(error, perdiem.NotGranted) and not error.may_be_granted
    with pytest.raises(perdiem.PerdiemError, match="invalid"):
        client.claim(Claim(policy, subject, key=""))
    with pytest.raises(perdiem.PerdiemError, match="unauthorized"):
        kind(URL, "perdiem_wrong").claim(Claim(policy, subject, "k"))


@pytest.mark.parametrize("fault", ["cut", "lose", "tear", "delay 2.5"])
def test_an_answer_that_is_lost_is_one_grant(shaky, proxy, claim, admin, fault):
    proxy.faults = [fault, fault] if fault != "delay 2.5" else [fault]
    granted = shaky.claim(claim)
    assert proxy.faults == [] and proxy.requests >= 2
    assert granted.replayed == (fault != "cut")
    assert [grant["id"] for grant in admin.grants(claim.policy, claim.subject)] == [granted.grant.id]


def test_other_calls_survive_a_lost_answer(shaky, proxy, policy, subject, client):
    grant = client.claim(Claim(policy, subject, "k", hold_seconds=60)).grant
    for call in (
        lambda: shaky.confirm(grant.id),
        lambda: shaky.reverse(grant.id, "it failed"),
        lambda: shaky.batch([Claim(policy, subject, "k2")]),
        lambda: shaky.usage(policy, subject),
    ):
        proxy.faults = ["lose"]
        call()
    assert client.usage(policy, subject)[0].used == 1


def test_the_deadline_is_for_the_whole_call(kind, proxy, claim):
    proxy.faults = ["delay 9"] * 9
    client = kind(f"http://127.0.0.1:{proxy.port}", KEY, deadline_seconds=1, attempt_seconds=0.4)
    began = time.monotonic()
    with pytest.raises(perdiem.PerdiemError) as lost:
        client.claim(claim)
    assert (lost.value.code, lost.value.status, lost.value.may_be_granted) == ("no-answer", None, True)
    assert time.monotonic() - began < 1.5 and proxy.requests >= 2


@pytest.mark.parametrize("garbage", [b"soon", b"-3", b"nan", b"Mon, 99 Foo 99999 99:99:99 GMT"])
def test_a_retry_after_without_meaning_is_ignored(shaky, proxy, claim, garbage):
    proxy.faults = [OVERLOADED % garbage]
    assert shaky.claim(claim).grant and proxy.requests == 2


@pytest.mark.parametrize("is_date", [False, True])
def test_retry_after_is_waited_for(shaky, proxy, claim, is_date):
    until = email.utils.formatdate(time.time() + 2, usegmt=True) if is_date else "1"
    proxy.faults = [OVERLOADED % until.encode()]
    began = time.monotonic()
    assert not shaky.claim(claim).replayed
    assert 0.9 < time.monotonic() - began < 3


def test_a_retry_after_the_deadline_is_not_waited_for(shaky, proxy, claim):
    proxy.faults = [OVERLOADED % b"60"]
    began = time.monotonic()
    with pytest.raises(perdiem.PerdiemError) as error:
        shaky.claim(claim)
    assert error.value.may_be_granted and error.value.retry_after == 60
    assert time.monotonic() - began < 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\n<html",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n[]",
        b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_garbage_is_an_error(shaky, proxy, claim, answer):
    proxy.faults = [answer]
    with pytest.raises(perdiem.PerdiemError, match="unreadable") as error:
        shaky.claim(claim)
    assert error.value.may_be_granted and proxy.requests == 1


def test_a_claim_in_progress_and_a_locked_ledger_are_waited_for(kind, policy, subject, admin):
    """While the ledger is locked, a claim gets 503, and a second one with its key 409."""
    clients = [kind(URL, KEY, deadline_seconds=20) for _ in range(2)]
    ledger = sqlite3.connect(os.environ["PERDIEM_LEDGER"], isolation_level=None, check_same_thread=False)
    ledger.execute("BEGIN IMMEDIATE")
    threading.Timer(3, lambda: ledger.execute("ROLLBACK")).start()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        granted = list(pool.map(lambda client: client.claim(Claim(policy, subject, "k")), clients))
    assert granted[0].grant == granted[1].grant and len(admin.grants(policy, subject)) == 1


def test_nobody_sees_the_secret(client, proxy, kind, claim):
    proxy.close()
    dead = kind(f"http://127.0.0.1:{proxy.port}", KEY, deadline_seconds=0.3)
    with pytest.raises(perdiem.PerdiemError) as error:
        dead.claim(claim)
    chain = [error.value, error.value.__cause__, error.value.__context__, Client(URL, KEY), AsyncClient(URL, KEY)]
    assert not any(KEY in text for item in chain for text in (str(item), repr(item)))
    with pytest.raises(ValueError) as wrong:
        Client(URL, f"{KEY}\nmore")
    assert KEY not in str(wrong.value)
    assert Client(URL, f"{KEY}\n").usage(claim.policy, claim.subject)


def test_both_clients_have_the_same_methods():
    def methods(kind):
        return {name for name, _ in inspect.getmembers(kind, callable) if not name.startswith("_")}

    assert methods(Client) == methods(AsyncClient)
