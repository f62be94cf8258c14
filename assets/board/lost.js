// A run whose messages no longer arrive: what has come stays, and nothing is told as going on.

const UNFINISHED = new Set(['loading', 'waiting', 'running']);

// The state as it is shown while the connection is lost; the state itself waits for what may still come.
function asLost(state, message) {
  if (!UNFINISHED.has(state.phase)) return state;
  const lanes = Object.entries(state.lanes).map(([name, lane]) => (
    [name, lane.running ? { ...lane, running: false, ended: true, how: 'lost' } : lane]
  ));
  changeAll(state);
  return { ...state, phase: 'lost', message, fraction: null, lanes: Object.fromEntries(lanes) };
}

// The page says when the connection is lost, in words, and when it is back; before it is loaded anew it asks for the log.
function listenForConnection(show, log) {
  addEventListener('connection', ({ detail }) => show(detail));
  addEventListener('board:keep', ({ detail }) => Object.assign(detail, log(), { stage: stageOf(log()) }));
}
