"""What schemathesis must know of perdiem that a schema cannot say.

A request that fits its schema ought to be accepted. Some that fit are invalid all the same: no
schema compares two values, counts bytes, or knows which cursors were given out. Such an answer is
right, but only where every fault that it names is one of these.
"""

import itertools
import re

import schemathesis
import urllib3.util.connection
from hypothesis import strategies as st
from schemathesis.core.failures import AcceptedNegativeData
from schemathesis.openapi.checks import RejectedPositiveData

# A fault's place and its words, both as patterns.
BEYOND_SCHEMAS = [
    # Only the list knows which cursors it gave out.
    ("cursor", "not one that this list gave"),
    # One value against another, or against the clock.
    ("#(/policy)?/active_until", "must come after active_from"),
    ("#/until", "it has passed"),
    ("#/at", "after 1970 and not in the future"),
    ("to|#/to", "must come after from|at most 400 days|is below `from`"),
    (r"#(/policy)?/limits/\d+/per", "there is a limit per .* already"),
    # A limit's kind against its per, and numbers against durations.
    (r"#(/policy)?/limits/\d+/kind", "is of the calendar|is a duration"),
    (r"#(/policy)?/limits/\d+/(step|burst)", "only a (sliding limit|rate) has|does not divide|steps of"),
    (r"#(/policy)?/limits/\d+/(max|burst)", "without a step|units a second|returns within"),
    (r"#(/policy)?/limits/\d+/(per|step)", "from 1s to 400d"),
    ("If-Match", "send either If-Match or If-None-Match"),
    # White space, as Unicode has it.
    ("#(/policy)?/reason|reason", "^say why$"),
    # Bytes, not characters; depth.
    ("#/subject|subject", "has 1 to 256 bytes of UTF-8"),
    ("#/metadata", r"at most \d+ bytes|no U\+0000|levels deep"),
    ("#(/policy)?/(description|reason)|reason", r"must not contain U\+0000"),
    # A number with a hole in its range.
    ("#/units", "not 0, from"),
    (r"#/claims/\d+/idempotency_key", "another claim of the batch has this key"),
    # What the policy stands at.
    ("#/effective", "a new policy takes effect at once|never comes"),
    (r"#/limits/\d+/per", "has no limit per"),
    ("#/units", r"these units can never fit|more than the \d+ that are used"),
    ("#/reason|reason", "a reason is needed to"),
    # Instants against the clock, names against what there is, and each other.
    ("#/ends_at", "must lie in the future"),
    ("#/policies", "an admin key is never confined"),
    (r"#/policies/\d+", "a policy's name has|there is no policy|named already"),
    # A local day is one of a policy; positions and keys are what there is.
    ("on|from|to", "name the policy too"),
    ("as_of|after|known_at", "the record ends at position|lies in the future"),
    ("at", "lies in the future"),
    ("by", "there is no key with this id"),
    ("metadata.<name>", "name the policy, and a span"),
    ("wait", "nothing comes to it"),
    # This server runs without Redis.
    ("#(/policy)?/(durability|on_ledger_outage)", "this wants Redis|Redis alone counts"),
    ("#/hold_seconds", "not built yet"),
]
# The same, where a problem names no faults: a key that another claim was sent with before.
BEYOND_SCHEMAS_TYPES = ["/docs/problems#idempotency-key-reused"]

schemathesis.openapi.format(
    "time-zone",
    st.sampled_from(["Asia/Shanghai", "America/New_York", "Africa/Casablanca", "+08:00", "GMT+8"]),
)
schemathesis.openapi.format(
    "day-or-instant", st.sampled_from(["2026-11-03", "2026-11-04", "2026-11-03T00:00:00Z"])
)
schemathesis.openapi.format("position-or-instant", st.sampled_from(["0", "1", "2026-11-03T00:00:00Z"]))
schemathesis.openapi.format(
    "maker", st.sampled_from(["PERDIEM_ADMIN_KEY", "0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42"])
)
schemathesis.openapi.format("entity-tags", st.sampled_from(["*", '"1"', '"2", "3"', 'W/"1"']))


# Wrong keys that come from one address again and again are answered more and more slowly: here
# each connection comes from an address of its own.
addresses = itertools.cycle(f"127.0.{net}.{host}" for net in range(1, 255) for host in range(1, 255))
create_connection = urllib3.util.connection.create_connection


def connect(address, *arguments, source_address=None, **named):
    source_address = (next(addresses), 0)
    return create_connection(address, *arguments, source_address=source_address, **named)


urllib3.util.connection.create_connection = connect


@schemathesis.hook
def map_case(context, case):
    """Gives a valid request values that make sense together, so that most get past the checks."""
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return case
    body = case.body if isinstance(case.body, dict) else {}
    for values in [case.query, body, body.get("policy")]:
        if isinstance(values, dict):
            put_in_order(values, "from", "to")
            put_in_order(values, "active_from", "active_until")
            if isinstance(values.get("limits"), list):
                values["limits"] = list({limit["per"]: limit for limit in values["limits"]}.values())
                for limit in values["limits"] if "time_zone" in values else []:
                    fit_kind(limit)
                values.setdefault("reason", "a test")
    # Leap years, so that each date is one.
    for name, year in [("until", "2996"), ("ends_at", "2996"), ("at", "1996")]:
        if isinstance(body.get(name), str):
            body[name] = year + body[name][4:]
    if body.get("units") == 0:
        body["units"] = 1
    if isinstance(case.query, dict):
        case.query.pop("cursor", None)
    if case.headers and "If-Match" in case.headers:
        case.headers.pop("If-None-Match", None)
    return case


def fit_kind(limit):
    """Leaves out of a limit what its per or its kind has no use for."""
    if not limit["per"][0].isdigit():
        unused = ["kind", "step", "burst"]
    elif limit.get("kind") in ("sliding", "rate"):
        unused = ["burst" if limit["kind"] == "sliding" else "step"]
    else:
        limit["kind"], unused = "from_first_claim", ["step", "burst"]
    for field in unused:
        limit.pop(field, None)


def put_in_order(values, first, last):
    if not isinstance(values.get(last), str):
        return
    if re.fullmatch(r"\d{4}-\d\d-\d\d", values[last]):
        # No more days than a backtest takes.
        values[first], values[last] = f"{values[last][:4]}-01-01", f"{values[last][:4]}-12-31"
        return
    if not isinstance(values.get(first), str) or values[first] == values[last]:
        del values[last]
    elif values[first] > values[last]:
        values[first], values[last] = values[last], values[first]


@schemathesis.hook
def filter_failure(context, failure, case, response):
    """Whether a failure counts."""
    if isinstance(failure, AcceptedNegativeData):
        return not is_told_in_an_item(case, response)
    if not isinstance(failure, RejectedPositiveData) or response.status_code != 422:
        return True
    problem = response.json()
    faults = problem.get("errors", [])
    if not faults:
        return problem["type"] not in BEYOND_SCHEMAS_TYPES
    return not all(is_beyond_schemas(fault) for fault in faults)


def is_told_in_an_item(case, response):
    """A batch is answered with 200, and each invalid claim of it with a problem of its own."""
    if case.operation.definition.raw["operationId"] != "claim_batch":
        return False
    return any(item["status"] == 422 for item in response.json()["items"])


def is_beyond_schemas(fault):
    places = [fault[name] for name in ("pointer", "parameter") if name in fault]
    return any(
        re.fullmatch(place, found) and re.search(words, fault["detail"])
        for place, words in BEYOND_SCHEMAS
        for found in places
    )
