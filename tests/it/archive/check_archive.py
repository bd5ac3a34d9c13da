"""Checks an archive with its folder alone: digests, leaves, root, and that its positions are the first
ones of the checkpoint's tree. check_proof.py checks the signature."""

import base64
import hashlib
import json
import pathlib
import sys


def node(left, right):
    return hashlib.sha256(b"\x01" + left + right).digest()


def root(leaves):
    """The root of a tree (RFC 6962, section 2.1)."""
    if len(leaves) == 1:
        return leaves[0]
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return node(root(leaves[:split]), root(leaves[split:]))


def grown(first, second, proof, old, whole=True):
    """RFC 6962, section 2.1.2, in reverse: computes the roots of both trees from a proof."""
    if first == second:
        return (old, old) if whole else (proof[0], proof[0])
    split = 1 << (second - 1).bit_length() - 1
    if first <= split:
        small, large = grown(first, split, proof[:-1], old, whole)
        return small, node(large, proof[-1])
    small, large = grown(first - split, second - split, proof[:-1], old, False)
    return node(proof[-1], small), node(proof[-1], large)


folder = pathlib.Path(sys.argv[1])
archive = json.loads((folder / "archive.json").read_text())["archive"]


def content(file):
    content = (folder / file["name"]).read_bytes()
    assert hashlib.sha256(content).hexdigest() == file["sha256"], file
    return content


leaves = []
for span in archive["spans"]:
    lines = content(span["leaves"]).split(b"\n")[:-1]
    assert [json.loads(line)["position"] for line in lines] == list(
        range(span["first"], span["last"] + 1)
    )
    hashes = [hashlib.sha256(b"\x00" + line).digest() for line in lines]
    assert b"".join(hashes) == content(span["hashes"])
    leaves += hashes
note = content(archive["checkpoint"]).decode().split("\n")
assert note[0] == archive["origin"]
small = root(leaves)
assert base64.b64encode(small).decode() == archive["root"]
proof = [base64.b64decode(hash) for hash in archive["consistency"]]
found = grown(len(leaves), int(note[1]), proof, small)
assert found == (small, base64.b64decode(note[2])), "the checkpoint is of another tree"
print(f"{len(leaves)} leaves are consistent with {note[1]} of {note[0]}")
