// The fold: event -> state. Depends on nothing but the events, so that a saved trace
// ends on the screen that the live run ended on.

function blankState() {
  return {
    phase: 'idle', // idle, loading, waiting, running, then the run's own end: done, stopped, failed
    message: 'Choose a scenario and press Run.',
    fraction: null, // of loading the model
    held: null, // the message that a wait in the middle of the run has covered
    isStopping: false,
    milestone: '', // for screen readers
    returned: '', // the values as JSON, where their shape is another than that of the assembled text
    run: null, // the `run` event
    warmUp: null, // the `warmup` event of the load
    headsMs: [], // sent to a server before a lane's clock started
    lanes: { pcd: blankLane(), ar: blankLane() },
    rows: new Map(), // by field name, in schema order
    invented: new Map(), // by key, in order of appearance
    judged: null, // the `judged` event
    end: null, // the `end` event
    changed: new Set(), // rows to draw again
    isNew: true, // nothing of it was drawn yet
  };
}

function blankLane() {
  return {
    running: false,
    ended: false,
    ms: null, // the last time of the lane's clock that was received
    passes: null, // or requests to a server
    sent: null, // tokens, of all prompts that a server was sent
    queue: null, // milliseconds in the server's queue
    tokens: null,
    forced: null, // of the tokens: the grammar left no other
    firstToken: null, // the first `token` event
    firstTokenMs: null,
    rate: null, // tokens a second, from the first to the last
    phases: new Map(), // milliseconds by phase, in order of appearance
    cache: null,
    how: '', // how it ended
    characters: [], // of its JSON
    written: [], // its tokens: { text, from, to, forced, ms }, `from` and `to` in characters
    members: new Map(), // by their start in the JSON: { name, start, end }
  };
}

function blankRow(name, description) {
  return { name, description, decided: null, text: '', flags: [], partial: false, lenient: '' };
}

function fold(state, event) {
  const lane = Object.hasOwn(state.lanes, event.lane ?? '') ? state.lanes[event.lane] : undefined;
  if (lane && !lane.ended) lane.ms = Math.max(lane.ms ?? 0, event.ms);
  if (state.held !== null && !LIVE.has(event.kind)) goOn(state); // a clock ticks during a wait, too
  if (Object.hasOwn(FOLD, event.kind)) FOLD[event.kind](state, event, lane); // kinds of a newer trace are passed over
}

const FOLD = {
  // Of the page only: the rows, before there is a run.
  prepared(state, event) {
    setRows(state, event.names, event.schema);
  },

  loading(state, event) {
    if (state.run) {
      holdUp(state, event.stage);
      return;
    }
    setPhase(state, 'loading', `Waiting for the model: ${event.stage}`);
    state.fraction = event.fraction;
  },

  stopping(state) {
    state.isStopping = true;
    state.message = `Stopping, after the ${isServed(state.run) ? 'request' : 'pass'} or the token that runs.`;
  },

  waiting(state, event) {
    const runs = event.ahead === 1 ? '1 run is' : `${event.ahead} runs are`;
    setPhase(state, 'waiting', `Waiting: ${runs} ahead of yours. The clocks do not count this.`);
  },

  run(state, event) {
    setPhase(state, 'running', 'Started.');
    state.run = event;
    state.milestone = 'Run started.';
    const { names } = event;
    const isDrawn = names.length === state.rows.size && names.every((name) => state.rows.has(name));
    if (!isDrawn) setRows(state, names, event.schema);
    addText(state.lanes.ar, event.opening);
    for (const lane of Object.values(state.lanes)) lane.cache = event.cache;
  },

  warmup(state, event) {
    if (event.when === 'run') state.headsMs.push(event.took_ms);
    else state.warmUp = event;
  },

  lane(state, event, lane) {
    lane.running = true;
    state.message = event.lane === 'pcd' ? 'PCD scores all fields.' : 'The baseline reads the prompt.';
  },

  pass(state, event, lane) {
    lane.passes = event.passes;
  },

  phase(state, event, lane) {
    lane.phases.set(event.phase, (lane.phases.get(event.phase) ?? 0) + event.took_ms);
  },

  field(state, event) {
    const row = state.rows.get(event.name);
    if (row) change(state, row, { decided: event });
  },

  token(state, event, lane) {
    const from = lane.characters.length;
    addText(lane, event.text);
    lane.written.push({ text: event.text, from, to: lane.characters.length, forced: event.forced, ms: event.ms });
    if (!lane.firstToken) state.message = 'The baseline writes token by token.';
    lane.tokens = event.tokens;
    lane.passes = event.passes;
    lane.forced = (lane.forced ?? 0) + Number(event.forced);
    lane.firstToken ??= event;
    lane.firstTokenMs = lane.firstToken.ms;
    const seconds = (event.ms - lane.firstToken.ms) / 1000;
    if (seconds > 0) lane.rate = (event.tokens - lane.firstToken.tokens) / seconds;
  },

  row(state, event, lane) {
    const { name, text, flags, partial, lenient = '', start, end } = event;
    const rows = event.invented ? state.invented : state.rows;
    if (event.invented && !flags.length) { // of a draft that was withdrawn
      state.changed.delete(rows.get(name));
      rows.delete(name);
      return;
    }
    if (!rows.has(name)) rows.set(name, blankRow(name, 'not in the schema'));
    change(state, rows.get(name), { text, flags, partial, lenient });
    if (start >= 0) lane.members.set(start, { name, start, end });
  },

  judged(state, event) {
    state.judged = event;
  },

  lane_end(state, event, lane) {
    const { ms, how, passes, tokens, cache, forced, first_token_ms: firstTokenMs, tokens_per_s: rate } = event;
    const { sent_tokens: sent = null, server_queue_ms: queue = null } = event;
    Object.assign(lane, { running: false, ended: true, ms, how, passes, tokens, cache, forced, firstTokenMs, rate, sent, queue });
    if (event.lane === 'pcd') {
      setAssembled(state, lane, event.text);
      state.returned = event.returned ?? '';
    }
    changeAll(state);
    state.milestone = `${LANE_NAMES[event.lane]} finished: ${duration(ms).join(' ')}.`;
  },

  end(state, event) {
    const words = { done: 'Done.', stopped: 'Stopped.', failed: event.message };
    setPhase(state, event.state, words[event.state]);
    state.end = event;
    state.milestone = state.message;
    for (const lane of Object.values(state.lanes)) {
      if (lane.running) Object.assign(lane, { running: false, how: 'stopped' });
    }
    changeAll(state);
  },
};

function setPhase(state, phase, message) {
  Object.assign(state, { phase, message, fraction: null });
}

// In the middle of a run, until the next event that tells of work.
function holdUp(state, why) {
  if (state.isStopping) return;
  state.held ??= state.message;
  setPhase(state, 'loading', `Held up: ${why}`);
  state.milestone = state.message;
}

function goOn(state) {
  setPhase(state, 'running', state.isStopping ? state.message : state.held);
  Object.assign(state, { held: null, milestone: 'The run goes on.' });
}

function setRows(state, names, schema) {
  state.rows = new Map(names.map((name) => [name, blankRow(name, schema[name].description ?? '')]));
}

function change(state, row, values) {
  Object.assign(row, values);
  state.changed.add(row);
}

// What was being written is final now.
function changeAll(state) {
  for (const row of [...state.rows.values(), ...state.invented.values()]) state.changed.add(row);
}

// Offsets in events count characters, JavaScript's strings count UTF-16 units.
function addText(lane, text) {
  for (const character of text) lane.characters.push(character);
}

// The whole text at once; each field has said where its member stands.
function setAssembled(state, lane, text) {
  lane.characters = [...text];
  for (const { name, decided } of state.rows.values()) {
    if (decided?.start >= 0) lane.members.set(decided.start, { name, start: decided.start, end: decided.end });
  }
}
