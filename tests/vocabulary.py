"""Writes the table of `lango.history.o200k` from the tokenizer's vocabulary: `python -m tests.vocabulary`."""

import sys
from array import array
from zlib import crc32

from splintr import Tokenizer

from lango.history.o200k import FILE, FIRST_TOKEN, SLOTS, TOKENS


def table() -> bytes:
    """Return the content of the file."""
    tokenizer = Tokenizer.from_pretrained("o200k_base")
    slots, places, tokens = array("I", bytes(4 * SLOTS)), array("I", [FIRST_TOKEN]), bytearray()
    for rank in range(TOKENS):
        token = tokenizer.decode_token_bytes(rank)
        slot = crc32(token) % SLOTS
        while slots[slot]:
            slot = (slot + 1) % SLOTS
        slots[slot] = rank + 1
        tokens += token
        places.append(FIRST_TOKEN + len(tokens))
    if sys.byteorder != "little":
        slots.byteswap()
        places.byteswap()
    return slots.tobytes() + places.tobytes() + bytes(tokens)


if __name__ == "__main__":
    FILE.write_bytes(table())
