"""What the baseline wrote, read from text alone: no model, no tokens."""

import json

import pytest

from core.compare import Flag, Row, compare
from core.schema import StructuredSchema

SCHEMA = StructuredSchema(
    {
        "priority": {"type": "enum", "choices": ["HIGH", "LOW", "P1", "😀"]},
        "vip": {"type": "boolean"},
        "tier": {"type": "enum", "choices": [1, "1", 10, None]},
    }
)
VALUES = {"priority": "HIGH", "vip": True, "tier": 1}
SAME, DIFFERS, OMITTED = Flag.SAME, Flag.DIFFERS, Flag.OMITTED
INVENTED, NOT_ALLOWED, DUPLICATE = Flag.INVENTED, Flag.NOT_ALLOWED, Flag.DUPLICATE

CLEAN = '{\n  "priority": "HIGH",\n  "vip": true,\n  "tier": 1\n}'


def finished(text, **options):
    return compare(SCHEMA, text, finished=True, **{"values": VALUES, **options})


def writing(text, **options):
    return compare(SCHEMA, text, finished=False, **{"values": VALUES, **options})


def row(comparison, name):
    return next(row for row in (*comparison.rows, *comparison.invented) if row.name == name)


# --- one field: the verdict ---


@pytest.mark.parametrize(
    "field, value, flag",
    [
        ("priority", '"HIGH"', SAME),
        ("priority", '"LOW"', DIFFERS),
        ("priority", '"\\u0048IGH"', SAME),
        ("priority", '"high"', NOT_ALLOWED),
        ("priority", '" HIGH"', NOT_ALLOWED),
        ("priority", '"HIGH "', NOT_ALLOWED),
        ("priority", '""', NOT_ALLOWED),
        ("priority", "HIGH", NOT_ALLOWED),
        ("priority", "null", NOT_ALLOWED),
        ("priority", '["HIGH"]', NOT_ALLOWED),
        ("priority", '{"value": "HIGH", "why": "} ]"}', NOT_ALLOWED),
        ("priority", '"\\ud83d"', NOT_ALLOWED),
        ("vip", "true", SAME),
        ("vip", "false", DIFFERS),
        ("vip", '"true"', NOT_ALLOWED),
        ("vip", '"yes"', NOT_ALLOWED),
        ("vip", "1", NOT_ALLOWED),
        ("vip", "0", NOT_ALLOWED),
        ("vip", "True", NOT_ALLOWED),
        ("tier", "1", SAME),
        ("tier", '"1"', DIFFERS),
        ("tier", "null", DIFFERS),
        ("tier", "1.0", NOT_ALLOWED),
        ("tier", "1e0", NOT_ALLOWED),
        ("tier", "1e999", NOT_ALLOWED),
        ("tier", "true", NOT_ALLOWED),
        ("tier", "01", NOT_ALLOWED),
        ("tier", "NaN", NOT_ALLOWED),
        ("tier", "-Infinity", NOT_ALLOWED),
        ("tier", "9" * 5000, NOT_ALLOWED),
    ],
)
def test_a_value_is_judged_by_its_text_and_its_json_type(field, value, flag):
    comparison = finished(f'{{"{field}": {value}}}')
    assert row(comparison, field).flags == (flag,)
    assert row(comparison, field).text == value.replace("\\u0048", "H")


@pytest.mark.parametrize("other, flag", [(None, SAME), ("1", DIFFERS), (1, DIFFERS)])
def test_null_of_the_pcd_lane_is_a_value_like_any_other(other, flag):
    assert row(finished('{"tier": null}', values={"tier": other}), "tier").flags == (flag,)


def test_integer_string_and_boolean_choices_of_one_field_are_kept_apart():
    schema = StructuredSchema({"x": {"type": "enum", "choices": [1, "1", True, "true", 0, False]}})
    for text, value in [("1", 1), ('"1"', "1"), ("true", True), ('"true"', "true"), ("0", 0), ("false", False)]:
        flags = {
            str(other) + type(other).__name__: compare(schema, f'{{"x": {text}}}', finished=True, values={"x": other})
            .rows[0]
            .flags
            for other in schema["x"].choices
        }
        assert [name for name, given in flags.items() if given == (SAME,)] == [str(value) + type(value).__name__]


# --- keys: omitted, invented, duplicate ---


@pytest.mark.parametrize(
    "text, flags",
    [
        ('{"vip": false, "vip": true}', (DUPLICATE, SAME)),
        ('{"vip": true, "vip": false}', (DUPLICATE, DIFFERS)),
        ('{"vip": true, "vip": "true"}', (DUPLICATE, NOT_ALLOWED)),
        ('{"vip": true, "v\\u0069p": true, "vip": true}', (DUPLICATE, SAME)),
        ('{"Vip": true}', (OMITTED,)),
        ("{}", (OMITTED,)),
    ],
)
def test_a_key_written_twice_or_never_is_flagged(text, flags):
    comparison = finished(text)
    assert comparison.outcome == "parsed"
    assert row(comparison, "vip").flags == flags


def test_a_duplicate_is_no_clean_match():
    counts = finished('{"priority": "HIGH", "vip": false, "vip": true, "odd": 1, "odd": 2}').counts
    assert counts == {SAME: 1, DUPLICATE: 2, OMITTED: 1, INVENTED: 1}


def test_invented_keys_come_once_each_in_order_of_appearance():
    comparison = finished('{"b": 1, "vip": true, "a": {"vip": false}, "b": "two", "Vip": null}')
    assert comparison.invented == (
        Row("b", '"two"', (INVENTED, DUPLICATE), partial=False),
        Row("a", '{"vip": false}', (INVENTED,), partial=False),
        Row("Vip", "null", (INVENTED,), partial=False),
    )
    assert row(comparison, "vip").flags == (SAME,)


@pytest.mark.parametrize(
    "key", ["__proto__", "constructor", "path", "", " vip", "<img src=x onerror=alert(1)>", "k" * 9999, "ключ", "a\nb"]
)
def test_any_key_is_just_text(key):
    comparison = finished(json.dumps({key: 1, "vip": True}))
    assert [row.name for row in comparison.invented] == [key]
    assert row(comparison, "vip").flags == (SAME,)


def test_rows_stand_in_schema_order_whatever_the_text_does():
    assert [row.name for row in finished('{"tier": 1, "priority": "LOW"}').rows] == ["priority", "vip", "tier"]


# --- while it streams ---


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", Row("vip", "", (), False)),
        ("{", Row("vip", "", (), False)),
        ('{"vi', Row("vip", "", (), False)),
        ('{"vip"', Row("vip", "", (), False)),
        ('{"vip":', Row("vip", "", (), True)),
        ('{"vip": t', Row("vip", "t", (), True)),
        ('{"vip": true', Row("vip", "true", (), True)),
        ('{"vip": true,', Row("vip", "true", (SAME,), False)),
        ('{"vip": "tr', Row("vip", '"tr', (), True)),
        ('{"vip": "true"', Row("vip", '"true"', (NOT_ALLOWED,), False)),
        ('{"vip": {"a": "}', Row("vip", '{"a": "}', (), True)),
        ('{"vip": {"a": "}"}', Row("vip", '{"a": "}"}', (NOT_ALLOWED,), False)),
        ('{"vip": true, "vip":', Row("vip", "", (DUPLICATE,), True)),
    ],
)
def test_a_value_gets_its_verdict_when_it_is_whole(text, expected):
    comparison = writing(text)
    assert comparison.outcome == "writing"
    assert row(comparison, "vip") == expected


def test_a_number_is_whole_when_something_follows_it():
    assert row(writing('{"tier": 1'), "tier").flags == ()
    assert row(writing('{"tier": 1\n'), "tier").flags == (SAME,)
    assert row(writing('{"tier": 10}'), "tier").flags == (DIFFERS,)


@pytest.mark.parametrize("values", [None, {}, {"priority": "HIGH"}])
def test_an_allowed_value_waits_for_the_other_lane(values):
    comparison = compare(SCHEMA, '{"vip": true, "tier": "1", "odd": 1, "priority": "no"}', finished=True, values=values)
    assert row(comparison, "vip") == Row("vip", "true", (), False)
    assert row(comparison, "priority").flags == (NOT_ALLOWED,)
    assert row(comparison, "odd").flags == (INVENTED,)


def test_an_invented_key_is_flagged_while_its_value_is_still_written():
    assert writing('{"odd": "va').invented == (Row("odd", '"va', (INVENTED,), partial=True),)


def test_a_value_that_was_never_finished_is_omitted_at_the_end():
    comparison = finished('{"vip": true, "priority": "HI')
    assert comparison.outcome == "truncated"
    assert row(comparison, "vip") == Row("vip", "true", (SAME,), partial=True)
    assert row(comparison, "priority") == Row("priority", '"HI', (OMITTED,), partial=True)
    assert row(comparison, "tier") == Row("tier", "", (OMITTED,), partial=True)


# --- the whole ---


@pytest.mark.parametrize(
    "text, outcome",
    [
        (CLEAN, "parsed"),
        ("{}", "parsed"),
        ("{\n}", "parsed"),
        ('{}\nor, as an example: {"vip": true}', "parsed"),
        (CLEAN + "\n```\nThat is all, {really}.", "parsed"),
        ("Sure! " + CLEAN, "parsed"),
        ("none: {}, or {", "parsed"),
        ("", "not_parsable"),
        ("I cannot do that.", "not_parsable"),
        ("{", "truncated"),
        ('{"vip": true', "truncated"),
        ('{"vip": true,\n' + " " * 500, "truncated"),
        ('{"vip": true, "priority": "HIGH}', "truncated"),
        ('{"vip": true,}', "not_parsable"),
        ('{"vip": true "tier": 1}', "not_parsable"),
        ('{"vip": , "tier": 1}', "not_parsable"),
        ("{'vip': true}", "not_parsable"),
        ('{// yes\n"vip": true}', "not_parsable"),
        ('{"vip": True}', "not_parsable"),
        ('{"tier": NaN}', "not_parsable"),
        ('{"tier": [Infinity]}', "not_parsable"),
        ('{"priority": "C:\\Hotel"}', "not_parsable"),
        ('{"priority": "a\nb"}', "not_parsable"),
        ('{{"vip": true}}', "not_parsable"),
        ('{"tier": ' + "9" * 5000 + "}", "not_parsable"),
        ('{"tier": ' + "[" * 100_000 + "]" * 100_000 + "}", "not_parsable"),
    ],
)
def test_the_outcome_names_what_became_of_the_whole(text, outcome):
    assert finished(text).outcome == outcome
    assert writing(text).outcome == "writing"


def test_rows_are_partial_exactly_where_the_finished_whole_does_not_parse():
    assert not any(row.partial for row in finished(CLEAN).rows)
    broken = finished('{"vip": true, "odd": 1,}')
    assert all(row.partial for row in (*broken.rows, *broken.invented))
    assert row(broken, "vip").flags == (SAME,)


def test_the_token_limit_marks_even_an_object_that_closed():
    comparison = finished(CLEAN + "\n" * 200, truncated=True)
    assert comparison.outcome == "truncated"
    assert comparison.rows[0] == Row("priority", '"HIGH"', (SAME,), partial=False)


# --- every cut ---

CUT_TEXTS = [
    CLEAN,
    '{"mood":"\\ud83d\\ude00","priority":"😀","vip":"\\\\ud83d\\\\","tier":"\\u00e9\\ud83d\\n\\ude00"}',
    '{"\\ud83d":"\\ud83d","\\ud83d\\ude00":{"a":"\\ud83d"},"x":"\\ud83d\\ud83d\\ude00"}',
    '<think>{"vip": false}</think>\n```json\n{"vip": true, "odd": [1, {"a": "]}"}], "vip": null}\n``` done {"x": 1}',
    "{'tier': 'P1', 'vip': None}",
    '{"dir":"C:\\Hotel\\u12","ok":tru, // because "x": 1\n"vip":true "tier"::1, "priority" "HIGH", {"n":1}, }',
    '{{"a": 1}, "b": 2} {"c": 3}',
    '{# why\n"a": {"b": 1}} {"c": 3}',
]


@pytest.mark.parametrize("opening", ["", "{\n"])
@pytest.mark.parametrize("text", CUT_TEXTS)
def test_every_cut_is_drawn_in_whole_characters(text, opening):
    for cut in range(len(text) + 1):
        for comparison in (writing(opening + text[:cut]), finished(opening + text[:cut])):
            for shown in (*comparison.rows, *comparison.invented):
                assert "\ufffd" not in (shown.name + shown.text + shown.lenient).encode("utf-8").decode("utf-8")


def test_an_emoji_appears_at_once_or_not_at_all():
    for emoji in ("\\ud83d\\ude00", "😀"):
        text = f'{{"priority":"{emoji}"}}'
        seen = [row(writing(text[:cut]), "priority").text for cut in range(len(text) + 1)]
        assert list(dict.fromkeys(seen)) == ["", '"', '"😀', '"😀"']
    assert row(finished('{"priority":"\\ud83d\\ude00"}', values={"priority": "😀"}), "priority").flags == (SAME,)


@pytest.mark.parametrize(
    "value, shown",
    [
        ('"\\ud83d"', '"\\ud83d"'),
        ('"\\ude00\\ud83d"', '"\\ude00\\ud83d"'),
        ('"\\ud83d\\ud83d\\ude00"', '"\\ud83d😀"'),
        ('"\ud83d"', '"\\ud83d"'),
        ('"M\\u00fcnchen"', '"München"'),
        ('"\\\\u00fc"', '"\\\\u00fc"'),
        ('"\\u0022\\u005c\\u0000\\u202e"', '"\\u0022\\u005c\\u0000\\u202e"'),
        ('"a\\n\\t\\"b"', '"a\\n\\t\\"b"'),
        ('"\\uZZZZ"', '"\\uZZZZ"'),
        ('["\\u00fc"]', '["ü"]'),
    ],
)
def test_escapes_of_whole_characters_are_drawn_and_all_others_stay_as_written(value, shown):
    assert row(finished(f'{{"priority": {value}}}'), "priority").text == shown
    assert row(finished(f'{{"odd": {value}}}'), "odd").text == shown


@pytest.mark.parametrize(
    "half, shown",
    [
        ("\\", ""),
        ("\\u", ""),
        ("\\u00f", ""),
        ("\\u00fc", "ü"),
        ("\\ud83d", ""),
        ("\\ud83d\\ude0", ""),
        ("\\ud83dx", "\\ud83dx"),
        ("\\\\", "\\\\"),
        ("\\\\u00", "\\\\u00"),
        ("\\\\\\u00", "\\\\"),
    ],
)
def test_a_half_written_escape_waits(half, shown):
    assert row(writing(f'{{"priority": "a{half}'), "priority").text == f'"a{shown}'


def test_a_key_that_is_half_a_character_is_an_invented_key_that_can_be_sent():
    assert [row.name for row in finished('{"\\ud83d": 1}').invented] == ["\\ud83d"]
