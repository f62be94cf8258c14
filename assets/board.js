// The board: reads the log's new lines, folds them, and draws the state.
// Text from outside reaches the page through textContent, title and dataset only.

// `page`: what only the page that the board stands in can do.
function createBoard(element, page = {}) {
  const template = element.innerHTML;
  const board = element.querySelector('.board');
  const parts = Object.fromEntries([...board.querySelectorAll('[data-part]')].map((node) => [node.dataset.part, node]));
  const panes = { pcd: parts['pcd.raw'], ar: parts['ar.raw'] };
  const showClocks = createClocks({ pcd: face(parts, 'pcd'), ar: face(parts, 'ar') });
  const showPhases = Object.fromEntries(
    ['pcd', 'ar'].map((name) => [name, createPhases(parts[`${name}.phases`], parts[`${name}.legend`])]),
  );
  const threshold = createThreshold(parts);
  const changes = createChanges(parts);
  const showRows = createRows(parts.row, parts.rows, parts.invented, (node, row, state) => {
    threshold.mark(node, row);
    changes.mark(node, row, state);
  });
  const drawStrip = createStrip(parts);
  const showRaw = { pcd: createRaw(panes.pcd, false), ar: createRaw(panes.ar, true) };
  const inspector = createInspector(parts);
  let drawn = blankState();
  const highlight = createHighlight(board, [parts.rows, parts.invented, panes.pcd, panes.ar], (field) => {
    inspector.draw(drawn, field);
  });
  const player = createPlayer(parts, (tape, ms) => {
    const then = tape.at(ms);
    draw(then, { caption: captionOf(tape, then, ms), length: tape.length, doing: deedOf(tape, ms) });
    tour.moved();
  });
  const history = createHistory(parts, {
    open: (log) => visit.go({ ...log, source: 'earlier' }),
    back: () => visit.back(),
    isBusy: () => visit.isBusy,
  });
  const panels = createPanels(board, parts, (name) => drawPanel(name));
  let state = blankState();
  let events = []; // of the run that is shown
  let shown = { log: '' }; // its log as it came
  const drawMethodPanel = createMethod(parts);
  const drawTake = createTake(board, parts, { ...page, template, shown: () => ({ ...shown, events }) });
  let run;
  let read = 0; // of the log, up to the last whole line
  const visit = createVisit(board, put);
  const tour = createTour(board, parts, { player, visit, show: put, load: page.loadTour });
  const presenter = createPresenter(board, parts.present);
  const toggleKeys = () => board.querySelector('[data-panel="keys"]').click();
  listenForTools(board, tour, {
    t: tour.toggle,
    p: presenter.toggle,
    l: () => !tour.isOpen && visit.swap(),
    '?': toggleKeys,
    get Escape() {
      if (!parts.keys.hidden) return toggleKeys;
      return presenter.isOn && !visit.isBusy ? presenter.leave : undefined;
    },
  });
  let given; // what the page gave last, also while another run is shown
  let lost = ''; // in words, while the messages of the page's own run no longer arrive
  let milestone; // of the run that is shown, as it was told last
  listenForKeys(board, player);
  listenForConnection(({ state: connection, words }) => {
    if (connection === 'lost' || connection === 'silent') lost = words;
    if (lost && !tapeOf()) draw(state);
    if (words) setText(parts.live, words); // after what the run says
  }, () => given);

  // What a panel shows is made when it is opened, and again when another run is shown.
  function drawPanel(name) {
    if (name === 'method') drawMethodPanel(events, shown.recorded, stageOf(shown) === 'lost');
    if (name === 'take') drawTake();
    if (name === 'history') history.draw();
  }

  function draw(told, { caption = '', length, doing = '' } = {}) {
    const why = shown.lost || lost;
    const state = why && length === undefined ? asLost(told, why) : told; // a replay asks no server
    board.dataset.phase = state.phase;
    board.dataset.doing = doing;
    showClocks(state.lanes, length);
    for (const name of ['pcd', 'ar']) {
      drawLane(parts, name, state.lanes[name]);
      showPhases[name](state.lanes[name]);
      showRaw[name](state.lanes[name]);
    }
    drawSummary(parts, state);
    if (state.milestone !== milestone) setText(parts.live, milestone = state.milestone);
    drawStrip();
    setCut(parts['replay.caption'], caption || 'A finished run can be played again, as fast or as slowly as you like.');
    showRows(state);
    threshold.draw(state);
    changes.draw(state);
    drawn = state;
    highlight.paint();
    inspector.draw(state, highlight.selected);
  }

  // What a finished run has told can be played again; one that was stopped or failed has told no whole.
  function tapeOf() {
    return stageOf(shown) === 'done' ? createTape(events) : undefined;
  }

  // A run of the page's own that came to its end behind another one.
  function finish({ run: id, log }) {
    const all = eventsOf(log);
    history.keep(id, all.find(({ kind }) => kind === 'run'), log);
    changes.note(all);
  }

  // A log: its run's id, its lines, and where it comes from.
  function put(entry) {
    const { run: id, log, source = entry.recorded ? 'recorded' : 'live', lost: why = '' } = entry;
    const whence = !board.dataset.away ? 'own' : source === 'earlier' ? 'earlier' : entry.isBeside ? 'beside' : 'visit';
    if (id !== run || log.length < read) {
      changes.begin(id, whence);
      history.mark(source === 'earlier');
      [run, read, state, events] = [id, 0, blankState(), []];
      player.eject();
      highlight.clear();
    }
    const end = log.lastIndexOf('\n') + 1;
    const news = eventsOf(log.slice(read, end));
    read = end;
    shown = { log: log.slice(0, end), recorded: source !== 'live', lost: why };
    events.push(...news.filter(({ kind }) => !LIVE.has(kind)));
    drawBadge(parts, source, events);
    const tape = news.length ? tapeOf() : undefined;
    if (tape) {
      if (source === 'live') history.keep(id, events.find(({ kind }) => kind === 'run'), log);
      changes.end(events);
      player.load(tape);
    } else if (news.length || !events.length) {
      for (const event of news) fold(state, event);
      draw(state);
    }
    if (why && news.length) setText(parts.live, why);
    if (news.length) panels.draw();
  }

  return {
    show(log) {
      if (lost && log.log !== given?.log) { // it arrives again
        lost = '';
        changeAll(state);
      }
      given = log;
      dispatchEvent(new CustomEvent('board:news'));
      if (!visit.keeps(log)) put(log);
      else if (!log.recorded && stageOf(log) === 'done') finish(log);
      tour.drawOpener();
    },
  };
}

// Where what is shown comes from, in the words of the run itself.
function drawBadge(parts, from, events) {
  const run = events.find(({ kind }) => kind === 'run');
  const source = run ? from : 'none';
  parts.badge.dataset.source = source;
  setText(parts.badge.children[0], SOURCES[source]);
  setCut(parts.badge.children[1], run ? conditionsOf(run) : '');
}

const SOURCES = { none: 'NOT RUN YET', recorded: '● RECORDED', live: '◉ LIVE', earlier: '◷ EARLIER RUN' };

function conditionsOf({ machine, device, model, dtype, mode, date, versions }) {
  const made = Object.entries(versions ?? {}).map((pair) => pair.join(' '));
  return [machine, device, model, dtype, `baseline mode ${mode}`, date.slice(0, 10), ...made].filter(Boolean).join(', ');
}

function face(parts, lane) {
  const [number, unit] = parts[`${lane}.clock`].children;
  return { number, unit, span: parts[`${lane}.span`] };
}

function drawLane(parts, name, lane) {
  const part = (key) => parts[`${name}.${key}`];
  setText(part('how'), lane.running ? 'running' : ENDINGS.get(lane.how) ?? lane.how);
  part('how').dataset.how = lane.running ? 'running' : lane.how;
  setText(part('passes'), String(lane.passes ?? MISSING));
  setText(part('tokens'), String(lane.tokens ?? MISSING));
  setCut(part('cache'), lane.cache ?? MISSING, CACHES.get(lane.cache) ?? '');
  if (name === 'ar') drawWriting(part, lane);
}

// What only a lane that writes has.
function drawWriting(part, { forced, firstTokenMs, rate }) {
  setText(part('forced'), String(forced ?? MISSING));
  setText(part('first-token'), firstTokenMs === null ? MISSING : duration(firstTokenMs).join(' '));
  setText(part('rate'), rate?.toFixed(1) ?? MISSING);
}

function drawSummary(parts, state) {
  setText(parts['ar.mode'], state.run ? (MODES.get(state.run.mode) ?? state.run.mode) : 'streamed JSON');
  setCut(parts['run-line'], runLine(state));
  setCut(parts.status, state.message);
  setCut(parts.untimed, untimed(state));
  setCut(parts.verdict, state.judged ? verdict(state.judged) : '');
  setText(parts['invented-count'], String(state.invented.size || 'none'));
  parts.returned.closest('.returned').hidden = !state.returned;
  setText(parts.returned, state.returned);
  parts.progress.hidden = state.phase !== 'loading';
  if (state.fraction === null) parts.progress.removeAttribute('value');
  else parts.progress.value = state.fraction;
  drawSpeedUp(parts, state);
}

function drawSpeedUp(parts, { end, run }) {
  const speedUp = end?.speed_up ?? null;
  setText(parts.factor, speedUp === null ? MISSING : factor(speedUp));
  setCut(parts.conditions, speedUp === null ? 'baseline ÷ PCD, engine time' : conditions(run));
  const marks = marksOf(end);
  if (speedUp !== null && speedUp < 1) marks.unshift('⚠ PCD is the slower one');
  setCut(parts.marks, marks.join(' · '));
}

function conditions({ model, device, dtype, mode, style }) {
  return `baseline mode ${mode}, ${jsonStyle(style)} ÷ PCD, engine time, n = 1: ${model}, ${device}, ${dtype}`;
}

function jsonStyle(style) {
  return STYLES.get(style) ?? `JSON style ${style}`;
}

function runLine({ run }) {
  if (!run) return 'Both lanes: same weights, same prompt, same state of the cache, one after the other, alone on the device.';
  const order = run.order.map((lane) => LANE_NAMES[lane]).join(' then ');
  return [
    `${run.model} (${run.why})`,
    `${run.backend} on ${run.device}`,
    run.dtype,
    `baseline mode ${run.mode}`,
    jsonStyle(run.style),
    `prefix cache ${run.cache}`,
    `order ${order}`,
    `T\u00a0=\u00a0${run.temperature}`,
    READINGS.get(run.reading) ?? '',
    run.strategy === 'rows' ? 'PCD reads a row per branch' : '',
    run.unsupported?.length ? `⚠ ${run.unsupported.length} of the schema's parts left out` : '',
  ].filter(Boolean).join(' · ');
}

function untimed({ run, warmUp }) {
  if (!run) return '';
  const times = [`${duration(run.ms).join(' ')} waiting`];
  if (warmUp) times.push(`${duration(warmUp.took_ms).join(' ')} warm-up${warmUp.when === 'load' ? ' at load' : ''}`);
  return `Not in the clocks: ${times.join(', ')}`;
}

function verdict({ outcome, counts }) {
  const words = [...FLAGS].filter(([flag]) => counts[flag]).map(([flag, [, word]]) => `${counts[flag]} ${word}`);
  return [OUTCOMES.get(outcome) ?? outcome, ...words].join(' · ');
}
