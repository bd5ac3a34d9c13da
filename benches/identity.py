"""The ids that a ledger gives to accounts, as src/domain/identity.rs makes them."""

import struct
import uuid

# BLAKE3: https://github.com/BLAKE3-team/BLAKE3-specs, sections 2.1 and 2.2.
IV = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A)
PERMUTATION = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
COLUMNS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))
DIAGONALS = ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))
ROUNDS = 7
# The only chunk, which begins and ends the text, is the root of its tree, and has a key.
FLAGS = 1 | 2 | 8 | 16
BLOCK_BYTES = 64
WORD = 0xFFFFFFFF
# What is hashed: `HashedText::Account`.
ACCOUNT = 1


class Identity:
    def __init__(self, ledger):
        self.secret = bytes.fromhex(ledger.query("SELECT encode(secret, 'hex') FROM ledger"))

    def account(self, policy, subject):
        """The id of the account of a subject under a policy."""
        policy = policy.encode()
        text = bytes([ACCOUNT]) + len(policy).to_bytes(8, "little") + policy + subject.encode()
        return uuid.UUID(bytes=keyed_hash(self.secret, text))


def keyed_hash(key, text):
    """The first 16 bytes of the keyed hash of a text that fits into one block."""
    if len(text) > BLOCK_BYTES:
        raise ValueError("the text is longer than one block")
    words = struct.unpack("<16I", text.ljust(BLOCK_BYTES, b"\0"))
    state = [*struct.unpack("<8I", key), *IV, 0, 0, len(text), FLAGS]
    for _ in range(ROUNDS):
        for n, (a, b, c, d) in enumerate(COLUMNS + DIAGONALS):
            for word, rotated_d, rotated_b in ((words[2 * n], 16, 12), (words[2 * n + 1], 8, 7)):
                state[a] = (state[a] + state[b] + word) & WORD
                state[d] = rotated(state[d] ^ state[a], rotated_d)
                state[c] = (state[c] + state[d]) & WORD
                state[b] = rotated(state[b] ^ state[c], rotated_b)
        words = [words[place] for place in PERMUTATION]
    return struct.pack("<4I", *(state[n] ^ state[n + 8] for n in range(4)))


def rotated(word, bits):
    return (word >> bits) | (word << (32 - bits)) & WORD
