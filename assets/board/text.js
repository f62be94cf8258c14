// Words and numbers as the board prints them.

const MISSING = '–';
const FIGURE_SPACE = '\u2007'; // as wide as a digit, so that a growing number starts where it stood
const LANE_NAMES = { pcd: 'PCD', ar: 'Baseline' };

const FLAGS = new Map(Object.entries({
  same: ['=', 'same'],
  differs: ['≠', 'differs'],
  omitted: ['∅', 'omitted'],
  invented: ['+', 'invented'],
  not_allowed: ['✕', 'not allowed'],
  duplicate: ['×2', 'duplicate'],
  writing: ['…', 'writing'],
  partial: ['…', 'partial'],
  open: ['?', 'no verdict yet'],
}));

const ENDINGS = new Map(Object.entries({
  assembled: 'done',
  closed: 'done',
  end_of_turn: 'ended its turn',
  limit: '⚠ token limit',
  stopped: 'stopped',
  lost: '⚠ broke off',
}));

const OUTCOMES = new Map(Object.entries({
  parsed: 'JSON parses',
  truncated: '⚠ JSON is cut off',
  not_parsable: '⚠ JSON does not parse',
}));

const MARKS = new Map(Object.entries({
  limit: '⚠ baseline hit its token limit',
  truncated: '⚠ its JSON is cut off',
  not_parsable: '⚠ its JSON does not parse',
  retried: '⚠ the server was away in between',
}));

const READINGS = new Map(Object.entries({
  'best-first': 'PCD reads until no other choice can win',
}));

const PHASES = new Map(Object.entries({
  plan: 'the schema compiled or found, the text tokenised',
  head: 'the pass over the instructions',
  'head + context': 'the pass over the whole prompt',
  context: 'the pass over the text, after the stored instructions',
  'context + tree': 'one pass over the text and every allowed choice',
  tree: 'the pass over every allowed choice',
  prior: 'the pass over a text without content',
  scoring: 'probabilities of the choices',
  assembly: 'the JSON, put together in code',
  prefill: 'the pass over the prompt',
  decode: 'the passes that write',
  mask: 'which tokens may come next, the grammar included',
  detokenise: 'tokens to text',
}));

const CACHES = new Map(Object.entries({
  hit: 'the stored prefix of the prompt was used',
  miss: 'no prefix was stored yet: the whole prompt is read',
  off: 'no stored prefix is used: the whole prompt is read',
  fallback: 'the stored prefix failed its check: the whole prompt is read',
}));

// Milliseconds under 10 s, seconds from there on; [number, unit].
function duration(ms) {
  return ms < 9999.95 ? [ms.toFixed(1), 'ms'] : [(ms / 1000).toFixed(2), 's'];
}

function percent(share) {
  if (share < 1 && share >= 0.9995) return '> 99.9 %';
  if (share > 0 && share < 0.0005) return '< 0.1 %';
  return `${(100 * share).toFixed(1)} %`;
}

function counted(count, one, several = `${one}s`) {
  return `${count.toLocaleString('en')} ${count === 1 ? one : several}`;
}

function factor(speedUp) {
  return `${speedUp.toFixed(speedUp < 10 ? 2 : 1)}×`;
}

// A value as JSON; integers past 2^53 arrive as BigInt.
function valueText(value) {
  return typeof value === 'bigint' ? String(value) : JSON.stringify(value);
}

// Beside a written value that is no JSON.
function readLeniently(value) {
  return ` ≈ ${value}, read leniently`;
}

// Reviver of JSON.parse that keeps every digit of an integer.
function exactIntegers(key, value, context) {
  const lossy = typeof value === 'number' && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source);
  return lossy ? BigInt(context.source) : value;
}

// Direction marks and control characters would be obeyed or vanish: they are shown as escapes.
const OBEYED = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

function literal(text) {
  return text.replace(OBEYED, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

// Text of a node, written only where it differs.
function setText(node, given) {
  const text = literal(given);
  if (node.textContent !== text) node.textContent = text;
}

function setTitle(node, given) {
  const text = literal(given);
  if (node.title !== text) node.title = text;
}

// Text that may be cut by an ellipsis: whole in the tooltip.
function setCut(node, text, title = text) {
  setText(node, text);
  setTitle(node, title);
}
