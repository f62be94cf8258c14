// What a run's times and counts are, in words: of an engine beside its device, or of a client around the wire to
// a server, where a pass is a request.

const CLOCKS = new Map(Object.entries({
  engine: 'engine time',
  client: 'client time around the wire',
}));

// Whose the times of a run are; older traces do not say it, and had the engine's.
function clockOf(run) {
  const clock = run?.clock ?? 'engine';
  return CLOCKS.get(clock) ?? `${clock} time`;
}

function isServed(run) {
  return run?.clock === 'client';
}

function callsOf(run, passes) {
  return isServed(run) ? counted(passes, 'request') : counted(passes, 'pass', 'passes');
}

// What a lane has asked of the model, and what a server was sent for it.
function countsOf(run, { passes, sent }) {
  return [callsOf(run, passes), sent === null ? '' : `${counted(sent, 'token')} sent`].filter(Boolean).join(', ');
}

// The part of the lanes' times in which they stood in the server's queue, as far as it says so.
function queueOf(lanes) {
  return Object.entries(LANE_NAMES).filter(([name]) => lanes[name].queue !== null)
    .map(([name, label]) => `${label} ${duration(lanes[name].queue).join(' ')}`).join(', ');
}

function phaseWords(run, name) {
  return (isServed(run) && SERVED_PHASES.get(name)) || PHASES.get(name);
}

// A fork is read by a prompt of its own, which ends where the fork is.
const SERVED_PHASES = new Map(Object.entries({
  head: 'the request that has the server read the instructions',
  'head + context': 'the request that has the server read the whole prompt',
  context: 'the request that has the server read the text, after the instructions',
  'context + tree': 'requests with the text, and a prompt for each fork that is read',
  tree: 'requests with a prompt for each fork that is read',
  prior: 'requests on a text without content',
  prefill: 'the request, until the first token comes',
  decode: 'the stream of tokens',
  mask: 'which tokens may come next',
}));

const STRATEGIES = new Map(Object.entries({
  tree: 'all branches in one tree',
  rows: 'a row per branch',
  prompts: 'a prompt for each fork that is read, sent to a server',
}));
