"""Checks a .tlog-proof of perdiem with nothing but a hash function: check_proof.py KEY FILE."""

import base64
import hashlib
import json
import sys


def sha256(data):
    return hashlib.sha256(data).digest()


# Ed25519 (RFC 8032, section 6).
P = 2**255 - 19
Q = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT = pow(2, (P - 1) // 4, P)


def add(a, b):
    e, f = (a[1] - a[0]) * (b[1] - b[0]) % P, (a[1] + a[0]) * (b[1] + b[0]) % P
    g, h = 2 * a[3] * b[3] * D % P, 2 * a[2] * b[2] % P
    w, x, y, z = f - e, h - g, h + g, f + e
    return w * x % P, y * z % P, x * y % P, w * z % P


def times(n, point):
    total = (0, 1, 1, 0)
    while n > 0:
        if n & 1:
            total = add(total, point)
        point, n = add(point, point), n >> 1
    return total


def point(data):
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & (2**255 - 1)
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT % P
    assert (x * x - square) % P == 0, "no point of the curve"
    x = P - x if x & 1 != sign else x
    return x, y, 1, x * y % P


BASE = point((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))


def is_signed(public, text, signature):
    s = int.from_bytes(signature[32:], "little")
    h = int.from_bytes(hashlib.sha512(signature[:32] + public + text).digest(), "little") % Q
    a, b = times(s, BASE), add(point(signature[:32]), times(h, point(public)))
    return s < Q and not (a[0] * b[2] - b[0] * a[2]) % P and not (a[1] * b[2] - b[1] * a[2]) % P


def check(key, text):
    proof, checkpoint = text.split("\n\n", 1)
    header, extra, index, *path = proof.split("\n")
    assert header == "c2sp.org/tlog-proof@v1"
    opened = json.loads(base64.b64decode(extra.removeprefix("extra ")))
    index = int(index.removeprefix("index "))
    # 1. Check the checkpoint's signature.
    body, _, signatures = checkpoint.rpartition("\n\n")
    origin, size, root = (body + "\n").split("\n")[:3]
    public = base64.b64decode(key.split("+", 2)[2])[1:]
    key_id = sha256(origin.encode() + b"\n\x01" + public)[:4]
    dash, name, signature = signatures.split("\n")[0].split(" ")
    signature = base64.b64decode(signature)
    assert (dash, name, signature[:4]) == ("\u2014", origin, key_id), "another key"
    assert is_signed(public, (body + "\n").encode(), signature[4:]), "not signed"
    # 2. Check that its tree has the leaf (RFC 9162, section 2.1.3.2).
    node, last, found = index, int(size) - 1, sha256(b"\0" + opened["leaf"].encode())
    assert node <= last, "beyond the tree"
    for line in path:
        sibling = base64.b64decode(line)
        if node & 1 or node == last:
            found = sha256(b"\1" + sibling + found)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            found = sha256(b"\1" + found + sibling)
        node, last = node >> 1, last >> 1
    assert last == 0 and found == base64.b64decode(root), "not in the tree"
    # 3. Check that the private fields are those of the leaf, unless they were erased.
    leaf = json.loads(opened["leaf"])
    if "salt" not in opened and "private" not in opened:
        return leaf["id"], leaf["units"], None
    private = sha256(bytes.fromhex(opened["salt"]) + opened["private"].encode()).hex()
    assert leaf["private"] == private, "other private fields"
    return leaf["id"], leaf["units"], json.loads(opened["private"])["subject"]


print(*check(sys.argv[1], open(sys.argv[2], encoding="utf-8").read()))
