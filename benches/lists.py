"""The lists of the API, and how long their pages take."""

import time
import urllib.parse

# {day} is a day with entries, {middle} a position in it, and {subject} a subject with entries.
LISTS = [
    "entries?",
    "entries?policy=benefit&on={day}",
    "entries?policy=benefit&on={day}&after={middle}",
    "entries?policy=benefit&on={day}&kind=reversal",
    "entries?policy=benefit&on={day}&by=PERDIEM_ADMIN_KEY",
    "entries?policy=benefit&on={day}&metadata.order=A-17",
    "entries?policy=rare",
    "entries?policy=rare&on={day}",
    "entries?kind=adjustment",
    "entries?kind=reversal",
    "entries?kind=confirmation",
    "entries?subject={subject}",
    "entries?policy=benefit&subject={subject}",
    "entries?from={day}T00:00:00Z&to={day}T00:00:10Z",
    "entries?recorded_from={day}T00:00:00Z",
    "grants?",
    "grants?policy=benefit&on={day}",
    "grants?policy=benefit&on={day}&state=granted",
    "grants?policy=benefit&on={day}&state=reversed",
    "grants?policy=benefit&on={day}&state=held",
    "grants?policy=benefit&on={day}&metadata.order=A-17",
    "grants?policy=rare",
    "grants?policy=rare&state=reversed",
    "grants?state=lapsed",
    "grants?by=PERDIEM_ADMIN_KEY",
    "grants?would_deny=true",
    "grants?provisional=true",
    "grants?subject={subject}",
    "changes?",
    "changes?kind=export",
    "policies/benefit/subjects/{subject}/entries?",
    "policies/benefit/near?",
    "subjects?",
    "subjects?prefix=member-1",
    "subjects?policy=rare",
    "denials?",
    "denials?policy=benefit&on={day}",
    "denials?policy=rare",
    "policies/benefit/subjects/{subject}/denials?",
    "stats?",
    "stats?policy=benefit",
    "stats/quarters?",
    "policies?",
    "policies/benefit/versions?",
    "policies/benefit/overrides?",
    "policies/benefit/blocks?",
    "policies/benefit/tiers?",
    "policies/benefit/windows?",
    "keys?",
    "reconciliations?",
]


def read(server, path, most):
    """Reads pages of a list, from the first one on. Returns their times in milliseconds, and the number of items."""
    times, found, cursor = [], 0, None
    while len(times) < most:
        query = f"&cursor={urllib.parse.quote(cursor)}" if cursor else ""
        began = time.perf_counter()
        page = server.get(f"/v1/{path}{query}")
        times.append((time.perf_counter() - began) * 1000)
        found += len(page["items"])
        cursor = page["next_cursor"]
        if cursor is None:
            break
    return times, found
