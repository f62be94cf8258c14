"""What a pass costs beside its tokens: a measurement that must come out as it was made."""

import math

import pytest

from core import overhead
from core.overhead import MANY, ROUNDS, measured_overhead
from tests.fakes import HashBackend, HashPrefix, lexicon


class PricedBackend(HashBackend):
    """Takes so long for a pass and for each token in it, on a clock of its own."""

    def __init__(self, pass_s, token_s):
        super().__init__(lexicon("qwen"))
        self.pass_s, self.token_s, self.now = pass_s, token_s, 0.0

    def read(self, prefix, ids, tree, rows, wanted, keep=False):
        self.now += self.pass_s + self.token_s * len(tree.tokens)
        return [], None

    def perf_counter(self):
        return self.now


@pytest.mark.parametrize(
    "pass_s, token_s, tokens", [(0.03, 0.001, 30), (0.0, 0.002, 0), (0.02, 0.0, math.inf), (0.06, 0.0015, 40)]
)
def test_the_price_of_a_pass_is_told_in_tokens(monkeypatch, pass_s, token_s, tokens):
    backend = PricedBackend(pass_s, token_s)
    monkeypatch.setattr(overhead, "time", backend)
    measured = measured_overhead(backend, HashPrefix((1, 2, 3)))
    assert measured == pytest.approx(tokens, abs=1e-6) or measured > 1e9 and tokens == math.inf


def test_measuring_takes_a_few_passes():
    backend = HashBackend(lexicon("qwen"))
    measured_overhead(backend, HashPrefix((1, 2, 3)))
    assert backend.passes == 2 * ROUNDS and max(backend.nodes_read) == 1 + 3 * MANY
