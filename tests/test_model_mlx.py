"""The embedded model on both backends: the same winners, and scores as close as two float32 libraries come."""

import warnings
from dataclasses import dataclass, field, replace

import pytest

pytest.importorskip("mlx_lm", reason="mlx is not installed")

from core import conformance  # noqa: E402
from core.engine import Engine  # noqa: E402
from core.models import resolve  # noqa: E402
from core.presets import FOLDER, Preset  # noqa: E402
from tests import families  # noqa: E402

pytestmark = pytest.mark.model

MODEL = "smollm2-135m"
CLOSE = 2e-3  # of joint log-probabilities, after 30 layers
NEAR_TIE = 0.01  # of probabilities
SHORT = "spam_phishing"
PRESETS = sorted(path.stem for path in FOLDER.glob("*.json"))


@pytest.fixture(scope="module")
def engines():
    return [Engine.load(MODEL, backend=backend, dtype="float32") for backend in ("torch", "mlx")]


@dataclass
class Compared:
    """Two results, field by field."""

    apart: float = 0.0  # of scores
    ties: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def add(self, one, other):
        for a, b in zip(one.decisions, other.decisions, strict=True):
            self.apart = max(self.apart, *(abs(x - y) for x, y in zip(a.scores, b.scores, strict=True)))
            if a.winner != b.winner:
                gap = abs(a.probabilities[a.winner] - a.probabilities[b.winner])
                (self.ties if gap < NEAR_TIE else self.wrong).append(
                    f"{a.name}: {a.value!r}, {b.value!r}, {gap:.1e} apart"
                )
        return self


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == SHORT else pytest.mark.slow) for name in PRESETS]
)
def test_a_presets_winners_are_the_same_on_torch_and_mlx(engines, name):
    asked, compared = Preset.load(FOLDER / f"{name}.json"), Compared()
    texts = [asked.context] if name == SHORT or not asked.change else [asked.context, asked.changed.context]
    for text in texts:
        compared.add(*(engine.run_parallel(text, asked.schema, complete=True, cache=False) for engine in engines))
    print(f"{name}: scores at most {compared.apart:.1e} apart")
    for tie in compared.ties:
        warnings.warn(f"near tie of {name}: {tie}", stacklevel=1)  # pytest lists it
    assert not compared.wrong and compared.apart < CLOSE


def test_both_frameworks_write_the_same_form_with_the_real_model(engines):
    """In `schema` mode, where few tokens are chosen: a step of MLX takes long on a CPU."""
    texts = []
    for engine in engines:
        events = engine.race(conformance.TEXTS[0], conformance.SMALL, order=("ar",), mode="schema").wait()
        texts.append(next(event.text for event in events if event.kind == "lane_end"))
    assert texts[0] == texts[1]


@pytest.mark.slow
def test_four_bit_weights_of_the_real_model_are_read_by_the_tree_as_by_rows(tmp_path):
    """On a CPU these products are slow: two minutes for a short prompt."""
    from core.mlx_probe import READERS

    in_4_bits = families.quantised(resolve(MODEL).directory, tmp_path / "4-bit", group_size=64)
    engine = Engine.load(str(in_4_bits), backend="mlx", dtype="float32", offline=True)
    assert engine.backend.identity.dtype == "float32, 4-bit weights" and engine.backend.identity.strategy == "tree"
    tree = engine.run_parallel(conformance.TEXTS[0], conformance.SMALL, complete=True, cache=False)
    backend = engine.backend
    backend.reader, backend.identity = READERS["rows"](backend.model), replace(backend.identity, strategy="rows")
    rows = engine.run_parallel(conformance.TEXTS[0], conformance.SMALL, complete=True, cache=False)
    compared = Compared().add(tree, rows)
    print(f"scores at most {compared.apart:.1e} apart")
    assert tree.values == rows.values and compared.apart < CLOSE
