// Under which conditions a run was made, and in which of them two runs differ.

const WORDING = 'wording of the schema'; // descriptions and titles, too

// A label, and what the `run` event says under it; `long` values are too long for a sentence.
const CONDITIONS = [
  ['machine', ({ machine }) => machine ?? ''],
  ['device', ({ device }) => device],
  ['backend', ({ backend }) => backend],
  ['clock', clockOf],
  ['model', ({ model }) => model],
  ['dtype', ({ dtype }) => dtype],
  ['baseline mode', ({ mode }) => mode],
  ['JSON style', ({ style }) => style ?? 'pretty'],
  ['prefix cache', ({ cache }) => cache],
  ['temperature', ({ temperature }) => String(temperature)],
  ['order', ({ order }) => order.map((lane) => LANE_NAMES[lane]).join(' then ')],
  ['reading', ({ reading }) => reading ?? 'complete'],
  ['scoring', ({ scoring }) => scoring ?? 'identify'],
  ['prior', ({ prior }) => prior ?? 'none'],
  ['strategy', ({ strategy }) => strategy ?? 'tree'],
  ['versions', ({ versions }) => Object.entries(versions ?? {}).map((pair) => pair.join(' ')).join(', '), 'long'],
  [WORDING, ({ schema }) => jsonOf(schema), 'long'],
];

// [label, one's value, the other's, whether these are long], where they are not the same.
function differing(one, other) {
  return CONDITIONS.map(([label, of, length]) => [label, of(one), of(other), length === 'long'])
    .filter(([, was, now]) => was !== now);
}

// Names, types and choices of all fields as one text: equal for runs that can be compared field by field.
function fieldsOf({ names, schema }) {
  return jsonOf(names.map((name) => [name, schema[name].type, schema[name].choices ?? null]));
}

// JSON has no integers past 2^53 in JavaScript, choices have.
function jsonOf(value) {
  return JSON.stringify(value, (key, part) => (typeof part === 'bigint' ? `${part}n` : part));
}

// The state in which a run's events end.
function finalOf(events) {
  const state = blankState();
  for (const event of events) fold(state, event);
  return state;
}
