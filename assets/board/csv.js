// A result as CSV (RFC 4180): a row per field and per invented key, the conditions and the method beside each,
// so that a row that is copied elsewhere still says what it depends on.

function csvOf(events, recorded) {
  const state = finalOf(events);
  const beside = conditionColumns(state, events, recorded);
  const header = ['field', 'PCD value', 'share', 'candidate mass', 'mass not asked for', 'margin', 'baseline value', 'flags'];
  const rows = [...state.rows.values(), ...state.invented.values()].map((row) => [...fieldColumns(row), ...beside.map(([, value]) => value)]);
  return [[...header, ...beside.map(([name]) => name)], ...rows]
    .map((cells) => `${cells.map(cell).join()}\r\n`)
    .join('');
}

function fieldColumns({ name, decided, text, flags }) {
  const margin = decided?.top.length > 1 ? marginOf(decided.top) : '';
  return [
    name,
    decided ? valueText(decided.value) : '',
    decided?.probability ?? '',
    decided?.candidate_mass ?? '',
    decided ? decided.unasked_mass ?? 0 : '',
    margin,
    text,
    flags.map((flag) => (FLAGS.get(flag) ?? ['', flag])[1]).join(', '),
  ];
}

// Values as JSON, so that true and "true" stay two; times in milliseconds of the clock that is named.
function conditionColumns({ run, lanes, end }, events, recorded) {
  return [
    ...['model', 'backend', 'device', 'machine', 'dtype'].map((name) => [name, run[name] ?? '']),
    ['baseline mode', run.mode],
    ['JSON style', run.style],
    ['prefix cache', run.cache],
    ['clock', clockOf(run)],
    ['PCD ms', lanes.pcd.ms ?? ''],
    ['baseline ms', lanes.ar.ms ?? ''],
    ['baseline / PCD', end?.speed_up ?? ''],
    ...(isServed(run) ? servedColumns(lanes) : []),
    ['marks', (end?.marks ?? []).join(', ')],
    ['n', 1],
    ['date', run.date],
    ['source', recorded ? 'recorded' : 'live'],
    ...methodOf(events, recorded).map(({ title, lines }) => [`method: ${title}`, lines.join('\n')]),
  ];
}

function servedColumns(lanes) {
  const columns = (lane, label) => [
    [`${label} requests`, lane.passes], [`${label} tokens sent`, lane.sent ?? ''], [`${label} server queue ms`, lane.queue ?? ''],
  ];
  return [...columns(lanes.pcd, 'PCD'), ...columns(lanes.ar, 'baseline')];
}

function cell(value) {
  const text = inert(literal(String(value)));
  return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

// A spreadsheet would run what starts like a formula, also in full width. Plain numbers do nothing.
const FORMULA = /^\s*[=+\-@\t＝＋－＠]/;
const NUMBER = /^-?\d+(\.\d+)?(e[+-]?\d+)?$/;

function inert(text) {
  return FORMULA.test(text) && !NUMBER.test(text) ? `'${text}` : text;
}
