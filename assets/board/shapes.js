// The shapes of a trace's events, for a trace that comes from outside: whatever passes here can be
// folded and drawn. What it says may still be untrue.

const isText = (value) => typeof value === 'string';
const isBoolean = (value) => typeof value === 'boolean';
const isNumber = (value) => Number.isFinite(value);
const isAmount = (value) => Number.isFinite(value) && value >= 0;
const isShare = (value) => isAmount(value) && value < 1.001; // a sum of shares may miss 1 by a rounding
const isPlace = (value) => Number.isSafeInteger(value) && value >= -1;
const isScalar = (value) => value === null || isText(value) || isBoolean(value) || isNumber(value) || typeof value === 'bigint';
const isMapping = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);
const isLane = (value) => value === 'pcd' || value === 'ar';
const maybe = (isPart) => (value) => value === undefined || isPart(value);
const orNull = (isPart) => (value) => value === null || isPart(value);
const listOf = (isPart) => (value) => Array.isArray(value) && value.every(isPart);
const mappingOf = (isPart) => (value) => isMapping(value) && Object.values(value).every(isPart);
const pairOf = (isFirst, isSecond) => (value) => (
  Array.isArray(value) && value.length === 2 && isFirst(value[0]) && isSecond(value[1])
);

const FIELD_SHAPE = {
  type: isText, choices: maybe(listOf(isScalar)), description: maybe(isText),
  titles: maybe(listOf(isText)), depends_on: maybe(listOf(isText)),
};

const SHAPES = new Map(Object.entries({
  run: {
    date: (value) => isText(value) && !Number.isNaN(Date.parse(value)),
    model: isText, why: isText, backend: isText, device: isText, dtype: isText, mode: isText, cache: isText,
    context: isText, opening: isText, order: listOf(isLane), temperature: isNumber, versions: mappingOf(isText),
    schema: mappingOf((spec) => isMapping(spec) && fits(spec, FIELD_SHAPE)), names: listOf(isText),
    style: maybe(isText), strategy: maybe(isText), reading: maybe(isText), scoring: maybe(isText), prior: maybe(isText),
    machine: maybe(isText), clock: maybe(isText), source: maybe(isText), prompt_tokens: maybe(orNull(isAmount)),
    unsupported: maybe(listOf(mappingOf(isText))),
  },
  warmup: { took_ms: isAmount, when: isText },
  lane: { lane: isLane },
  pass: { lane: isLane, passes: isAmount, tokens: isAmount },
  phase: { lane: isLane, phase: isText, took_ms: isAmount },
  field: {
    lane: isLane, name: isText, value: isScalar, probability: isShare, candidate_mass: isShare, levels: isAmount,
    top: listOf(pairOf(isScalar, isShare)), cardinality: isAmount, unread: maybe(isAmount), unread_mass: maybe(isShare),
    unasked: maybe(isAmount), unasked_mass: maybe(isShare),
    start: maybe(isPlace), end: maybe(isPlace), path: maybe(listOf(pairOf(isText, orNull(isShare)))),
  },
  token: { lane: isLane, text: isText, tokens: isAmount, passes: isAmount, forced: maybe(isBoolean) },
  row: {
    lane: isLane, name: isText, text: isText, flags: listOf(isText), partial: isBoolean, invented: isBoolean,
    start: isPlace, end: isPlace, lenient: maybe(isText),
  },
  judged: { lane: isLane, outcome: isText, counts: mappingOf(isAmount) },
  lane_end: {
    lane: isLane, how: isText, passes: isAmount, tokens: isAmount, text: isText, cache: isText,
    forced: maybe(isAmount), first_token_ms: maybe(orNull(isAmount)), tokens_per_s: maybe(orNull(isAmount)),
    returned: maybe(isText), sent_tokens: maybe(orNull(isAmount)), server_queue_ms: maybe(orNull(isAmount)),
  },
  end: { state: isText, message: isText, speed_up: orNull(isAmount), marks: listOf(isText) },
}));

function fits(value, shape) {
  return Object.entries(shape).every(([key, isPart]) => isPart(Object.hasOwn(value, key) ? value[key] : undefined));
}

// The events of a log that tells one finished race of both lanes; undefined where it does not.
// Kinds that are not known here are passed over, as the fold does.
function traceOf(log) {
  const events = [];
  for (const line of log.split('\n').filter(Boolean)) {
    const event = parsedLine(line);
    if (!isMapping(event)) return undefined;
    if (!SHAPES.has(event.kind)) continue;
    if (!isAmount(event.ms) || !fits(event, SHAPES.get(event.kind))) return undefined;
    events.push(event);
  }
  return isRace(events) ? events : undefined;
}

function parsedLine(line) {
  try {
    return JSON.parse(line, exactIntegers);
  } catch {
    return undefined; // no JSON
  }
}

function isRace(events) {
  const of = (kind) => events.filter((event) => event.kind === kind);
  const [run, end] = [events[0], events.at(-1)];
  if (run?.kind !== 'run' || end.kind !== 'end' || end.state !== 'done') return false;
  if (of('run').length !== 1 || of('end').length !== 1) return false;
  if (of('lane_end').map(({ lane }) => lane).sort().join() !== 'ar,pcd') return false;
  return new Set(run.names).size === run.names.length && run.names.every((name) => Object.hasOwn(run.schema, name));
}
