"""Prints the results of the moving window of the package `limits`, on a stopped clock.

Reads histories as JSON: a list of [max, seconds, [[microseconds, units], ...]], instants since 1970.
Writes a list of verdicts for each.
"""

import json
import sys
import types

from limits import RateLimitItemPerSecond
from limits.storage import MemoryStorage, memory
from limits.strategies import MovingWindowRateLimiter

now = 0.0
memory.time = types.SimpleNamespace(time=lambda: now)


def verdicts(limit, seconds, takes):
    global now
    limiter = MovingWindowRateLimiter(MemoryStorage())
    item = RateLimitItemPerSecond(limit, seconds)
    said = []
    for micros, units in takes:
        now = micros / 1_000_000
        said.append(limiter.hit(item, "member", cost=units))
    return said


json.dump([verdicts(*history) for history in json.load(sys.stdin)], sys.stdout)
