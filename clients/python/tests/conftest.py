"""A policy of 3 units a day on the perdiem at PERDIEM_URL, and a proxy before it."""

import contextlib
import datetime as dt
import os
import uuid
from urllib.parse import urlsplit

import httpx
import pytest

from proxy import Proxy

URL, KEY = os.environ["PERDIEM_URL"], os.environ["PERDIEM_KEY"]
# It is noon in this zone, so that no day ends during the run.
ZONE = f"{12 - dt.datetime.now(dt.timezone.utc).hour:+03d}:00"


class Admin:
    """Prepares policies, and reads the ledger."""

    def __init__(self):
        self.http = httpx.Client(base_url=URL, headers={"Authorization": f"Bearer {KEY}"})

    def put(self, path, body):
        answer = self.http.put(f"/v1/{path}", json=body)
        assert answer.is_success, answer.text

    def policy(self, name):
        self.put(f"policies/{name}", {"time_zone": ZONE, "limits": [{"max": 3, "per": "day"}]})
        return name

    def grants(self, policy, subject):
        parameters = {"policy": policy, "subject": subject}
        return self.http.get("/v1/grants", params=parameters).json()["items"]


@pytest.fixture(scope="session")
def admin():
    return Admin()


@pytest.fixture
def policy(admin):
    """A policy of the test alone, because a key is unique in its policy."""
    return admin.policy(f"python-{uuid.uuid4()}")


@pytest.fixture
def subject():
    return f"member-{uuid.uuid4()}"


@pytest.fixture
def proxy():
    target = urlsplit(URL)
    proxy = Proxy((target.hostname, target.port))
    yield proxy
    with contextlib.suppress(OSError):
        proxy.close()
