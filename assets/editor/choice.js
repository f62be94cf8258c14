// A choice is kept as its JSON. A person sees and types less: LOW is the text "LOW"; 1, true and null are
// themselves; what would be taken for something else, such as the text "1", stands in quotes.

const WHOLE_NUMBER = /^-?(0|[1-9]\d*)$/;
const WORDS = new Set(['true', 'false', 'null']);
// Texts that a reader would take for a value of another kind.
const NUMBER_LIKE = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i;
const WORD_LIKE = /^(true|false|null)$/i;

// What was typed, as JSON.
function readChoice(typed) {
  if (WHOLE_NUMBER.test(typed) || WORDS.has(typed)) return typed;
  return JSON.stringify(quoted(typed) ?? typed);
}

// The text in JSON's quotes; undefined where it is none.
function quoted(typed) {
  if (!typed.startsWith('"')) return undefined;
  try {
    const text = JSON.parse(typed);
    return typeof text === 'string' ? text : undefined;
  } catch {
    return undefined;
  }
}

// A choice's JSON as a person reads and types it: `readChoice(showChoice(json))` is the choice.
function showChoice(json) {
  const text = quoted(json);
  if (text === undefined) return json;
  const isPlain = readChoice(text) === JSON.stringify(text)
    && text !== '' && text === text.trim() && literal(text) === text && !text.startsWith('"')
    && !NUMBER_LIKE.test(text) && !WORD_LIKE.test(text);
  return isPlain ? text : literal(JSON.stringify(text));
}

function isText(json) {
  return json.startsWith('"');
}
