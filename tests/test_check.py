"""The check: for each promise a model that breaks it, for each finding a schema that earns it."""

import copy
import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, trainers
from transformers import PreTrainedTokenizerFast

from core import aptitude, check, conformance
from core.engine import Engine
from core.prompt import LAYOUTS, ChatFormat, literal
from core.review import FieldReview, Finding, Review, field_findings, review
from core.schema import FieldDefinition, StructuredSchema
from core.trie import Plan
from core.vocabulary import TokenizationError, Vocabulary
from core.wording import escaped
from tests.fakes import CHATML, LEXICONS, SPACING, TWINS, HashBackend, HashPrefix, PreferringBackend, lexicon

OFF = 0.01  # ten times what float32 is allowed


def enum(*choices, description="What does the text say?", name="risk", depends_on=()):
    return FieldDefinition(name, "enum", description, choices, depends_on)


def verdict_of(name, engine):
    [(_, verdict)] = conformance.run(engine, {name: check.CHECKS[name]})
    return verdict


def hashed(backend=HashBackend, name="qwen", **options):
    return Engine(backend(lexicon(name), **options), "hash", why="a test")


# --- models that break a promise ---


class Skewed(HashBackend):
    """Reads trees in which nodes have siblings a little wrong."""

    def read(self, prefix, ids, tree, rows, wanted, keep=False):
        values, kept = super().read(prefix, ids, tree, rows, wanted, keep)
        return [value + OFF * self.is_wrong(ids, tree) for value in values], kept

    def is_wrong(self, ids, tree):
        return len(set(tree.parents)) < len(tree.parents)


class Crowded(Skewed):
    """Is wrong where several contexts share a pass."""

    def is_wrong(self, ids, tree):
        return tree.parents.count(-1) > 1


class Hasty(Skewed):
    """Is wrong in small passes."""

    def is_wrong(self, ids, tree):
        return len(tree.tokens) <= conformance.ROOM


class Moody(Skewed):
    """Is wrong by another number each time."""

    def is_wrong(self, ids, tree):
        return self.passes * 1e-9


class Undecided(HashBackend):
    """Means the opposite in small passes."""

    def read(self, prefix, ids, tree, rows, wanted, keep=False):
        values, kept = super().read(prefix, ids, tree, rows, wanted, keep)
        return [value[::-1] if len(tree.tokens) <= conformance.ROOM else value for value in values], kept


@dataclass(frozen=True)
class WornPrefix(HashPrefix):
    reads: list

    def seal(self):
        return super().seal() + len(self.reads)


class Wearing(HashBackend):
    """Changes the prefix that it reads on; the seal shows it."""

    def prefill(self, ids, after=None):
        return WornPrefix(super().prefill(ids, after).ids, [])

    def read(self, prefix, ids, tree, rows, wanted, keep=False):
        if prefix:
            prefix.reads.append(1)
        return super().read(prefix, ids, tree, rows, wanted, keep)


class Growing(Skewed):
    """Decodes into the prefix; the seal does not show it."""

    has_decoded = False

    def decoder(self, prefix):
        self.has_decoded = True
        return super().decoder(prefix)

    def is_wrong(self, ids, tree):
        return self.has_decoded


class Leaking(HashBackend):
    """Goes on with the first text that it has read behind a head."""

    first = None

    def read(self, prefix, ids, tree, rows, wanted, keep=False):
        if ids and prefix:
            self.first = ids = self.first or ids
        return super().read(prefix, ids, tree, rows, wanted, keep)


class Stained(Skewed):
    """Is wrong behind a head for any text but the first."""

    first = None

    def is_wrong(self, ids, tree):
        self.first = self.first or ids
        return bool(ids) and ids != self.first


class Deaf(HashBackend):
    """Does not see the prompt."""

    def logits(self, prompt, after):
        return super().logits([], after)


class Broken(HashBackend):
    def prefill(self, ids, after=None):
        raise RuntimeError("device lost")


@pytest.mark.parametrize(
    "name, backend, words",
    [
        ("oracle", Skewed, "scores at most 3.0e-02 apart, allowed 0.001"),
        ("oracle", Broken, "RuntimeError: device lost"),
        ("prefix", Wearing, "the seal is broken"),
        ("prefix", Growing, "the seal is kept, 99 log-probabilities read again differ by 1.0e-02"),
        ("batch", Crowded, "the same winners, scores at most 3.0e-02 apart"),
        ("passes", Hasty, "scores at most"),
        ("passes", Undecided, "other winners: 1, scores at most"),
        ("repeat", Moody, "apart"),
        ("cache", Leaking, "two texts get the same numbers"),
        ("cache", Stained, "against cold runs"),
        ("cache", Deaf, "two texts get the same numbers"),
        ("mass", HashBackend, "the template or the model does not follow the format"),
    ],
)
def test_a_model_that_breaks_a_promise_fails_its_check(name, backend, words):
    verdict = verdict_of(name, hashed(backend))
    assert verdict.level == "FAIL"
    assert words in verdict.measured


@pytest.mark.parametrize("backend", [Skewed, Crowded, Hasty, Growing])
def test_what_is_rounded_to_16_bits_may_lie_further_apart(backend):
    engine = hashed(backend)
    engine.backend.identity = replace(engine.backend.identity, dtype="bfloat16")
    for name in ("oracle", "batch", "passes", "cache"):
        verdict = verdict_of(name, engine)
        assert verdict.level == "PASS" and "allowed 0.5" in verdict.measured, name


def test_winners_that_are_closer_than_the_tolerance_are_ties_and_listed():
    engine = hashed()
    result = engine.run_parallel("a text", StructuredSchema([enum("A", "B")]))
    [decision] = result.decisions
    for gap, level in ((1e-4, "PASS"), (1e-2, "FAIL")):
        first = replace(decision, scores=(-1.0, -1.0 - gap), probabilities=(0.5, 0.5), winner=0)
        pair = [replace(result, decisions=(each,)) for each in (first, replace(first, winner=1))]
        verdict = conformance._compared(engine, "two", [pair])
        assert verdict.level == level
        assert verdict.details == (f'risk: "A" and "B", {gap:.1e} apart',)


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_a_small_model_of_torch_keeps_every_promise(tiny, architecture):
    verdicts = dict(conformance.run(Engine(tiny(architecture), "tiny"), conformance.CHECKS))
    assert {name: verdict.level for name, verdict in verdicts.items()} == dict.fromkeys(conformance.CHECKS, "PASS")
    assert "allowed 0.001 in float32" in verdicts["oracle"].measured


@pytest.mark.parametrize("strategy", ["tree", "rows"])
@pytest.mark.parametrize("name", LEXICONS)
def test_a_sound_model_keeps_every_promise(name, strategy):
    verdicts = dict(conformance.run(hashed(name=name, strategy=strategy), conformance.CHECKS))
    assert {name: verdict.level for name, verdict in verdicts.items()} == dict.fromkeys(conformance.CHECKS, "PASS")


def test_small_passes_and_best_first_are_really_taken():
    measured = verdict_of("passes", hashed()).measured
    assert measured.startswith("81 nodes in 2 passes, with room for 12 in 22, best-first 81 in 4 (8 choices unread)")
    assert "up to 4 in a pass" in verdict_of("batch", hashed()).measured


# --- boundaries ---


@pytest.mark.parametrize("name", [*LEXICONS, *SPACING])
def test_a_sound_tokenizer_keeps_its_boundaries(name):
    verdict = verdict_of("boundaries", hashed(name=name))
    assert verdict == conformance.Verdict("PASS", verdict.measured)
    assert verdict.measured.startswith("24 lines of 23 trap choices spell themselves")
    assert "4 typed control tokens stay text; no BOS" in verdict.measured


def changed(normalizer=None, template=CHATML, bos=None):
    """An engine whose tokenizer is Qwen's but for what is given."""
    tokens = copy.copy(lexicon("qwen"))
    full = Tokenizer.from_str(tokens.chat.backend_tokenizer.to_str())
    if normalizer:
        full.normalizer = normalizer
    chat = PreTrainedTokenizerFast(tokenizer_object=full, eos_token="<|im_end|>", bos_token=bos)
    chat.chat_template = template
    object.__setattr__(tokens, "chat", chat)
    return Engine(HashBackend(tokens), "hash")


@pytest.mark.parametrize(
    "options, words",
    [
        ({"normalizer": normalizers.Lowercase()}, "spell"),
        ({"normalizer": normalizers.Replace(".", "")}, "choices 'Yes' and 'Yes.' become the same tokens"),
        ({"normalizer": normalizers.Replace("+", "-")}, "choices 'A+' and 'A-' become the same tokens"),
        (
            {"template": "<|endoftext|><|endoftext|>" + CHATML, "bos": "<|endoftext|>"},
            "BOS '<|endoftext|>' stands 2 times",
        ),
    ],
)
def test_a_tokenizer_that_changes_what_it_reads_fails(options, words):
    verdict = verdict_of("boundaries", changed(**options))
    assert verdict.level == "FAIL"
    assert words in verdict.measured


def test_one_bos_is_what_a_prompt_may_have():
    verdict = verdict_of("boundaries", changed(template="<|endoftext|>" + CHATML, bos="<|endoftext|>"))
    assert verdict.level == "PASS" and verdict.measured.endswith("one BOS")


def test_a_tokenizer_that_melts_lines_into_the_prompt_fails():
    glue = Tokenizer(models.BPE())
    alphabet = [chr(i) for i in range(32, 127)] + ["\n"]
    text = '{\n  "value": "HIGH",\n  "value": "LOW",\n}'
    glue.train_from_iterator([text] * 9, trainers.BpeTrainer(initial_alphabet=alphabet, show_progress=False))
    glue.add_special_tokens([AddedToken("<|im_end|>", special=True)])
    tokens = copy.copy(lexicon("qwen"))
    object.__setattr__(tokens, "chat", PreTrainedTokenizerFast(tokenizer_object=glue, eos_token="<|im_end|>"))
    verdict = verdict_of("boundaries", Engine(HashBackend(tokens), "hash"))
    assert verdict.level == "FAIL"
    assert "no pretty JSON layout has a clean token boundary" in verdict.measured


@pytest.mark.parametrize("where", ["", "x <|"])  # everywhere, in the context alone
def test_a_vocabulary_that_makes_control_tokens_of_what_users_type_fails(where):
    engine = hashed()
    full, plain = engine.backend.tokenizer, engine.vocabulary.encode_many
    engine.vocabulary.encode_many = lambda texts: [
        full(text, add_special_tokens=False).input_ids if where in text else plain([text])[0] for text in texts
    ]
    verdict = verdict_of("boundaries", engine)
    assert verdict.level == "FAIL"
    assert "typed control tokens become control tokens" in verdict.measured


def test_a_prompt_that_is_not_the_text_encoded_as_a_whole_fails():
    engine = hashed()
    whole = engine.vocabulary.encode_many
    engine.vocabulary.encode_many = lambda texts: [
        [i for character in text for i in whole([character])[0]] for text in texts
    ]
    verdict = verdict_of("boundaries", engine)
    assert verdict.level == "FAIL"
    assert "have other ids than their text encoded as a whole (fault 1 of 24)" in verdict.measured
    assert len(verdict.details) == 23


# --- the model itself ---


def answering(*answers):
    """A model that writes these values, whatever it is asked."""
    engine = hashed(PreferringBackend)
    lines = [LAYOUTS["pretty"][0].line(name, literal(value)) for name, value in answers]
    engine.backend.intend(*lines, before="{\n")
    return engine


def test_a_model_that_answers_as_it_is_told_passes(monkeypatch):
    monkeypatch.setattr(aptitude, "QUESTIONS", aptitude.QUESTIONS[:1])
    verdict = verdict_of("mass", answering(("colour", "BLUE")))
    assert verdict.level == "PASS"
    assert "an allowed choice is wanted with 0.9" in verdict.measured and '(colour: "BLUE")' in verdict.measured


def test_a_model_that_often_writes_something_else_is_warned_of():
    verdict = verdict_of("mass", answering(("colour", "BLUE"), ("open_on_sunday", False), ("boats", 3)))
    assert verdict.level == "WARN"
    assert "below 0.9: the model would often write something else" in verdict.measured


@pytest.mark.parametrize(
    "without, given, words",
    [
        ("0" * 10, "1" * 10, "helps; 10 rows, right 0.00 without and 1.00 with it, 10 better, 0 worse, p = 0.002"),
        ("1" * 10, "0" * 10, "hurts; 10 rows, right 1.00 without and 0.00 with it, 0 better, 10 worse, p = 0.002"),
        ("00001", "11111", "way; 5 rows, right 0.20 without and 1.00 with it, 4 better, 0 worse, p = 0.12"),
        ("0101", "0110", "way; 4 rows, right 0.50 without and 0.50 with it, 1 better, 1 worse, p = 1"),
        ("01", "01", "way; 2 rows, right 0.50 without and 0.50 with it, 0 better, 0 worse, p = 1"),
    ],
)
def test_the_prior_helps_where_the_sign_test_says_so(without, given, words):
    verdict = aptitude.prior_verdict([c == "1" for c in without], [c == "1" for c in given])
    assert verdict.startswith("content_free: ") and verdict.endswith(words)


def test_the_prior_is_no_promise_and_never_fails():
    verdict = verdict_of("prior", hashed())
    assert verdict.level == "INFO"
    assert "42 rows" in verdict.measured and verdict.measured.endswith("always one label: 0.14")


def test_the_labelled_rows_are_six_for_each_label():
    rows = [json.loads(line) for line in aptitude.LABELLED.read_text(encoding="utf-8").splitlines()]
    labels = [row["label"] for row in rows]
    assert {label: labels.count(label) for label in labels} == dict.fromkeys(labels, 6) and len(rows) == 42
    assert "CC0 1.0" in (aptitude.LABELLED.parent / "LICENCE.md").read_text()


def test_the_cost_of_a_pass_is_information():
    engine = hashed()
    assert verdict_of("cost", engine).measured.endswith("not measured, or tokens cost nothing")
    engine.pass_overhead = 12.34
    assert verdict_of("cost", engine) == conformance.Verdict(
        "INFO", "strategy tree; a pass costs beside its tokens: as much as 12 tokens"
    )


# --- findings about words ---

GOOD = ("HIGH", "LOW", "NOT_STATED")


@pytest.mark.parametrize(
    "field, expected",
    [
        (enum(*GOOD), []),
        (FieldDefinition("urgent", "boolean", "Is the message urgent?"), []),
        (FieldDefinition("urgent", "boolean"), ["WARN no description"]),
        (enum(*GOOD, description="Risk"), ["WARN the description \"Risk\" only repeats the name"]),
        (enum(*GOOD, description="The risk"), ["WARN the description \"The risk\" is no question or statement"]),
        (enum(*GOOD, description="文の緊急度は"), []),
        (enum(*GOOD, name="f1"), ["WARN the name says nothing"]),
        (enum(*GOOD, name="x"), ["WARN the name says nothing"]),
        (enum(*GOOD, name="field_12"), ["WARN the name says nothing"]),
        (enum(*GOOD, name="Value"), ["WARN the name says nothing"]),
        (enum(*GOOD, name="hs_code"), []),
        (enum("HIGH", "LOW"), ["NOTE no choice means none of these"]),
        (enum("Cattle other than breeding animals of any kind", "Goats"), ["NOTE no choice means none of these"]),
        (enum("all other goods", "Goats"), ["NOTE no choice means none of these"]),
        (enum("...", "?", "none"), []),
        *((enum("HIGH", "LOW", word), []) for word in ("Other", "none_of_these", "n/a", "does not say", None)),
        (enum("CAT_095_Titanium", "CAT_112_Zinc", "OTHER"), ["WARN 2 of 3 choices begin with a code: \"CAT_095"]),
        (enum("1 - low", "2 - high", "other"), ["WARN 2 of 3 choices begin with a code: \"1 - low\""]),
        (enum("0102.21 Cattle", "none"), ["WARN 1 of 2 choices begin with a code"]),
        (enum("24_HOURS", "7 days", "NOT_STATED"), []),
        (enum("Titanium CAT_095", "none"), []),
        (enum("P1", "P2", "NONE"), ["NOTE choices \"P1\", \"P2\" are codes that the description does not explain"]),
        (enum("P1", "P2", "NONE", description="P1: production is down. P2: all else."), []),
        (enum("Yes", "Yes.", "other"), ["WARN choices \"Yes\", \"Yes.\" differ only by case, white space or"]),
        (enum("us mail", "US_Mail", "us-mail", "other"), ["WARN choices \"us mail\", \"US_Mail\", \"us-mail\""]),
        (enum("A+", "A-", "unknown"), []),
        (enum("C", "C#", "C++", "none", description="C: the language C. Which one?"), []),
        (enum("true", "1", "NULL", "yes", "none"), ["WARN choices \"true\", \"1\", \"NULL\" are strings that look"]),
        (enum(1, 10, True, None), []),
        (enum("none", *("x" * n for n in range(2, 53))), ["NOTE 52 choices: all stand in the prompt"]),
    ],
)  # fmt: skip
def test_findings_about_a_fields_words(field, expected):
    found = [f"{finding.level} {finding.message}" for finding in field_findings(field)]
    assert len(found) == len(expected)
    assert all(text.startswith(start) for text, start in zip(found, expected, strict=True))


def test_a_finding_names_a_few_choices_and_counts_the_rest():
    [finding, _] = field_findings(enum(*(f"{i} - level" for i in range(9))))
    assert finding.message.count(" - level") == 6 and "and 3 more; put the meaning first" in finding.message


# --- findings about tokens ---


def reviewed(*fields, name="qwen", window=4096, overhead=np.inf, text="") -> Review:
    vocabulary = Vocabulary(lexicon(name).chat)
    chat = ChatFormat(vocabulary, lexicon(name).chat)
    return review(StructuredSchema(fields), vocabulary, chat, window, overhead, text)


def lines_of(found: FieldReview) -> list[str]:
    return list(check.field_lines(found))


def test_every_choice_stands_there_once_with_its_tokens():
    found = reviewed(enum("BILLING", "BILLING_DISPUTE", "NONE"), FieldDefinition("urgent", "boolean", "Is it urgent?"))
    assert lines_of(found.fields[0]) == [
        'risk  enum, 3 choices; every line begins ··"risk":·"',
        '   2  "BILLING"          >BILLING >[",\\n]',
        '   2  "BILLING_DISPUTE"  >BILLING >[_DISPUTE] ",\\n',
        '   1  "NONE"             >[N] ON E ",\\n',
        '      2 begin with BILLING: "BILLING", "BILLING_DISPUTE"',
    ]
    assert lines_of(found.fields[1])[1:] == ["   1  true   >[·true] ,\\n", "   1  false  >[·false] ,\\n"]


@pytest.mark.parametrize("name", LEXICONS)
def test_the_identifying_token_is_the_first_that_no_other_choice_shares(name):
    choices = ["BILLING", "BILLING_DISPUTE", "BILL", "Yes", "Yes.", 1, 10, True, None, "OTHER"]
    [found] = reviewed(enum(*choices), name=name).fields
    paths = [tuple(piece.token for piece in each.pieces) for each in found.choices]
    assert [each.choice for each in found.choices] == choices
    for each, path in zip(found.choices, paths, strict=True):
        shared = max(
            next(n for n in range(len(path) + 1) if path[:n] != other[:n] or n == len(path)) - 1
            for other in paths
            if other != path
        )
        assert each.needed == shared + 1
        assert [piece.identifies for piece in each.pieces].index(True) == shared
        spelled = found.beginning + b"".join(piece.text for piece in each.pieces)
        assert spelled.decode().strip() == f'"risk": {literal(each.choice)},'


def test_characters_that_would_steer_a_terminal_are_escaped(capsys):
    steering = enum(
        "\x1b[31mred", "a\x07b", "x\u202ey", "生气", "OTHER", name="\x1b]0;title\x07", description="\x1b[2J"
    )
    engine = hashed()
    assert check.print_review(engine, StructuredSchema([steering]), "", as_json=False) == 0
    printed = capsys.readouterr().out
    assert all(character.isprintable() or character == "\n" for character in printed)
    assert r'"\u001b[31mred"' in printed and "生气" in printed


def test_bytes_that_are_no_whole_character_are_shown_as_bytes():
    assert check.shown("生".encode()[:2]) == r"\xe7\x94"
    assert escaped("é\u200d\n") == r"é\u200d\n"


def test_columns_are_counted_as_a_terminal_does():
    assert [check.width(text) for text in ("abc", "生气", "e\u0301")] == [3, 4, 1]


def test_choices_that_become_the_same_tokens_are_an_error_that_names_both():
    found = reviewed(enum(*TWINS[:2]), enum("HIGH", "LOW", name="level"), name="nfc")
    [error] = [finding for finding in found.findings if finding.level == "ERROR"]
    assert error.where == "risk"
    assert r"choices 'caf\xe9' and 'cafe\u0301' become the same tokens" in error.message
    assert [field.field.name for field in found.fields] == ["level"] and found.sizes is None
    assert "no tree: see the errors below" in list(check.review_lines(found))


def test_a_line_that_melts_with_the_one_before_it_is_an_error(monkeypatch):
    def melting(plan, trie, answers, vocabulary):
        if trie.field.depends_on:
            raise TokenizationError(f"field {trie.field.name!r}: its line melts with the one before it")

    monkeypatch.setattr(Plan, "lead", melting)
    found = reviewed(enum(*GOOD), enum(*GOOD, name="level", depends_on=("risk",)))
    assert found.findings == (Finding("ERROR", "", "field 'level': its line melts with the one before it"),)


def test_sizes_add_up_to_the_window():
    found = reviewed(enum(*GOOD), FieldDefinition("urgent", "boolean", "Is it urgent?"), text="one two three")
    sizes = found.sizes
    assert (sizes.fields, sizes.choices, sizes.text) == (2, 5, len(lexicon("qwen").encode("one two three")))
    assert sizes.room == 4096 - sizes.head - sizes.tail - sizes.answer
    assert (sizes.best_first, sizes.passes) == (False, 1)


def test_passes_are_estimated_by_waves_and_by_the_way_of_reading():
    chained = reviewed(enum(*GOOD), enum(*GOOD, name="level", depends_on=("risk",)))
    assert chained.sizes.passes == 2
    long = [f"{a} AND {b} AND SO ON" for a in ("HIGH", "LOW", "YES") for b in ("HIGH", "LOW", "YES")]
    assert reviewed(enum(*long), overhead=0.0).sizes.best_first
    assert reviewed(enum(*long), overhead=0.0).sizes.passes == 2


@pytest.mark.parametrize(
    "spare, text, level, words",
    [
        (-1, "", "ERROR", "the schema alone needs"),
        (100, "", "WARN", "only 100 tokens of the window are left for a text"),
        (300, "word " * 400, "ERROR", "and the window leaves room for 300"),
        (300, "word", None, ""),
    ],
)
def test_what_does_not_fit_the_window_is_found(spare, text, level, words):
    sizes = reviewed(enum(*GOOD)).sizes
    found = reviewed(enum(*GOOD), window=sizes.window - sizes.room + spare, text=text)
    assert [(finding.level, words in finding.message) for finding in found.findings] == (
        [(level, True)] if level else []
    )


def test_the_same_finding_about_several_fields_is_printed_once():
    printed = list(check.review_lines(reviewed(enum("A1", "LOW", name="one"), enum("A1", "LOW", name="two"))))
    assert sum("one, two: no choice means none of these" in line for line in printed) == 1
    assert printed[-1] == "0 errors, 0 warnings, 4 notes"


# --- the command ---


@pytest.fixture
def loaded(monkeypatch):
    """`Engine.load` gives the engine that was put in here."""
    engines = [hashed()]
    monkeypatch.setattr(Engine, "load", lambda *given, **options: engines[-1])
    return engines


@pytest.fixture
def schema_file(tmp_path):
    def written(content):
        file = tmp_path / "schema.json"
        file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return str(file)

    return written


PLAIN = {"risk": {"type": "enum", "choices": ["HIGH", "LOW", "NONE"], "description": "How high is the risk?"}}


IMPORT = {
    "type": "object",
    "properties": {
        "words": {"type": "string"},
        "sender": {"type": "object", "properties": {"risk": {"enum": ["HIGH", "LOW"]}, "kind": {"const": "mail"}}},
    },
}


def test_the_suite_prints_a_line_for_each_check_and_fails_with_one(loaded, capsys):
    assert check.main(["--fast"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "hash (a test), hash on cpu (a hash), float64"
    levels = [line.split()[:2] for line in lines if line[:4] in ("PASS", "FAIL", "WARN", "INFO")]
    assert levels == [
        *(["PASS", name] for name in ("boundaries", "oracle", "prefix", "batch", "passes", "repeat", "cache")),
        *(["FAIL", "mass"], ["INFO", "cost"]),
    ]
    assert lines[-1] == "failed: mass, 9 checks"
    assert max(map(len, lines)) <= check.COLUMNS


def test_a_suite_without_a_failure_exits_with_0(loaded, monkeypatch, capsys):
    monkeypatch.delitem(check.CHECKS, "mass")
    assert check.main(["--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["passed"] is True and found["model"] == "hash" and found["strategy"] == "tree"
    assert [each["name"] for each in found["checks"]] == [*(name for name in check.CHECKS)]
    assert found["checks"][0]["level"] == "PASS" and found["checks"][-1]["name"] == "prior"


@pytest.mark.parametrize("content", [PLAIN, {"context": "The risk is high.", "schema": PLAIN}])
def test_a_schema_and_a_preset_are_reviewed(loaded, schema_file, content, capsys):
    assert check.main(["--schema", schema_file(content)]) == 0
    printed = capsys.readouterr().out
    assert "schema  1 field, 3 choices" in printed and '"HIGH"  >[HIGH]' in printed
    assert ("its own text has" in printed) == ("context" in content)
    assert printed.endswith("Findings\n0 errors, 0 warnings, 0 notes\n")


def test_what_can_be_decided_of_an_import_is_reviewed_by_the_names_of_its_fields(loaded, schema_file, capsys):
    assert check.main(["--on-unsupported", "skip", "--schema", schema_file(IMPORT)]) == 0
    printed = capsys.readouterr().out
    assert "schema  2 fields, 3 choices" in printed
    assert "sender.risk  enum, 2 choices; every line begins" in printed
    assert 'sender.kind  const, never scored; its line is ··"sender.kind":·"mail"' in printed
    assert "words" not in printed
    warnings = [line for line in printed.splitlines() if line.startswith("WARN")]
    assert warnings and not any("sender.kind" in line for line in warnings)


def test_a_review_as_json_holds_the_same(loaded, schema_file, capsys):
    loaded.append(hashed(name="nfc"))
    twins = {"word": {"type": "enum", "choices": TWINS[:2], "description": "Which word is it?"}}
    assert check.main(["--json", "--schema", schema_file(PLAIN | twins)]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["passed"] is False and found["sizes"] is None
    [field] = found["fields"]
    assert [(each["choice"], each["identified_by"]) for each in field["choices"]] == [
        ("HIGH", 1),
        ("LOW", 1),
        ("NONE", 1),
    ]
    assert field["choices"][0]["tokens"][0]["text"] == "HIGH" and field["choices"][0]["tokens"][0]["fork"] is True
    assert ("ERROR", "word") in [(each["level"], each["where"]) for each in found["findings"]]


@pytest.mark.parametrize(
    "content, words",
    [
        (None, "No such file or directory; give a JSON or YAML file"),
        ("{", "the schema is not valid JSON"),
        ("risk: {type: enum, choices: [HIGH, NO]}", "line 1: 'NO' is a bool to YAML and may be a text to you; quote"),
        ("[]", "a schema is an object of fields, got []"),
        ({"risk": {"type": "text"}}, "type 'text' is unknown"),
        ({"context": "x"}, "field 'context': expected an object with 'type'"),
        ({"context": "x", "schema": IMPORT}, "1 part of the schema cannot be decided: /properties/words (words): free"),
    ],
)
def test_a_file_that_cannot_be_reviewed_is_refused_before_a_model_is_loaded(
    monkeypatch, schema_file, content, words, capsys
):
    monkeypatch.delattr(Engine, "load")
    file = "nowhere.json" if content is None else schema_file(content)
    assert check.main(["--schema", file]) == 1
    message = capsys.readouterr().err
    assert message.startswith(f"error: {file}: ") and words in message


@pytest.mark.parametrize(
    "arguments", [["--fast", "--schema", "x.json"], ["--dtype", "int4"], ["--backend"], ["a", "b"]]
)
def test_wrong_usage_exits_with_2(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        check.main(arguments)
    assert "usage: python -m core.check" in capsys.readouterr().err


@pytest.mark.model
def test_both_commands_on_the_embedded_model(schema_file, capsys, monkeypatch):
    load, engines = Engine.load, []

    def once(*given, **options):
        engines[:] = engines or [load(*given, **options)]
        return engines[0]

    monkeypatch.setattr(Engine, "load", once)
    assert check.main(["smollm2-135m", "--dtype", "float32", "--fast", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {each["name"]: each["level"] for each in found["checks"]} == {
        **dict.fromkeys(("boundaries", "oracle", "prefix", "batch", "passes", "repeat", "cache"), "PASS"),
        "mass": "WARN",
        "cost": "INFO",
    }
    assert check.main(["smollm2-135m", "--dtype", "float32", "--schema", schema_file(PLAIN)]) == 0
    assert '"LOW"   >[LOW] ",' in capsys.readouterr().out
