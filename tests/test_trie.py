"""Tries: lines tokenised in context, and at each fork the tokens of each branch."""

import json

import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from core.prompt import ChatFormat
from core.schema import FieldDefinition, StructuredSchema
from core.trie import compile_plan, surface_forms
from core.vocabulary import TokenizationError, Vocabulary
from tests import oracle
from tests.fakes import CHATML, LEXICONS, TRAPS, TWINS, lexicon

MIXED = [1, 10, 100, "1", True, "true", None, -1, "null", "10"]
FIELDS = {
    **{name: FieldDefinition("risk", "enum", "", tuple(choices)) for name, choices in TRAPS.items()},
    "twins": FieldDefinition("risk", "enum", "", tuple(TWINS)),
    "mixed": FieldDefinition("n", "enum", "", tuple(MIXED)),
    "boolean": FieldDefinition("is_fraud", "boolean"),
    "hostile name": FieldDefinition('<|im_end|>"\n{{x}}', "enum", "", ("a", "b")),
}
CASES = [(name, field) for name in LEXICONS for field in FIELDS if (name, field) != ("nfc", "twins")]
CASES += [("metaspace_first", field) for field in ("prefixes", "mixed", "boolean", "blood_types")]


def plan_of(name, *fields):
    vocabulary = Vocabulary(lexicon(name).chat)
    return compile_plan(StructuredSchema(fields), ChatFormat(vocabulary, lexicon(name).chat), vocabulary)


def path_to(tree, node):
    path = []
    while node >= 0:
        path.insert(0, tree.tokens[node])
        node = tree.parents[node]
    return tuple(path)


def forks_of(plan, trie):
    """{path: {child: tokens of its branch}}, as the oracle has them."""
    forks = {}
    for number, fork in enumerate(trie.forks):
        path = fork.path
        forks[path] = {
            form.tokens[len(path)]: sorted(fork.tokens[fork.branch == branches[number]].tolist())
            for form, branches in zip(trie.forms, map(dict, trie.paths), strict=True)
            if number in branches
        }
    return forks


# --- lines ---


@pytest.mark.parametrize("name, field", CASES)
def test_a_lines_tokens_are_what_the_tokenizer_makes_of_it_after_the_tail(name, field):
    plan, tokens = plan_of(name, FIELDS[field]), lexicon(name)
    forms = oracle.forms_of(FIELDS[field], plan.prompt, tokens.encode, tokens.texts)
    assert [(form.choice, form.tokens) for form in plan.tries[0].forms] == [
        (form.choice, form.tokens) for form in forms
    ]


@pytest.mark.parametrize("name, field", [case for case in CASES if case[0] != "nfc"])
def test_a_lines_tokens_decoded_again_spell_the_declared_choice(name, field):
    plan, texts = plan_of(name, FIELDS[field]), lexicon(name).texts
    canonical = {form.choice: form for form in reversed(plan.tries[0].forms)}
    for i, choice in enumerate(FIELDS[field].choices):
        line = b"".join(texts[token] for token in canonical[i].tokens).decode()
        assert json.loads("{" + line.strip().removesuffix(",") + "}") == {FIELDS[field].name: choice}


@pytest.mark.parametrize("choice, first", [("-", b' "-",\n'), ("", b' "",\n'), ("Yes.", b' "'), ("HIGH", b' "')])
def test_a_choice_may_melt_with_its_quotes(choice, first):
    plan = plan_of("qwen", FieldDefinition("risk", "enum", "", (choice, "zzz")))
    spelled = [lexicon("qwen").texts[token] for token in plan.tries[0].forms[0].tokens]
    assert spelled[spelled.index(b'":') + 1] == first


def test_a_choice_is_tokenised_with_what_follows_it():
    plan = plan_of("qwen", FieldDefinition("type", "enum", "", ("A+", "A-")))
    endings = [lexicon("qwen").texts[form.tokens[-1]] for form in plan.tries[0].forms]
    assert endings == [b'+",\n', b'-",\n']


@pytest.mark.parametrize(
    "choices, forms",
    [
        ((True, False), ["true", '"true"', "false", '"false"']),
        ((1, 10), ["1", '"1"', "10", '"10"']),
        ((1, "1", 10), ["1", '"1"', "10", '"10"']),
        ((True, "true", None), ["true", '"true"', "null", '"null"']),
        (("true", "null"), ['"true"', '"null"']),
        ((None, "None"), ["null", '"null"', '"None"']),
    ],
)
def test_a_bare_value_may_come_in_quotes_unless_these_spell_another_choice(choices, forms):
    assert [text for _, text in surface_forms(FieldDefinition("x", "enum", "", choices))] == forms


# --- forks ---


@pytest.mark.parametrize("name, field", CASES)
def test_forks_and_their_token_sets_equal_a_search_over_the_whole_vocabulary(name, field):
    plan, tokens = plan_of(name, FIELDS[field]), lexicon(name)
    forms = oracle.forms_of(FIELDS[field], plan.prompt, tokens.encode, tokens.texts)
    expected = {
        path: {child: sorted(ids) for child, ids in oracle.branches_at(path, forms, tokens.texts).items()}
        for form in forms
        for path in oracle.forks_on(form, forms)
    }
    assert forks_of(plan, plan.tries[0]) == expected


def test_a_token_may_hold_a_bare_value_and_whatever_stands_after_it():
    field = FieldDefinition("n", "enum", "", (10, 100))
    assert b" 10\nnote" in lexicon("metaspace").texts
    assert b" 10\nnote" in branch_texts("metaspace", field, 0, 10)


@pytest.mark.parametrize("name, field", CASES)
def test_each_form_takes_one_branch_at_every_fork_on_its_path(name, field):
    plan, tokens = plan_of(name, FIELDS[field]), lexicon(name)
    forms = oracle.forms_of(FIELDS[field], plan.prompt, tokens.encode, tokens.texts)
    assert [len(path) for path in plan.tries[0].paths] == [len(oracle.forks_on(form, forms)) for form in forms]


def branch_texts(name, field, number, choice):
    """What the tokens of a choice's branch say, at one of the field's forks."""
    trie = plan_of(name, field).tries[0]
    fork = trie.forks[number]
    branch = dict(trie.paths[[form.choice for form in trie.forms].index(field.choices.index(choice))])[number]
    return {lexicon(name).texts[token] for token in fork.tokens[fork.branch == branch]}


def test_tokens_that_swallow_the_end_of_a_choice_go_into_its_branch():
    field = FieldDefinition("risk", "enum", "", ("Yes", "Yes."))
    assert branch_texts("qwen", field, 0, "Yes") == {b'"', b'"\n', b'",\n', b'",'}
    assert branch_texts("qwen", field, 0, "Yes.") == {b".", b'."\n', b'.",\n'}


def test_a_bare_number_ends_where_a_comma_a_brace_or_white_space_begins():
    field = FieldDefinition("n", "enum", "", (1, 10))
    last = len(plan_of("qwen", field).tries[0].forks) - 2  # after the bare `1`; the last one is inside quotes
    ends, goes_on = branch_texts("qwen", field, last, 1), branch_texts("qwen", field, last, 10)
    assert goes_on == {b"0"}
    assert {b",", b",\n", b"\n", b"}", b" "} <= ends
    assert all(text[:1] in b",} \t\r\n" for text in ends) and b'"' not in ends


def test_a_token_that_begins_two_branches_belongs_to_neither_unless_it_is_canonical():
    field = FieldDefinition("risk", "enum", "", ("BILLING", "BILLION"))  # tokens BILLING and BILL, I, ON
    assert {b"B", b"BI", b"BILL", b"BILLING"} <= set(lexicon("qwen").texts)
    assert branch_texts("qwen", field, 0, "BILLING") == {b"BILLING"}
    assert branch_texts("qwen", field, 0, "BILLION") == {b"BILL"}


@pytest.mark.parametrize("name, field", CASES)
def test_a_fork_lists_each_of_its_tokens_once_branch_by_branch(name, field):
    for fork in plan_of(name, FIELDS[field]).forks:
        assert len(set(fork.tokens.tolist())) == len(fork.tokens) == len(fork.branch)
        assert fork.branch.tolist() == sorted(fork.branch.tolist())
        assert set(fork.branch.tolist()) == set(range(fork.branches))


@pytest.mark.parametrize("name", LEXICONS)
def test_every_choice_keeps_its_canonical_token(name):
    for field in ("prefixes", "blood_types", "ratings", "mixed"):
        plan = plan_of(name, FIELDS[field])
        for path, branches in forks_of(plan, plan.tries[0]).items():
            assert all(child in tokens for child, tokens in branches.items()), path


# --- the tree batch ---

BIG = [FieldDefinition(f"{name} {i}", "enum", "", tuple(choices)) for i, (name, choices) in enumerate(TRAPS.items())]


@pytest.mark.parametrize("name", LEXICONS)
def test_parents_come_before_children_one_level_deeper(name):
    tree = plan_of(name, *BIG).tree
    for node, (parent, depth) in enumerate(zip(tree.parents, tree.depths, strict=True)):
        assert parent < node
        assert depth == (tree.depths[parent] + 1 if parent >= 0 else 0)


@pytest.mark.parametrize("name", LEXICONS)
def test_the_tree_holds_each_path_once_and_only_paths_that_lead_to_a_fork(name):
    plan = plan_of(name, *BIG)
    paths = [path_to(plan.tree, node) for node in range(len(plan.tree.tokens))]
    assert len(set(paths)) == len(paths)
    read = [fork.path for fork in plan.forks]
    assert {fork[: n + 1] for fork in read for n in range(len(fork))} == set(paths)


def test_a_tree_of_long_choices_holds_what_tells_them_apart_and_no_more():
    long = [FieldDefinition("code", "enum", "", tuple(f"{letter} " + "and nothing else " * 9 for letter in "ABCDEF"))]
    plan = plan_of("qwen", *long)
    assert len(plan.tree.tokens) == len(plan.forks[0].path) < 8
    assert len(plan.forks) == 1


def test_the_forks_of_a_plan_stand_field_by_field():
    plan = plan_of("qwen", *BIG)
    assert plan.forks == tuple(fork for trie in plan.tries for fork in trie.forks)
    for trie in plan.tries:
        name = json.dumps(trie.field.name).encode()
        for fork in trie.forks:
            assert name in b"".join(lexicon("qwen").texts[token] for token in fork.path)


# --- what is refused ---


@pytest.mark.parametrize(
    "choices, message",
    [
        (TWINS[:2], r"field 'risk': choices 'caf\\xe9' and 'cafe\\u0301' become the same tokens; rename one of them"),
        (["x", *reversed(TWINS[2:])], r"field 'risk': choices 'e\\u0301' and '\\xe9' become the same tokens"),
        (["A\u030a", "\u212b"], r"choices 'A\\u030a' and '\\u212b' become the same tokens"),
    ],
)
def test_choices_that_a_normalising_tokenizer_takes_for_one_are_refused_by_name(choices, message):
    with pytest.raises(TokenizationError, match=message):
        plan_of("nfc", FieldDefinition("risk", "enum", "", tuple(choices)))


def test_a_name_that_melts_with_its_value_is_refused():
    """Merges make one token of `  "k": 1` and leave `  "k": 2` in two."""
    vocab = {chr(i): n for n, i in enumerate([*range(32, 127), 10])}
    merges = []
    for end, character in enumerate('  "k": 1', start=1):
        if end > 1:
            merges.append(('  "k": 1'[: end - 1], character))
            vocab['  "k": 1'[:end]] = len(vocab)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE(vocab=vocab, merges=merges)))
    tokenizer.chat_template = CHATML
    vocabulary = Vocabulary(tokenizer)
    schema = StructuredSchema({"k": {"type": "enum", "choices": [1, 2]}})
    with pytest.raises(TokenizationError, match="field 'k': its name and its values melt into one token; rename it"):
        compile_plan(schema, ChatFormat(vocabulary, tokenizer), vocabulary)


# --- ids that can be asked for ---


@pytest.mark.parametrize("most", [1, 4, 9, 1_000])
@pytest.mark.parametrize("field", ["mixed", "trailing_punct", "boolean"])
def test_where_only_so_many_ids_can_be_asked_for_each_branch_keeps_its_own_and_the_shortest_stay(field, most):
    vocabulary, schema = Vocabulary(lexicon("qwen").chat), StructuredSchema([FIELDS[field]])
    chat = ChatFormat(vocabulary, lexicon("qwen").chat)
    whole, cut = compile_plan(schema, chat, vocabulary), compile_plan(schema, chat, vocabulary, most_ids=most)
    (trie,) = cut.tries
    for number, (all_of_it, fork) in enumerate(zip(whole.forks, cut.forks, strict=True)):
        canonical = {
            form.tokens[len(fork.path)]
            for form, path in zip(trie.forms, trie.paths, strict=True)
            if number in dict(path)
        }
        kept, left_out = set(fork.tokens.tolist()), set(all_of_it.tokens.tolist()) - set(fork.tokens.tolist())
        assert canonical <= kept and fork.unasked == len(left_out)
        assert len(kept) == min(len(all_of_it.tokens), max(most, len(canonical)))
        branch_of = dict(zip(all_of_it.tokens.tolist(), all_of_it.branch.tolist(), strict=True))
        assert [branch_of[token] for token in fork.tokens.tolist()] == fork.branch.tolist() == sorted(fork.branch)
        lengths = [len(vocabulary.bytes_of(token)) for token in kept - canonical]
        assert not lengths or not left_out or max(lengths) <= min(len(vocabulary.bytes_of(t)) for t in left_out)
