// The tape: a finished run's events on one time axis, on which both lanes start at zero.
// They ran one after the other; the axis lays them side by side.

function createTape(events) {
  const length = Math.max(0, ...events.filter(({ kind }) => kind === 'lane_end').map(({ ms }) => ms));
  const timed = events
    .map((event) => ({ event, at: timeOf(event, length) }))
    .sort((one, other) => one.at - other.at); // stable: events of one moment keep their order
  const moments = [...new Set(timed.filter(({ event }) => STEPS.has(event.kind)).map(({ at }) => at)), length];
  const intervals = Object.fromEntries(Object.keys(LANE_NAMES).map((lane) => [lane, intervalsOf(events, lane)]));
  let [state, folded, position] = [blankState(), 0, 0];

  return {
    run: events.find(({ kind }) => kind === 'run'),
    length,
    intervals,
    forks: events.reduce((sum, { kind, levels }) => sum + (kind === 'field' ? levels : 0), 0), // of what was chosen

    // The state at a moment: what the events up to it say, and clocks that have come as far.
    at(ms) {
      if (ms < position || folded === 0) [state, folded] = [blankState(), 0];
      position = ms;
      while (folded < timed.length && timed[folded].at <= ms) fold(state, timed[folded++].event);
      for (const lane of Object.values(state.lanes)) if (lane.running) lane.ms = ms;
      return state;
    },

    // What a lane does at a moment: { name, from, to, tokens }, undefined when it is over.
    doing: (lane, ms) => intervals[lane].find(({ from, to }) => from <= ms && ms < to),

    after: (ms) => moments.find((moment) => moment > ms) ?? length,
    before: (ms) => moments.findLast((moment) => moment < ms) ?? 0,
  };
}

// Where a step stops.
const STEPS = new Set(['pass', 'phase', 'token', 'field', 'lane_end']);

function timeOf(event, length) {
  if (event.kind === 'end') return length;
  return event.lane ? Math.min(event.ms, length) : 0;
}

// A lane's phases one after the other. Those of the baseline after its prompt alternate from token to token
// and are told as sums: writing is one interval.
function intervalsOf(events, lane) {
  const own = events.filter((event) => event.lane === lane);
  const end = own.find(({ kind }) => kind === 'lane_end')?.ms ?? 0;
  const tokens = new Map(own.filter(({ kind }) => kind === 'pass').map((event) => [event.ms, event.tokens]));
  const told = own.filter(({ kind, phase }) => kind === 'phase' && (lane === 'pcd' || phase === 'prefill'));
  const intervals = told.map(({ ms, phase, took_ms: took }) => (
    { name: phase, from: Math.max(0, ms - took), to: ms, tokens: tokens.get(ms) }
  ));
  const last = intervals.at(-1)?.to ?? 0;
  if (lane === 'ar' && end > last) intervals.push({ name: 'writing', from: last, to: end });
  return intervals;
}
