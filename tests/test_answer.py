"""The object in a text, read without a schema: no model, no tokens."""

import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.answer import Member, NoScalar, lenient, read_answer


def checked(examples):
    return settings(
        max_examples=examples, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
    )


def written(text):
    return {member.name: member.value for member in read_answer(text).members}


# --- finding and reading the object ---


@pytest.mark.parametrize(
    "text, expected",
    [
        ('<think>maybe {"priority":"LOW"}</think>{"priority":"HIGH"}', {"priority": "HIGH"}),
        ('<think></think>\n{"a":"B"}', {"a": "B"}),
        ('<think>{"a":"x"} and on', {}),
        ('{"a":"<think>","b":"</think>"}', {"a": "<think>", "b": "</think>"}),
        ('```json {"why":"show ```py blocks","ok":true} ```', {"why": "show ```py blocks", "ok": True}),
        ('```bash ls``` then ```json {"a":"B"}```', {"a": "B"}),
        ('in {braces}, {} and {{x}}: {"a":"B"}', {"a": "B"}),
        ('{"a":"B"} or {"a":"C"}', {"a": "B"}),
        ('{"a":"}{","b":true}', {"a": "}{", "b": True}),
        ('{"q":"say \\"no\\", then go","k":"x"}', {"q": 'say "no", then go', "k": "x"}),
        ('{"a":[{"b":"]}"},[]],"c":1}', {"a": NoScalar.NESTED, "c": 1}),
        ('{"a":1.0,"b":-2,"c":null}', {"a": 1.0, "b": -2, "c": None}),
        ('{"a" \n:\t1 }', {"a": 1}),
        ("{'tier': 'P1', 'vip': None}", {"tier": NoScalar.INVALID, "vip": NoScalar.INVALID}),
        ('{"dir":"C:\\Hotel","ok":true}', {"dir": NoScalar.INVALID, "ok": True}),
        ('{"C:\\Hotel":1}', {"C:\\Hotel": 1}),
        ('{"score":NaN,"a":"B"}', {"score": NoScalar.INVALID, "a": "B"}),
        ('{"a":1 "b":2}', {"a": 1, "b": 2}),
        ('{"a":yes it is, "b":2}', {"a": NoScalar.INVALID, "b": 2}),
        ('{// "note"\n"a":1}', {"a": 1}),
        ('{# why\n"a":{"b":1}}', {"a": NoScalar.NESTED}),
        ('{"a":,"b":]"c":3}', {"a": NoScalar.UNFINISHED, "b": NoScalar.UNFINISHED, "c": 3}),
        ('{"a":1, {"x":2}, "b":3}', {"a": 1, "b": 3}),
        ('{{"a":1}}', {"a": 1}),
        ('{} or {"a":1}', {}),
        ('say {"yes"} or {"a":1}', {"a": 1}),
        ('{"a" 1, "b":2}', {"b": 2}),
        ('{"a" is {"b":2}', {"b": 2}),
        ('{"a":not sure, "b":2 }', {"a": NoScalar.INVALID, "b": 2}),
        ('{"a":true story, "b":2}', {"a": True, "b": 2}),
        ('{\n<thinking>"a":1</thinking>"a":2}', {"a": 2}),
        ('{\n<seed:think>\n"a":1\n</seed:think>\n\n"a":2}', {"a": 2}),
        ('{"a":1, <think>{"b":2}</think> "c":3}', {"a": 1, "c": 3}),
        ('no </think>{"a":1}</think>{"x"} {"a":2, "b":"</think>"}', {"a": 2, "b": "</think>"}),
        ('{"a":1} {"b":"</think>"} {"a":2}', {"a": 1}),
        ('```sh\n{"a":1}\n````\n{"a":2}', {"a": 2}),
        ('```shell\n{"a":1}', {}),
        ('```shellac {"a":1}', {"a": 1}),
        ('{\nThe key\n"a": must be set.\n{"a":1}', {"a": 1}),
        ('The key\n"a": 2, so\n{"a":1}', {"a": 1}),
        ("{'a':'it's', 'b':1}", {"a": NoScalar.INVALID, "b": 1}),
    ],
)
def test_the_reader_finds_the_members(text, expected):
    found = written(text)
    assert found == expected
    assert [type(value) for value in found.values()] == [type(value) for value in expected.values()]


def test_a_member_knows_where_it_stands():
    text = '{ "a" : "x\\"}" ,\n"b":tr'
    assert read_answer(text).members == (
        Member("a", 2, 14, 'x"}', '"x\\"}"', complete=True),
        Member("b", 17, 23, NoScalar.UNFINISHED, "tr", complete=False),
    )
    assert [text[member.start : member.end] for member in read_answer(text).members] == ['"a" : "x\\"}"', '"b":tr']


# --- what is valid is never touched ---

PIECES = [
    *"\"'\\{}[]:,#/<>`\n\t é😀\u202e\u2028\0",
    "<think>",
    "</think>",
    "```sh",
    "None",
    '\\"',
    "\\u12",
    '"a": 1',
    "say, go",
]
STRINGS = st.lists(st.sampled_from(PIECES), max_size=6).map("".join) | st.text(max_size=6)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | STRINGS
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(STRINGS, inner, max_size=3))
OBJECTS = st.dictionaries(STRINGS, VALUES, max_size=5)
WRAPPED = [("", ""), ("Sure, {here}: ", "\n{done}"), ("```json\n", "\n```"), ("<think>{'a': 1}</think>\n", "</think>")]


@checked(600)
@given(
    values=OBJECTS,
    indent=st.sampled_from([None, 0, 2]),
    ascii_only=st.booleans(),
    around=st.sampled_from(WRAPPED),
)
def test_valid_json_is_read_as_json_reads_it_and_never_repaired(values, indent, ascii_only, around):
    before, after = around
    dumped = json.dumps(values, indent=indent, ensure_ascii=ascii_only)
    text = before + dumped + after
    answer = read_answer(text)
    assert answer.is_json and answer.closed and answer.start == len(before)
    assert [member.name for member in answer.members] == list(json.loads(dumped))
    for member, value in zip(answer.members, values.values(), strict=True):
        assert member.complete and member.lenient == ""
        assert text[member.start : member.end].endswith(member.text)
        assert json.loads(member.text) == value
        if isinstance(value, list | dict):
            assert member.value is NoScalar.NESTED
        else:
            assert member.text == json.dumps(value, ensure_ascii=ascii_only)
            assert (member.value, type(member.value)) == (value, type(value))


# --- the lenient reading ---


@pytest.mark.parametrize(
    "written, reading",
    [
        ("'P1'", '"P1"'),
        ("None", "null"),
        ("True", "true"),
        ("False", "false"),
        ("''", '""'),
        ("'it\\'s'", '"it\'s"'),
        ("'it's'", '"it\'s"'),
        ("'say \"no\"'", '"say \\"no\\""'),
        ("'\\u00fc\\n'", '"\\u00fc\\n"'),
        ('"C:\\Hotel"', '"C:\\\\Hotel"'),
        ('"C:\\u12"', '"C:\\\\u12"'),
        ('"a\nb"', '"a\\nb"'),
        # What readers differ about, or read as nothing that JSON has.
        *((other, "") for other in ("NaN", "Infinity", "-Infinity", "nan", "HIGH", "yes", "TRUE", "NONE", "nul", "+1")),
        *((other, "") for other in ("01", "0x1F", "1_000", "None of these", "9" * 5000, "“P1”", "'", "b'P1'", "(1)")),
        # What is valid, or not whole, is not read leniently.
        *((other, "") for other in ('"P1"', "null", "1", "[None]", "{'a': 1}", "'P1", "'P1\\'", '"C:\\H')),
    ],
)
def test_a_lenient_reading_is_told_only_where_readers_agree(written, reading):
    [member] = read_answer(f'{{"tier": {written}\n').members
    assert member.lenient == reading
    if reading:
        assert member.value is NoScalar.INVALID
        json.loads(reading)


@checked(400)
@given(
    st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]) | st.sampled_from("\"'\\\n\r\t ,}"), max_size=8)
)
def test_a_string_as_python_writes_it_is_read_as_python_reads_it(text):
    assert json.loads(lenient(repr(text))) == text
    [member, _] = read_answer(f"{{'a': {text!r}, 'b': None}}").members
    assert member.text == repr(text)
    assert json.loads(member.lenient or member.text) == text


# --- the strict verdict ---


def random_object(chance):
    scalars = [0, -7, 2.5, 1e30, True, False, None, "", "HIGH", "true", "1"]
    pieces = [*"\"\\{}[]:,'\n é😀a\u202e\ud83d", "<think>", "```"]

    def text():
        return "".join(chance.choices(pieces, k=chance.randrange(6)))

    def value(depth):
        kind = chance.randrange(4 if depth else 2)
        if kind == 0:
            return chance.choice(scalars)
        if kind == 1:
            return text()
        if kind == 2:
            return [value(depth - 1) for _ in range(chance.randrange(4))]
        return {text(): value(depth - 1) for _ in range(chance.randrange(4))}

    return {f"{index}{text()}": value(3) for index in range(chance.randrange(1, 7))}


STRICT_TEXTS = [
    '{\n  "a": "HIGH",\n  "b": true\n}', "{}", '{"a":1e5}', '{"a":-0}', '{"a":-}', '{"a":+1}', '{"a":.5}',
    '{"a":1.}', '{"a":01}', '{"a":0x1}',
    '{"a":"\\/"}', '{"a":"\\x"}', '{"a":"\\u12"}', '{"a":"\\ud800"}', '{"a":"\t"}', '{"a":"\x7f"}', '{"a":"\u2028"}',
    '{"a":1,"a":2}', '{"a":1,}', '{,"a":1}', '{"a" 1}', '{"a":1 "b":2}', '{"a"::1}', '{"a":[1,]}', '{"a":[1}}',
    '{"a":{"b":}}', '{"a":NaN}', '{"a":Infinity}', '{"a":-Infinity}', '{"a":nul}', '{"a":TRUE}', "{'a':1}", "{a:1}",
    '{"a":1//x\n}', '{/**/"a":1}', '{\xa0"a":1}', '{"a":"\\""}', '{"a":"\\\\"}', '{"a":"}{"}', '{1:2}', '{"a":(1)}',
]  # fmt: skip


def strictly_json(text):
    def refuse(constant):
        raise ValueError(constant)

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("text", STRICT_TEXTS)
def test_the_strict_verdict_is_the_one_of_json(text):
    assert read_answer(text).is_json == strictly_json(text)


def test_the_strict_verdict_is_the_one_of_json_on_damaged_texts():
    chance, verdicts = random.Random(7), set()
    for _ in range(3000):
        text = json.dumps(random_object(chance), ensure_ascii=chance.random() < 0.5)
        at = chance.randrange(1, len(text))
        text = text[:at] + chance.choice(["", ",", '"', "}", "{", "1", "\\", " "]) + text[at + chance.randrange(2) :]
        # Text behind the closing brace is allowed: some start of the text is JSON.
        parses = any(strictly_json(text[: end + 1]) for end, char in enumerate(text) if char == "}")
        assert read_answer(text).is_json == parses, text
        verdicts.add(parses)
    assert verdicts == {True, False}


# --- every cut ---

CUT_TEXTS = [
    '{\n  "priority": "HIGH",\n  "vip": true,\n  "tier": 1\n}',
    '{"mood":"\\ud83d\\ude00","priority":"😀","vip":"\\\\ud83d\\\\","tier":"\\u00e9\\ud83d\\n\\ude00"}',
    '{"\\ud83d":"\\ud83d","\\ud83d\\ude00":{"a":"\\ud83d"},"x":"\\ud83d\\ud83d\\ude00"}',
    '<think>{"vip": false}</think>\n```json\n{"vip": true, "odd": [1, {"a": "]}"}], "vip": null}\n``` done {"x": 1}',
    "{'tier': 'P1', 'vip': None}",
    '{"dir":"C:\\Hotel\\u12","ok":tru, // because "x": 1\n"vip":true "tier"::1, "priority" "HIGH", {"n":1}, }',
    '{{"a": 1}, "b": 2} {"c": 3}',
    '{# why\n"a": {"b": 1}} {"c": 3}',
    'say {"a" or {"a": 1, "b": {"c": "}"}</think>{"a": None of these, "b": \'it\\\'s\'}',
    '{\nmaybe {"a": 1}</think>\n"a": 2, "b": [3]}',
    '```bash\necho {"a": 1}\n```\n{"a": "B"}',
]


def check_every_cut(text):
    """A member stays and grows, unless a closing thinking tag shows that it was a draft."""
    before, drafts = (), 0
    for cut in range(len(text) + 1):
        members = read_answer(text[:cut]).members
        if [(m.name, m.start) for m in members[: len(before)]] != [(m.name, m.start) for m in before]:
            tag = text.rindex("</think>", 0, cut)
            assert before[0].start < tag < members[0].start
            before, drafts = (), drafts + 1
        for was, now in zip(before, members):
            assert now.text.startswith(was.text)
            assert not was.complete or now == was
        before = members
    return drafts


@pytest.mark.parametrize("opening", ["", "{\n"])
@pytest.mark.parametrize("text", CUT_TEXTS)
def test_at_every_cut_no_member_is_taken_back(text, opening):
    assert check_every_cut(opening + text) == (text.count("</think>") - text.count("<think>"))


def test_at_every_cut_of_noise_no_member_is_taken_back():
    chance, drafts = random.Random(11), 0
    pieces = [*"{}[]:,\"'\\/ \n1#`", '{"', '"vip"', '"a":', "'b':", "true", "\\ud83d", "<think>", "</think>", "```sh"]
    pieces += ['{"a": 1}', '\n"a": 1', "'x'", "None", "not sure"]
    for _ in range(400):
        drafts += check_every_cut(chance.choice(["", "{\n"]) + "".join(chance.choices(pieces, k=25)))
    assert drafts > 3


# --- size ---


@pytest.mark.parametrize(
    "text",
    [
        '{"vip": ' + "[" * 200_000,
        '{"vip": ' + '{"vip": ' * 50_000,
        "{" * 200_000,
        '{"vip": 1,' + '"' * 200_001,
        '{"vip": 1,' + "'" * 200_000,
        '{"vip": "' + "\\" * 200_001,
        '{"vip"' + " " * 200_000,
        '{"vip": "' + "\\ud83d" * 30_000,
        "<think>" * 30_000,
        '{"vip": 1 ' + "{}" * 100_000,
        "`" * 200_000,
        "{# " * 60_000,
        '\n"' * 100_000,
        '"' + '\\"' * 100_000,
        "{\n" + "</think>\n" * 20_000,
        '{"a": 1}</think>' * 12_000,
        "{'a': '" + "\\'" * 100_000,
        "<" + "think" * 40_000,
        '{"a": ' + "not " * 50_000,
    ],
    ids=lambda text: text[:20],
)
def test_hostile_texts_are_no_json_and_are_read_in_linear_time(text):
    # Linear is under 0.3 s; a quadratic pass over 200,000 characters takes minutes, which no time limit of tests gives.
    answer = read_answer(text)
    assert not answer.is_json and not any(member.lenient for member in answer.members)
