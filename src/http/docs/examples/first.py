import http.client
import json
import os
import random
import sys
import time
import urllib.error
import urllib.request

URL = os.environ["PERDIEM_URL"]
KEY = os.environ["PERDIEM_KEY"]


def send_once(method, path, body, order):
    """Returns the status, Retry-After (0 if absent) and the text; None if no answer came."""
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    if order is not None:
        headers["Idempotency-Key"] = order
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data, headers, method=method)
    try:
        try:
            answer = urllib.request.urlopen(request, timeout=10)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            return answer.status, int(answer.headers["Retry-After"] or 0), answer.read()
    except (OSError, http.client.HTTPException):
        return None


def send(method, path, body=None, order=None):
    """Sends a request until perdiem answers it, at most 5 times."""
    for attempt in range(5):
        # Every attempt has the same key: the claim is granted at most once.
        answer = send_once(method, path, body, order)
        status, retry_after, text = answer or (503, 0, b"")
        if status < 300 or status == 429:
            return status, retry_after, json.loads(text)
        if status < 500 and retry_after == 0:
            # The request is wrong. It would fail again.
            sys.exit(text.decode())
        # 503, 409 with Retry-After, or no answer: send the same request again.
        time.sleep(max(retry_after, 2**attempt) + random.random())
    sys.exit("perdiem cannot answer now")


# 1. Put a policy: each subject may take 3 units per day. A day begins at midnight in GMT+8.
rule = {"time_zone": "GMT+8", "limits": [{"max": 3, "per": "day"}]}
send("PUT", "/v1/policies/first-steps", rule)

# 2. Claim. A-17 is claimed twice, and gets the same grant twice.
for order in ["A-17", "A-17", "A-18", "A-19", "A-20"]:
    claim = {"subject": "member-42"}
    status, retry_after, answer = send("POST", "/v1/policies/first-steps/claims", claim, order)
    if status == 429:
        # Denied. Do not claim again before Retry-After.
        print(f"{order} denied: {answer['detail']} (Retry-After: {retry_after} s)")
    else:
        print(f"{order} granted: {answer['grant']['id']}")

# 3. Read the usage.
_, _, usage = send("GET", "/v1/policies/first-steps/subjects/member-42")
print(f"used: {usage['limits'][0]['used']} of {usage['limits'][0]['max']}")
