"""How many tokens one pass has memory for. Knows no framework."""

from __future__ import annotations

import math

#: What one pass may take beside the weights and the prefix.
PASS_BYTES = 1 << 30
#: Of one token's activations in one layer, in widths of the model: attention's inputs and outputs
#: and three matrices of an MLP up to eight times as wide.
ACTIVATION_WIDTHS = 32


def rows_at_once(prefix_bytes: int, depth: int, layers: int, width: int, itemsize: int) -> int:
    """Rows of `depth` tokens, each behind a prefix of its own, that a pass has memory for."""
    token = width * itemsize * (ACTIVATION_WIDTHS + 2 * layers)  # keys and values of its own too
    return max(1, PASS_BYTES // (prefix_bytes + depth * token))


def room(length: int, copies: int, width: int, itemsize: int) -> int:
    """Tokens N that a masked pass after `length` has memory for: `copies` N (length + N) + N activations.

    `width` is the model's, `itemsize` the bytes of one of its numbers.
    """
    pair = copies * itemsize
    token = length * pair + ACTIVATION_WIDTHS * width * itemsize
    return max(1, int((math.sqrt(token**2 + 4 * pair * PASS_BYTES) - token) / (2 * pair)))
