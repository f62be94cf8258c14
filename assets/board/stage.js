// How far a run has come, and what of its log is for good.

// Of the page that waits for a run only; no saved trace has them.
const LIVE = new Set(['prepared', 'loading', 'waiting', 'stopping', 'tick', 'alive']);

// none, going, lost, done, stopped or failed. `lost`: why nothing more comes, in words.
function stageOf({ log, lost = '' }) {
  const end = log.lastIndexOf('\n');
  const { kind, state } = end > 0 ? JSON.parse(log.slice(log.lastIndexOf('\n', end - 1) + 1, end)) : {};
  if (!kind || kind === 'prepared') return 'none';
  if (kind === 'end') return state;
  return lost ? 'lost' : 'going';
}

// The lines of a log that a saved trace has, digit by digit as they came.
function savedLines(log) {
  return log.split('\n').filter((line) => line && !LIVE.has(JSON.parse(line).kind)).map((line) => `${line}\n`);
}

// All events of a log's lines, those of the waiting page among them.
function eventsOf(lines) {
  return lines.split('\n').filter(Boolean).map((line) => JSON.parse(line, exactIntegers));
}
