// The history: the last finished live runs, kept in this browser. One can be put on the board again,
// two can be set side by side. Runs with a person's own text are kept when the person says so.

const OWN_TEXT = 'own text';
const BUSY = 'A run is going on: an earlier one can be opened when it is over.';

// `open` shows a log on the board, `back` what the page gave last; `isBusy` says whether a run is going on.
function createHistory(parts, { open, back, isBusy }) {
  const shelf = createShelf();
  const comparison = createComparison(parts);
  const ticked = new Set(); // ids
  let kept; // as read from the shelf, with the events of each run
  let listedKept; // the same, as it is listed
  let told; // the id of the run that was told of last, which is shown again after an earlier one
  let shown; // the id of the entry on the board
  let notice = '';

  function load() {
    const { keepsOwn, runs, lost } = shelf.read();
    const read = runs.map((run) => ({ ...run, events: traceOf(run.log) })).filter(({ events }) => events);
    return { keepsOwn, runs: read, lost: lost + runs.length - read.length };
  }

  function write(keepsOwn, runs) {
    const count = shelf.write(keepsOwn, runs.map(({ id, scenario, log }) => ({ id, scenario, log })));
    kept = undefined;
    if (count < runs.length) notice = count ? fullWords(count, runs.length) : UNSTORED;
  }

  // A live run that is over, its `run` event and its log.
  function keep(id, run, log) {
    if (id === told) return;
    told = id;
    const scenario = scenarioOf(run)?.title ?? '';
    const { keepsOwn, runs } = shelf.read();
    if (!(scenario || keepsOwn) || runs.some((run) => run.id === id)) return;
    notice = '';
    write(keepsOwn, [{ id, scenario, log: savedLines(log).join('') }, ...runs].slice(0, MOST_KEPT));
  }

  function setOwn(keepsOwn) {
    const { runs } = shelf.read();
    const staying = runs.filter(({ scenario }) => keepsOwn || scenario);
    notice = keepsOwn ? '' : `${counted(runs.length - staying.length, 'run')} with your own text deleted.`;
    write(keepsOwn, staying);
    draw();
  }

  function clear() {
    const { keepsOwn, runs } = shelf.read();
    write(keepsOwn, []);
    notice = `${counted(runs.length, 'run')} deleted.`;
    draw();
  }

  function show(run) {
    if (isBusy()) return;
    shown = run.id;
    open({ run: `earlier ${run.id}`, log: run.log });
  }

  // The panel, where it is open. The list is made anew only where other runs are kept.
  function draw() {
    if (parts.history.hidden) return;
    kept ??= load();
    const { keepsOwn, runs, lost } = kept;
    if (kept !== listedKept) list(runs);
    parts['history.own'].checked = keepsOwn;
    const words = [
      isBusy() ? BUSY : '', notice, lost ? `⚠ ${counted(lost, 'kept run')} could not be read and left out.` : '',
      runs.length ? '' : 'No run is kept yet.',
    ];
    setText(parts['history.notice'], words.filter(Boolean).join(' '));
    runs.forEach((run, i) => drawEntry(parts['history.list'].children[i], run));
    drawPair();
  }

  function list(runs) {
    listedKept = kept;
    const ids = new Set(runs.map(({ id }) => id));
    for (const id of ticked) if (!ids.has(id)) ticked.delete(id);
    parts['history.list'].replaceChildren(...runs.map((run) => entryOf(run, {
      tick: (isTicked) => {
        ticked[isTicked ? 'add' : 'delete'](run.id);
        drawPair();
      },
      show: () => show(run),
    })));
  }

  function drawEntry(item, { id }) {
    const [tick, button] = [item.querySelector('input'), item.querySelector('button')];
    tick.checked = ticked.has(id);
    button.disabled = isBusy();
    item.ariaCurrent = String(shown === id);
    setText(button, shown === id ? 'On the board' : 'Open');
  }

  function drawPair() {
    const pair = kept.runs.filter(({ id }) => ticked.has(id)).reverse(); // the older one first
    setText(parts['history.pair'], kept.runs.length > 1 ? pairWords(pair.length) : '');
    comparison.show(pair.length === 2 ? pair.map((run) => ({ id: run.id, title: titleOf(run), events: run.events })) : undefined);
  }

  parts['history.own'].addEventListener('change', ({ target }) => setOwn(target.checked));
  parts['history.clear'].addEventListener('click', clear);
  parts['history.back'].addEventListener('click', back);
  addEventListener('storage', ({ key }) => { // another tab has written
    if (key !== SHELF && key !== null) return;
    kept = undefined;
    draw();
  });

  return {
    draw,
    keep,
    // Whether the run on the board is an entry, or what the page gave.
    mark(isEarlier) {
      if (!isEarlier) shown = undefined;
      parts['history.back'].hidden = !isEarlier;
    },
  };
}

const UNSTORED = 'This browser stores nothing more for this page: these runs are kept until the page is closed.';

function fullWords(count, before) {
  return `The browser's storage for this page is full: the newest ${counted(count, 'run')} of ${before} kept.`;
}

function pairWords(count) {
  if (count === 2) return 'Two runs are compared below.';
  return count < 2 ? `Tick two runs to compare them: ${count} of 2.` : `${count} runs are ticked: untick ${count - 2}.`;
}

function titleOf({ scenario, events: [{ date }] }) {
  return `${scenario || OWN_TEXT}, ${date.slice(0, 19).replace('T', ' ')} UTC`;
}

function entryOf(run, { tick, show }) {
  const { model, dtype, mode, context } = run.events[0];
  const end = run.events.at(-1);
  const item = document.createElement('li');
  const label = item.appendChild(document.createElement('label'));
  const box = label.appendChild(document.createElement('input'));
  box.type = 'checkbox';
  box.addEventListener('change', () => tick(box.checked));
  setCut(label.appendChild(document.createElement('span')), titleOf(run), run.scenario ? titleOf(run) : `${titleOf(run)}\n${context.slice(0, MOST_QUOTED)}`);
  const figures = [model, dtype, `baseline mode ${mode}`, ...clockWords(run.events), ...marksOf(end)].join(' · ');
  setCut(item.appendChild(document.createElement('p')), figures);
  const button = item.appendChild(document.createElement('button'));
  button.type = 'button';
  button.setAttribute('aria-label', literal(`Open ${titleOf(run)}`));
  button.addEventListener('click', show);
  return item;
}

const MOST_QUOTED = 200; // characters of an own text in a tooltip

function clockWords(events) {
  const ends = events.filter(({ kind }) => kind === 'lane_end');
  const times = Object.keys(LANE_NAMES).map((name) => {
    const { ms } = ends.find(({ lane }) => lane === name);
    return `${LANE_NAMES[name]} ${duration(ms).join(' ')}`;
  });
  const { speed_up: speedUp } = events.at(-1);
  return [...times, speedUp === null ? '' : `${factor(speedUp)} in this run`].filter(Boolean);
}
