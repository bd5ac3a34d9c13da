"""Blocks and functions that run after a claim."""

import asyncio
import time

import fastapi
import pytest
from conftest import KEY, URL
from fastapi.responses import JSONResponse
from fastapi.testclient import TestClient

import perdiem
from perdiem import AsyncClient, Claim, Client


@pytest.fixture
def client():
    return Client(URL, KEY)


@pytest.fixture
def used(client, policy, subject):
    return lambda: client.usage(policy, subject)[0].used


@pytest.fixture
def states(admin, policy, subject):
    return lambda: [grant["state"] for grant in admin.grants(policy, subject)]


def test_success_confirms_the_hold(client, policy, subject, states):
    with client.holding(Claim(policy, subject, "k")) as granted:
        assert granted.grant.state == "held" and states() == ["held"]
    assert states() == ["granted"]


def test_failure_reverses_the_grant(client, policy, subject, states, used):
    with pytest.raises(ZeroDivisionError), client.holding(Claim(policy, subject, "k")):
        1 / 0
    assert states() == ["reversed"] and used() == 0
    with pytest.raises(perdiem.Reversed), client.holding(Claim(policy, subject, "k")):
        pytest.fail("the key is used")


def test_without_a_hold_failure_reverses_too(client, policy, subject, states):
    with client.holding(Claim(policy, subject, "k1"), hold=False) as granted:
        assert granted.grant.state == "granted"
    with pytest.raises(ZeroDivisionError), client.holding(Claim(policy, subject, "k2"), hold=False):
        1 / 0
    assert sorted(states()) == ["granted", "reversed"]


def test_the_failure_of_a_replay_takes_nothing_back(client, policy, subject, states):
    for failure in (None, ZeroDivisionError):
        try:
            with client.holding(Claim(policy, subject, "k")):
                if failure:
                    raise failure
        except ZeroDivisionError:
            pass
    assert states() == ["granted"]


def test_a_replay_confirms_a_hold_that_is_left(client, policy, subject, states):
    claim = Claim(policy, subject, "k", hold_seconds=60)
    client.claim(claim)
    with client.holding(claim) as granted:
        assert granted.replayed
    assert states() == ["granted"]


def test_a_denial_does_not_run_the_block(client, policy, subject):
    client.claim(Claim(policy, subject, "k1", units=3))
    with pytest.raises(perdiem.Denied), client.holding(Claim(policy, subject, "k2")):
        pytest.fail("the claim is denied")


def test_a_reversal_that_fails_is_noted(policy, subject, proxy, states):
    client = Client(f"http://127.0.0.1:{proxy.port}", KEY, deadline_seconds=1, attempt_seconds=0.5)
    with pytest.raises(ZeroDivisionError) as failure, client.holding(Claim(policy, subject, "k")):
        proxy.faults = ["cut"] * 20
        1 / 0
    assert "is not reversed: no-answer" in failure.value.__notes__[0]
    assert states() == ["held"]


def test_a_hold_that_lapses_within_the_block_is_an_error(client, policy, subject):
    with pytest.raises(perdiem.Lapsed), client.holding(Claim(policy, subject, "k", hold_seconds=1)):
        time.sleep(1.2)


def test_functions_are_decorated(client, policy, subject, states):
    @client.with_claim(lambda order, fail: Claim(policy, subject, order))
    def send(order, fail):
        """Sends."""
        if fail:
            raise ZeroDivisionError
        return order

    assert send("k1", fail=False) == "k1" and send.__doc__ == "Sends."
    with pytest.raises(ZeroDivisionError):
        send("k2", fail=True)
    assert sorted(states()) == ["granted", "reversed"]


def test_a_cancelled_function_gives_its_units_back(policy, subject, states):
    client = AsyncClient(URL, KEY)

    @client.with_claim(lambda: Claim(policy, subject, "k"))
    async def wait():
        started.set()
        await asyncio.sleep(60)

    async def cancel():
        task = asyncio.create_task(wait())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    started = asyncio.Event()
    asyncio.run(cancel())
    assert states() == ["reversed"]


@pytest.fixture
def app(policy):
    app, client, waiting = fastapi.FastAPI(), Client(URL, KEY), AsyncClient(URL, KEY)

    @app.exception_handler(perdiem.NotGranted)
    def refuse(_, error):
        headers = {"Retry-After": f"{error.retry_after:.0f}"} if error.retry_after else {}
        return JSONResponse({"code": error.code}, 429, headers)

    def deliver(fail):
        if fail:
            raise fastapi.HTTPException(502, "the gateway refused")
        return {"sent": True}

    @app.post("/sync/{member}/{order}")
    @client.with_claim(lambda member, order, fail: Claim(policy, member, order))
    def send(member: str, order: str, fail: bool = False):
        return deliver(fail)

    @app.post("/async/{member}/{order}")
    @waiting.with_claim(lambda member, order, fail: Claim(policy, member, order))
    async def send_async(member: str, order: str, fail: bool = False):
        return deliver(fail)

    return app


@pytest.mark.parametrize("path", ["sync", "async"])
def test_fastapi_handlers_are_decorated(app, subject, states, path):
    # One event loop serves all requests, as in a server.
    with TestClient(app) as browser:
        assert browser.post(f"/{path}/{subject}/k0?fail=true").status_code == 502
        for order in ("k1", "k2", "k3"):
            assert browser.post(f"/{path}/{subject}/{order}").json() == {"sent": True}
        denied = browser.post(f"/{path}/{subject}/k4")
    assert denied.status_code == 429 and int(denied.headers["retry-after"]) > 0
    assert sorted(states()) == ["granted"] * 3 + ["reversed"]
