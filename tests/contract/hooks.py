"""The rules of perdiem that a schema cannot express, for schemathesis.

perdiem should accept a request that fits its schema. But some such requests are invalid: a schema cannot
compare two values, count bytes, or know which cursors exist. A refusal of such a request is right only if
BEYOND_SCHEMAS contains every fault that the refusal names.
"""

import itertools
import re

import schemathesis
import urllib3.util.connection
from hypothesis import strategies as st
from schemathesis.core.failures import AcceptedNegativeData
from schemathesis.openapi.checks import RejectedPositiveData

# The place of a fault and its words, both as regular expressions.
BEYOND_SCHEMAS = [
    # Only the list knows which cursors it gave out.
    ("cursor", "does not belong to this list"),
    # One value compared with another, or with the clock.
    ("#(/policy)?/active_until", "is not after active_from"),
    ("#/until", "until has passed"),
    ("#/at", "after 1970 that is not in the future"),
    ("on|from|to|recorded_from|recorded_to", "nothing can match"),
    ("to|#/to", "after from|at most 400 days|not below `from`"),
    (r"#(/policy)?/(limits|total)/\d+/per", "there is a limit per .* already"),
    # A limit's kind compared with its per, and numbers compared with durations.
    (r"#(/policy)?/(limits|total)/\d+/kind", "is of the calendar|is a duration"),
    (r"#(/policy)?/(limits|total)/\d+/(step|burst)", "only a (sliding limit|rate) has|does not divide|steps of"),
    (r"#(/policy)?/(limits|total)/\d+/(max|burst)", "without a step|units a second|returns within"),
    (r"#(/policy)?/(limits|total)/\d+/from", "only a limit per 2 weeks|write the first day of a window"),
    (r"#(/policy)?/(limits|total)/\d+/per", "does not divide a day|this is the name of windows"),
    (r"(#/|#(/policy)?/(limits|total)/\d+/)?(per|step)", "from 1s to 400d"),
    ("If-Match", "send either If-Match or If-None-Match"),
    # White space of Unicode.
    ("#(/policy)?/reason|reason", "^the reason is empty; say why$"),
    # Bytes instead of characters; depth.
    ("#/subject|subject", "write 1 to 256 bytes of UTF-8"),
    # Properties of characters, and normalization.
    ("#/subject|subject", "with a blank|looks like another|nobody can see|normalization form"),
    ("#/metadata", r"at most \d+ bytes|has U\+0000|nests too deep"),
    # Numbers between 64-bit integers and doubles.
    ("#/metadata", "is not kept exactly"),
    ("#(/policy)?/(description|reason)|reason", r"the text has U\+0000"),
    # A number with a hole in its range.
    ("#/units", "but not 0"),
    (r"#/claims/\d+/idempotency_key", "another claim of the batch has this key"),
    # The key of a batch, with the number of a claim behind it.
    ("Idempotency-Key", "the key of a batch is at most"),
    # Only the ledger knows what it sealed.
    ("#/proposal", "no proposal of this ledger"),
    # A tier compared with the policy's limits and with the other tiers; a subject's tier with those of the policy.
    (r"#(/policy)?/tiers/\d+/limits/\d+/per", "has no limit per|there is a limit per .* already|from 1s to 400d"),
    (r"#(/policy)?/tiers/\d+/limits/\d+/max", "without a step|units a second"),
    (r"#(/policy)?/tiers/\d+/name", "there is a tier .* already"),
    ("#/tier", "has no tiers?"),
    # A total compared with its kind, with its policy's other settings, and with the calendar that it began with.
    (r"#(/policy)?/total/\d+/kind", "a total is of the calendar"),
    ("#/(time_zone|day_starts_at|week_starts_on)", "the total counts by the calendar"),
    # A calendar of a subject has one part at least, and the policy must take it.
    ("#(/calendar)?", "the calendar is empty"),
    ("#/calendar", "all subjects have the calendar of the policy"),
    # The end of a top-up is to come, and a subject has so many at most.
    ("#/until", "the end has passed"),
    ("#/units", "a subject has at most 16 top-ups|Redis decides the claims of this policy alone"),
    # The years 1 to 9999.
    ("#(/calendar)?/anchor", "the date is invalid"),
    # The present state of the policy. Only its present pause is accepted.
    ("#(/policy)?/paused", "a pause is a state"),
    ("#/effective", "a new policy takes effect at once|never take effect|is not in the future"),
    # The bounds of a key compared with its role; one of two fields.
    ("#/bounds", "a support key needs bounds|only a support key has bounds"),
    ("#", "write either at or advance_seconds"),
    (r"#/limits/\d+/per", "has no limit per"),
    ("#/units", r"these units can never fit|only \d+ are used|a window would have more than"),
    # The present state of the grant; a header that one member of the body needs.
    ("#/units", r"units of this grant are left|was confirmed with|a grant has at most|was erased"),
    ("Idempotency-Key", "the same units would be given back again"),
    ("#/reason|reason", "the reason is missing"),
    # Instants compared with the clock; names compared with existing names, and with each other.
    ("#/ends_at", "is not in the future"),
    ("#/policies", "an admin key cannot be limited"),
    (r"#/policies/\d+", "the policy name is invalid|there is no policy|names this policy twice"),
    # The limits of the policy; a number as a decimal.
    ("(#/)?per", "the policy has no such limit|the policy has no limit per|of the policy has such windows"),
    ("at_least", "write a part from 0.001 to 1"),
    # A local day belongs to a policy; positions and keys must exist.
    ("on|from|to|recorded_from|recorded_to", "name the policy too"),
    ("from|to|recorded_from|recorded_to", "figures are of whole days"),
    ("as_of|after|known_at", "the record ends at position|in the future"),
    ("at", "in the future"),
    ("by", "there is no key with this id"),
    # A recorded export has its own filters.
    ("export", "was made without this value"),
    ("metadata.<name>", "name the policy, and a span|and no U\\+0000"),
    ("wait", "gets no new entries"),
    # This server runs without Redis.
    ("#(/policy)?/(durability|on_ledger_outage)", "requires Redis|Redis cannot count"),
    ("#/hold_seconds", "not built yet"),
]
# The same for problems without faults: another claim was sent with this key before.
BEYOND_SCHEMAS_TYPES = ["/docs/problems#idempotency-key-reused"]

# The statuses of the problems that every operation can have: its answer `default`. 405 is that of a method
# that the path does not take.
COMMON_STATUSES = [400, 401, 403, 404, 405, 408, 410, 412, 413, 415, 422, 429, 503]

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
schemathesis.openapi.format(
    "effective-time", st.sampled_from(["now", "next_window", "2996-12-01", "2996-12-01T00:00:00Z"])
)
schemathesis.openapi.format("entity-tags", st.sampled_from(["*", '"1"', '"2", "3"', 'W/"1"']))


# perdiem slows down an address that sends wrong keys again and again. So each connection comes from
# another address.
addresses = itertools.cycle(f"127.0.{net}.{host}" for net in range(1, 255) for host in range(1, 255))
create_connection = urllib3.util.connection.create_connection


def connect(address, *arguments, source_address=None, **named):
    source_address = (next(addresses), 0)
    return create_connection(address, *arguments, source_address=source_address, **named)


urllib3.util.connection.create_connection = connect


@schemathesis.hook
def map_case(context, case):
    """Changes the values of a valid request so that they fit together and pass most checks."""
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
    # Leap years, so that every date exists.
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
    """Removes the fields of a limit that its per or its kind does not allow."""
    if limit["per"].endswith(" weeks"):
        limit["from"], unused = "2026-01-05", ["kind", "step", "burst"]
    elif not limit["per"][0].isdigit():
        unused = ["kind", "step", "burst", "from"]
    elif limit.get("kind") in ("sliding", "rate"):
        unused = ["burst" if limit["kind"] == "sliding" else "step", "from"]
    else:
        limit["kind"], unused = "from_first_claim", ["step", "burst", "from"]
    for field in unused:
        limit.pop(field, None)


def put_in_order(values, first, last):
    if not isinstance(values.get(last), str):
        return
    if re.fullmatch(r"\d{4}-\d\d-\d\d", values[last]):
        # A backtest accepts no more days.
        values[first], values[last] = f"{values[last][:4]}-01-01", f"{values[last][:4]}-12-31"
        return
    if not isinstance(values.get(first), str) or values[first] == values[last]:
        del values[last]
    elif values[first] > values[last]:
        values[first], values[last] = values[last], values[first]


@schemathesis.hook
def filter_failure(context, failure, case, response):
    """Returns whether a failure counts."""
    if isinstance(failure, AcceptedNegativeData):
        return not is_told_in_an_item(case, response)
    if not isinstance(failure, RejectedPositiveData) or response.status_code != 422:
        return True
    problem = response.json()
    faults = problem.get("errors", [])
    if not faults:
        return problem["type"] not in BEYOND_SCHEMAS_TYPES
    return not all(is_beyond_schemas(fault) for fault in faults)


@schemathesis.check
def other_problems_are_described(context, response, case):
    """Checks that the answer `default` stands only for problems that every operation can have."""
    status = response.status_code
    described = case.operation.definition.raw["responses"]
    assert str(status) in described or status in COMMON_STATUSES, f"{status} is not described"


def is_told_in_an_item(case, response):
    """The answer to a batch is 200. Each invalid claim in it gets its own problem."""
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
