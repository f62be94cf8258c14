"""Notations: YAML is read as JSON reads it, and refused where two readers of YAML would differ."""

import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import notation
from core.field import SchemaError
from core.notation import json_data, parsed, yaml_data


def typed(data):
    """The data with the type of every value, because Python takes `True == 1` for true."""
    if isinstance(data, dict):
        return {name: typed(value) for name, value in data.items()}
    return [typed(item) for item in data] if isinstance(data, list) else (type(data).__name__, data)


def refused(text):
    with pytest.raises(SchemaError, match=".") as refusal:
        yaml_data(text)
    message = str(refusal.value)
    assert "\n" not in message and len(message) < 200
    return message


# --- what YAML texts are ---


@pytest.mark.parametrize(
    "text, value",
    [
        ("true", True),
        ("false", False),
        ("null", None),
        ("0", 0),
        ("12", 12),
        ("-3", -3),
        ("1.5", 1.5),
        ("-0.25", -0.25),
        ("6.0e+2", 600.0),
        ("True", True),
        ("TRUE", True),
        ("False", False),
        ("FALSE", False),
        ("Null", None),
        ("NULL", None),
        ("~", None),
        ("", None),
        (f"1{'0' * 300}", 10**300),
    ],
)
def test_an_unquoted_value_is_what_json_makes_of_it(text, value):
    assert typed(yaml_data(f"a: {text}")) == typed(json_data(json.dumps({"a": value}))) == typed({"a": value})
    assert typed(yaml_data(f"a:\n  b: {text}\n")) == typed({"a": {"b": value}})
    assert typed(yaml_data(f"- {text}")) == typed([value])


@pytest.mark.parametrize(
    "text, value",
    [
        ("'NO'", "NO"),
        ('"no"', "no"),
        ("'0123'", "0123"),
        ('"1:30"', "1:30"),
        ("'true'", "true"),
        ('"null"', "null"),
        ("'~'", "~"),
        ("''", ""),
        ('"12"', "12"),
        ("'1e3'", "1e3"),
        ("'it''s'", "it's"),
        (r'"a\tb\u00e9\x41"', "a\tbéA"),
        (r'"\ud83d\ude00"', "😀"),
        ("!!str NO", "NO"),
        ("NOR", "NOR"),
        ("NO way", "NO way"),
        ("12 apples", "12 apples"),
        ("2024-01-01", "2024-01-01"),
        ("2001-12-14t21:59:43.10-05:00", "2001-12-14t21:59:43.10-05:00"),
        ("1.2.3", "1.2.3"),
        ("A+", "A+"),
        ("--", "--"),
        ("http://x.y/#z", "http://x.y/#z"),
        ("high # a comment", "high"),
        ("生气", "生气"),
        ("\u0661\u0662", "\u0661\u0662"),
    ],
)
def test_a_quoted_value_is_a_text_and_so_is_one_that_every_reader_takes_for_a_text(text, value):
    assert typed(yaml_data(f"a: {text}")) == typed({"a": value})


@pytest.mark.parametrize(
    "text, value",
    [
        ("|\n  two\n  lines\n", "two\nlines\n"),
        ("|-\n  NO\n", "NO"),
        (">-\n  one\n  line\n", "one line"),
        ("one\n  line\n", "one line"),
        ("'one\n\n  break'", "one\nbreak"),
        ('"one \\\n  line"', "one line"),
    ],
)
def test_a_text_of_several_lines_keeps_what_it_says(text, value):
    assert yaml_data(f"a: {text}") == {"a": value}


def test_blocks_flows_and_mixtures_of_them_are_the_same_data():
    block = "risk:\n  type: enum\n  choices:\n    - HIGH\n    - 'NO'\n    - 1\n"
    flow = "{risk: {type: enum, choices: [HIGH, 'NO', 1]}}"
    mixed = "---\n# a schema\nrisk:\n  type: enum\n  choices: [HIGH, 'NO',\n    1]\n...\n"
    expected = {"risk": {"type": "enum", "choices": ["HIGH", "NO", 1]}}
    assert [yaml_data(text) for text in (block, flow, mixed)] == [expected] * 3


@pytest.mark.parametrize("text", ["\ufeffa: b", "a: b\r\n", "\n\n  a: b", "# c\na: b", "%YAML 1.2\n---\na: b"])
def test_a_byte_order_mark_blanks_and_comments_are_no_data(text):
    assert parsed(text) == {"a": "b"}


@pytest.mark.parametrize("text", ["", "\n", "# nothing here\n"])
def test_yaml_without_a_value_is_null(text):
    assert yaml_data(text) is None


# --- which notation a text is in ---


@pytest.mark.parametrize(
    "text, data",
    [
        ('{"a": 1e3}', {"a": 1000.0}),
        (' \n\t{"a": "NO"}', {"a": "NO"}),
        ('\ufeff{"a": "NO"}', {"a": "NO"}),
        ("[1, 2]", [1, 2]),
        ("a: [1, 2]", {"a": [1, 2]}),
        ('"NO": quoted', {"NO": "quoted"}),
        ("'NO': quoted", {"NO": "quoted"}),
        ("- a", ["a"]),
        ("null", None),
        ('"a text"', "a text"),
    ],
)
def test_a_text_that_begins_with_a_bracket_is_json_and_any_other_yaml(text, data):
    assert parsed(text) == data


def test_a_text_that_begins_as_json_gets_the_words_of_json():
    with pytest.raises(SchemaError, match="not valid JSON: .* at line 1, column 2"):
        parsed("{a: b}")
    with pytest.raises(SchemaError, match="not valid JSON: Expecting value at line 1, column 1"):
        parsed("")


@pytest.mark.parametrize("given", [None, b"a: b", {"a": 1}, 7])
def test_what_is_no_text_is_refused(given):
    with pytest.raises(SchemaError, match="a schema is JSON or YAML text here, got"):
        parsed(given)


# --- what is refused ---

MISTAKEN = """
    NO no No YES Yes yes on On OFF off 0123 0x1F 0b11 0o17 08 +1 1_000 1:30
    190:20:30 .inf -.INF .nan .NaN .5 1. 01.5 1e3 1E5 1.5e3 6.02e23 -08 = <<
""".split()  # fmt: skip


@pytest.mark.parametrize("word", MISTAKEN)
@pytest.mark.parametrize(
    "around, line, data",
    [
        ("a: {}", 1, lambda word: {"a": word}),
        ("\n# c\nx:\n- y\n- {}", 5, lambda word: {"x": ["y", word]}),
        ("a: b\n{}: c", 2, lambda word: {"a": "b", word: "c"}),
        ("a: [b,\n{} ]", 2, lambda word: {"a": ["b", word]}),
    ],
    ids=["value", "item", "name", "flow"],
)
def test_a_word_that_another_reader_takes_for_something_else_is_refused_with_its_line(around, line, data, word):
    message = refused(around.format(word))
    assert message.startswith(f"line {line}: {word!r} is a ") and "quote it" in message
    for quoted in (f"'{word}'", f'"{word}"'):
        assert yaml_data(around.format(quoted)) == data(word)


@pytest.mark.parametrize("word", ["NO", "0123", "12:30", "+49", "!Ref x", ".inf"])
def test_an_example_is_for_people_and_may_be_unclear(word):
    assert yaml_data(f"example: {word}\nexamples: [{word}]").keys() == {"example", "examples"}
    assert refused(f"default: {word}") and refused(f"example: {{enum: [{word}]}}")
    part = yaml_data("example: {type: boolean, nullable: true}")
    assert part["example"]["nullable"] is True


def test_a_name_may_be_the_digits_of_a_number_as_status_codes_of_openapi_are():
    assert yaml_data("200:\n  a: b\n404: {}") == {"200": {"a": "b"}, "404": {}}
    assert "'200' appears twice" in refused("200: a\n'200': b")


@pytest.mark.parametrize(
    "text, message",
    [
        ("x: y\ntrue: a", "line 2: the name 'true' is no text to YAML; quote it"),
        ("null: a", "the name 'null' is no text"),
        ("? [a]\n: b", "line 1: the name"),
        ("a: x\nb: y\na: z", "'a' appears twice in one object; each name must be unique"),
        ("a: {b: x, 'b': y}", "'b' appears twice"),
        ("a: &x y\nb: *x", "the schema is YAML with an alias (*name); write out what it stands for"),
        ("a: &x {b: *x}", "with an alias"),
        ("a: *x", "with an alias"),
        ("base: &x {a: b}\nc:\n  <<: *x", "with an alias"),
        ("a: &x y\nb: &x z", "found duplicate anchor 'x'"),
        ("a: x\n---\nb: y", "expected a single document in the stream, but found another document at line 2"),
        ("a:\n\t- b", r"found character '\t' that cannot start any token at line 2"),
        ("a: b: c", "mapping values are not allowed here at line 1"),
        ("x: y\na: 'b", "the schema is not valid YAML: while scanning a quoted scalar, found unexpected end"),
        ("a: [b", "the schema is not valid YAML: "),
        ("a: @b", "found character '@' that cannot start any token"),
        ("a:\n  b: c\n d: e", "the schema is not valid YAML: "),
        ("a: \x01", "the schema is not valid YAML: 'unacceptable character #x0001"),
        ("a: \ud800", "the schema is not valid YAML: 'unacceptable character"),
        ("a: 1" + "0" * 5000, "a number is too long"),
        ("a: !!int '12'", "line 1: '12' is a int to YAML"),
        ("a: !!binary aGk=", "is a binary to YAML"),
        ("a: !Ref b", "line 1: 'b' is a !Ref to YAML"),
        ("[" * 3000, "nested too deeply"),
        ("- " * 3000, "nested too deeply"),
        ("".join(" " * n + "a:\n" for n in range(600)), "nested too deeply"),
    ],
)
def test_yaml_that_is_no_plain_data_is_refused_on_one_line(text, message):
    assert message in refused(text)


def test_yaml_of_more_characters_than_are_read_is_refused_before_it_is_read(monkeypatch):
    monkeypatch.setattr(notation, "MAX_YAML", 10)
    assert yaml_data("a: 3456789") == {"a": 3456789}
    assert refused("a: [3456789") == "the schema has 11 characters of YAML; at most 10 are read, so use JSON"


def test_a_few_aliases_that_stand_for_billions_of_values_are_refused_at_the_first(monkeypatch):
    made = []
    monkeypatch.setattr(notation, "_value", lambda node: made.append(node))
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "with an alias" in refused("\n".join(lines)) and made == []


@pytest.mark.parametrize(
    "text, data",
    [
        ("a: !!python/object/apply:os.mkdir [{}]", {"a": ["{}"]}),
        ("a: !!python/object/new:os.mkdir {{args: [{}]}}", {"a": {"args": ["{}"]}}),
        ("!!python/object/apply:os.mkdir ['{}']", ["{}"]),
    ],
)
def test_a_tag_that_names_a_python_object_makes_none(tmp_path, text, data):
    folder = tmp_path / "made"
    assert yaml_data(text.format(folder)) == json.loads(json.dumps(data).replace("{}", str(folder)))
    assert not folder.exists()


def test_a_scalar_with_the_tag_of_a_python_object_is_refused():
    assert "'x' is a os.system to YAML" in refused("a: !!python/name:os.system x")


# --- JSON is YAML ---

SCALARS = st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(MISTAKEN)
NAMES = st.text(max_size=80)  # YAML takes a name of 1,024 characters at most, escapes written out
DATA = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=12
)


@given(DATA, st.booleans(), st.sampled_from([None, 1]))
def test_json_is_yaml_of_the_same_data_and_refused_for_a_control_character_alone(data, is_ascii, indent):
    text = json.dumps(data, ensure_ascii=is_ascii, indent=indent)
    try:
        found = yaml_data(text)
    except SchemaError as refusal:
        assert "not valid YAML" in str(refusal) and not text.replace("\n", "").isprintable()
    else:
        assert typed(found) == typed(json_data(text)) == typed(data)


@given(st.text(st.sampled_from("0123456789+-.eExob"), min_size=1, max_size=6).filter(lambda text: text != "-"))
def test_an_unquoted_text_never_looks_like_a_number(text):
    try:
        [found] = yaml_data(f"- {text}")
    except SchemaError:
        return
    if isinstance(found, str):
        for number in (float, partial(int, base=0), partial(int, base=10)):
            with pytest.raises(ValueError, match="could not convert|invalid literal"):
                number(found)
    else:
        assert typed(found) == typed(json_data(text))
