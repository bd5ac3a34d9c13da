"""Claims units of perdiem before a backend gives something. README.md shows how. AsyncClient has the whole logic:
a Client runs the same coroutines on input and output that block, so that none of them ever waits."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import inspect
import random
import re
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from email.utils import mktime_tz, parsedate_tz
from typing import Any, Concatenate, ParamSpec, TypeVar, cast
from urllib.parse import quote

import anyio
import httpx

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
Json = Mapping[str, Any]
_BROKEN = (TimeoutError, httpx.TimeoutException, httpx.NetworkError, httpx.RemoteProtocolError, httpx.DecodingError)
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 2.0


@dataclass(frozen=True)
class Claim:
    """A claim of `units`. `key` is its Idempotency-Key: one for each thing that you give, such as an order.
    With `hold_seconds` the grant is a hold, which lapses after this time unless it is confirmed."""
    policy: str
    subject: str
    key: str
    units: int = 1
    metadata: Json | None = None
    hold_seconds: int | None = None

    def _body(self, **more: object) -> Json:
        return {name: value for name, value in vars(self).items() if name not in ("policy", "key")} | more


@dataclass(frozen=True)
class Limit:
    """A limit and its usage, in units. An instant is None if it never comes."""
    per: str
    kind: str
    max: int
    used: int
    remaining: int
    more_at: dt.datetime | None = None
    resets_at: dt.datetime | None = None


@dataclass(frozen=True)
class Grant:
    """A grant. Its `state` is `held`, `granted`, `reversed` or `lapsed`; only a hold has `held_until`."""
    id: str
    policy: str
    units: int
    state: str
    granted_at: dt.datetime
    held_until: dt.datetime | None = None
    subject: str | None = None
    metadata: Json | None = None


@dataclass(frozen=True)
class Granted:
    """A granted claim. `replayed`: its key was granted before, perhaps by an attempt of this very call whose
    answer was lost. `provisional`: the ledger does not have the grant yet."""
    grant: Grant
    limits: tuple[Limit, ...]
    replayed: bool
    provisional: bool = False


class PerdiemError(Exception):
    """A problem, by its `code`. The client has two codes of its own: `no-answer`, with the `status` None, and
    `unreadable` for an answer that is not perdiem's, such as a redirect. `retry_after` is in seconds."""
    def __init__(self, problem: Json, status: int | None = None, retry_after: float | None = None):
        self.code, self.detail = str(problem["code"]), str(problem["detail"])
        self.status, self.retry_after, self.request_id = status, retry_after, problem.get("request_id")
        super().__init__(f"{self.code}: {self.detail} (status {status}, request {self.request_id})")
        self._can_retry = status in (None, 503) or self.code == "claim-in-progress"
        #: True if the claim may be granted all the same: send it again, with the same key.
        self.may_be_granted = self._can_retry or self.code == "unreadable"


class NotGranted(PerdiemError):
    """The claim is not granted. `retry_after`: the seconds until it would be, or None if that is unknown."""


class Denied(NotGranted):
    """The units fit at `fits_at`, or at no known instant (None). `violated` names the limits without room."""
    def __init__(self, problem: Json, *more: Any):
        super().__init__(problem, *more)
        self.fits_at, self.limits = _instant(problem.get("fits_at")), _limits(problem)
        self.violated: list[str] = problem.get("violated-policies", [])


class Blocked(NotGranted): """An admin has blocked the subject."""
class Inactive(NotGranted): """The policy is paused, has not begun, or has ended."""
class Reversed(NotGranted): """The grant of this key was reversed. To claim again, use another key."""
class Lapsed(NotGranted): """The hold of this key lapsed. To claim again, use another key."""


_REFUSALS: dict[str, type[PerdiemError]] = {
    "quota-exceeded": Denied, "subject-blocked": Blocked, "policy-inactive": Inactive, "grant-reversed": Reversed,
    "hold-lapsed": Lapsed}

def _problem(problem: Json, *more: Any) -> PerdiemError:
    code = str(problem.get("code") or re.split("[#/]", problem["type"])[-1])
    return _REFUSALS.get(code, PerdiemError)({**problem, "code": code}, *more)

def _instant(text: str | None) -> dt.datetime | None:
    return None if text is None else dt.datetime.fromisoformat(text)

def _read(kind: type[T], answer: Json, **more: object) -> T:
    known = {field.name: answer[field.name] for field in fields(cast(Any, kind)) if field.name in answer}
    instants = {name: _instant(known[name]) for name in known if name.endswith(("_at", "_until"))}
    return kind(**known | instants | more)

def _limits(answer: Json) -> tuple[Limit, ...]:
    return tuple(_read(Limit, limit) for limit in answer["limits"])

def _grant(answer: Json) -> Grant:
    return _read(Grant, answer["grant"])

def _granted(answer: Json) -> Granted:
    return _read(Granted, answer, grant=_grant(answer), limits=_limits(answer), replayed=answer["status"] == 200)

def _would_grant(answer: Json) -> tuple[Limit, ...] | Denied:
    denied = {"code": "quota-exceeded", "detail": "says a dry run", **answer}
    return Denied(denied, answer["status"]) if answer["outcome"] == "denied" else _limits(answer)

def _items(answer: Json) -> list[Granted | PerdiemError]:
    return [_granted(item) if "grant" in item else _problem(item, item["status"]) for item in answer["items"]]

def _answer(response: httpx.Response, read: Callable[[Json], T | PerdiemError]) -> T | PerdiemError:
    known = {"detail": "this is no answer of perdiem", "request_id": response.headers.get("x-request-id")}
    more = response.status_code, _seconds(response.headers.get("retry-after", ""))
    try:
        answer = {**known, **response.json(), "status": response.status_code}
        return read(answer) if response.status_code in (200, 201) else _problem(answer, *more)
    except (AttributeError, LookupError, TypeError, ValueError):
        return PerdiemError({**known, "code": "unreadable"}, *more)

def _seconds(retry_after: str) -> float | None:
    with contextlib.suppress(OverflowError, ValueError):
        date = parsedate_tz(retry_after)
        seconds = mktime_tz(date) - time.time() if date else int(retry_after)
        return max(0.0, float(seconds))
    return None


class Holding:
    """A block after a claim. Its end confirms the hold, and a failure reverses the grant. A replay is not
    reversed, because an earlier run with this key may have given what the grant is for."""
    def __init__(self, core: AsyncClient, claim: Claim, hold: bool):
        needs_time = hold and claim.hold_seconds is None
        self._core, self._claim = core, replace(claim, hold_seconds=60) if needs_time else claim

    async def __aenter__(self) -> Granted:
        self._granted = await self._core.claim(self._claim)
        return self._granted

    async def __aexit__(self, _: object, failure: BaseException | None, __: object) -> None:
        grant = self._granted.grant
        if failure is None and grant.state == "held":
            await self._core.confirm(grant.id)
        elif failure is not None and not self._granted.replayed:
            try:
                with self._core._shield():
                    await self._core.reverse(grant.id, "the handler failed", key=f"{grant.id}.reversal")
            except PerdiemError as error:
                failure.add_note(f"the grant {grant.id} is not reversed: {error}")

    def __enter__(self) -> Granted:
        return _finished(self.__aenter__())

    def __exit__(self, *failure: Any) -> None:
        _finished(self.__aexit__(*failure))


class _Guarding:
    _core: AsyncClient

    def holding(self, claim: Claim, *, hold: bool = True) -> Holding:
        """Claims before a block: `with client.holding(claim) as granted:`. Raises NotGranted before the block.
        The hold has 60 seconds unless the claim says more. Without a `hold` a crash leaves the units used."""
        return Holding(self._core, claim, hold)

    def with_claim(self, claim: Callable[..., Claim], *, hold: bool = True) -> Callable[[F], F]:
        """Makes a function the block of a `holding`. `claim` makes the claim of the function's arguments."""
        def decorate(function: F) -> F:
            def run(*args: object, **kwargs: object) -> object:
                with self.holding(claim(*args, **kwargs), hold=hold):
                    return function(*args, **kwargs)

            async def run_async(*args: object, **kwargs: object) -> object:
                async with self.holding(claim(*args, **kwargs), hold=hold):
                    return await function(*args, **kwargs)

            return cast(F, functools.wraps(function)(run_async if inspect.iscoroutinefunction(function) else run))
        return decorate


class AsyncClient(_Guarding):
    """Sends claims. A call sends its request again, with the same key, after 503, `claim-in-progress` and broken
    connections, until `deadline_seconds`. An attempt has `attempt_seconds`. `http` is for a proxy or certificates."""
    def __init__(self, url: str, secret: str, *, deadline_seconds: float = 10, attempt_seconds: float = 4,
                 http: httpx.AsyncClient | None = None):  # fmt: skip
        if not re.fullmatch("[!-~]+", secret := secret.strip()):
            raise ValueError("the API key is empty, or has a character that no API key has")
        self._url, self._deadline, self._attempt = url.rstrip("/"), deadline_seconds, attempt_seconds
        self._headers = {"Authorization": f"Bearer {secret}", "User-Agent": "perdiem-python/0.1.0"}
        self._core, self._request = self, cast(Any, http or httpx.AsyncClient()).request
        self._sleep, self._fail_after = cast(Any, anyio.sleep), cast(Any, anyio.fail_after)
        self._shield: Any = functools.partial(anyio.CancelScope, shield=True)

    async def claim(self, claim: Claim) -> Granted:
        """Claims units. Raises a NotGranted: Denied, Blocked, Inactive, Reversed or Lapsed."""
        return await self._ask(_granted, "policies", claim.policy, "claims", body=claim._body(), key=claim.key)

    async def dry_run(self, claim: Claim) -> tuple[Limit, ...]:
        """Raises what the claim would raise now, or returns the limits as they would be. Counts nothing."""
        return await self._ask(_would_grant, "policies", claim.policy, "claims", body=claim._body(dry_run=True))

    async def batch(self, claims: Sequence[Claim], *, atomic: bool = False) -> list[Granted | PerdiemError]:
        """Sends 1 to 1000 claims; with `atomic` all are granted or none. Returns what each got, in their order:
        send one that `may_be_granted` again."""
        items = [claim._body(policy=claim.policy, idempotency_key=claim.key) for claim in claims]
        return await self._ask(_items, "claims", body={"claims": items, "atomic": atomic})

    async def reverse(self, id: str, reason: str, *, units: int | None = None, key: str | None = None) -> Grant:
        """Gives back what is left of a grant, or `units` with a `key` of their own. Raises Reversed, Lapsed."""
        return await self._ask(_grant, "grants", id, "reversal", body={"reason": reason, "units": units}, key=key)

    async def confirm(self, id: str, *, units: int | None = None) -> Grant:
        """Makes a hold final; with `units` only these, and the others return. Raises Reversed, Lapsed."""
        return await self._ask(_grant, "grants", id, "confirmation", body={"units": units})

    async def usage(self, policy: str, subject: str) -> tuple[Limit, ...]:
        """A subject's limits now. You need not ask before a claim, whose answer has the limits too."""
        return await self._ask(_limits, "policies", policy, "subjects", subject)

    async def _ask(self, read: Callable[[Json], T | PerdiemError], *path: str, body: Json | None = None,
                   key: str | None = None) -> T:  # fmt: skip
        url = "/".join([self._url, "v1", *(quote(part, safe="") for part in path)])
        headers = self._headers if key is None else {**self._headers, "Idempotency-Key": key}
        request = functools.partial(self._request, "GET" if body is None else "POST", url, json=body, headers=headers)
        ends_at, longest_pause = time.monotonic() + self._deadline, _FIRST_PAUSE_SECONDS
        while True:
            seconds = max(0.001, min(self._attempt, ends_at - time.monotonic()))
            try:
                with self._fail_after(seconds):
                    answer = _answer(await _done(request(timeout=seconds, follow_redirects=False)), read)
            except _BROKEN as error:
                answer = PerdiemError({"code": "no-answer", "detail": type(error).__name__})
            if not isinstance(answer, PerdiemError):
                return answer
            pause = (answer.retry_after or 0) + longest_pause * random.uniform(0.5, 1)
            if not answer._can_retry or time.monotonic() + pause >= ends_at:
                raise answer
            await _done(self._sleep(pause))
            longest_pause = min(_LONGEST_PAUSE_SECONDS, 2 * longest_pause)


async def _done(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result

def _finished(coroutine: Coroutine[Any, Any, T]) -> T:
    try:
        coroutine.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    raise RuntimeError("an AsyncClient needs `async with`")

def _blocking(method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]
              ) -> Callable[Concatenate[Client, P], T]:
    @functools.wraps(method)
    def run(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return _finished(method(self._core, *args, **kwargs))
    return run


class Client(_Guarding):
    """An AsyncClient whose methods block, for code without `async`. Threads can share it."""
    def __init__(self, url: str, secret: str, *, deadline_seconds: float = 10, attempt_seconds: float = 4,
                 http: httpx.Client | None = None):  # fmt: skip
        self._core = AsyncClient(url, secret, deadline_seconds=deadline_seconds, attempt_seconds=attempt_seconds)
        self._core._request, self._core._sleep = (http or httpx.Client()).request, time.sleep
        self._core._fail_after = self._core._shield = contextlib.nullcontext

    claim, dry_run = _blocking(AsyncClient.claim), _blocking(AsyncClient.dry_run)
    batch, usage = _blocking(AsyncClient.batch), _blocking(AsyncClient.usage)
    reverse, confirm = _blocking(AsyncClient.reverse), _blocking(AsyncClient.confirm)
