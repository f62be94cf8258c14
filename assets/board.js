// The board: reads the log's new lines, folds them, and draws the state.
// Text from outside reaches the page through textContent, title and dataset only.

// `page`: what only the page that the board stands in can do.
function createBoard(element, page = {}) {
  const template = element.innerHTML;
  const board = element.querySelector('.board');
  const parts = Object.fromEntries([...board.querySelectorAll('[data-part]')].map((node) => [node.dataset.part, node]));
  const screen = createScreen(board, parts);
  const reading = createReading();
  const player = createPlayer(parts, (tape, ms) => {
    const then = tape.at(ms);
    screen.draw(then, { caption: captionOf(tape, then, ms), length: tape.length, doing: deedOf(tape, ms) });
    tour.moved();
  });
  const visit = createVisit(board, put);
  const history = createHistory(parts, {
    open: (log) => visit.go({ ...log, source: 'earlier' }),
    back: visit.back,
    isBusy: () => visit.isBusy,
  });
  const panels = createPanels(board, parts, drawerOf(board, parts, { reading, history, page: { ...page, template } }));
  const tour = createTour(board, parts, { player, visit, show: put, load: page.loadTour });
  listenForTools(board, tour, toolsOf(board, parts, { tour, visit, player }));
  const own = createOwn(parts, { reading, history, visit, put, draw, changes: screen.changes });

  // What goes on now; a replay is drawn by the player.
  function draw() {
    const why = reading.lost || own.lost;
    screen.draw(why ? asLost(reading.state, why) : reading.state);
  }

  // A log: its run's id, its lines, and where it comes from.
  function put(entry) {
    const { source = entry.recorded ? 'recorded' : 'live' } = entry;
    if (reading.isOther(entry)) {
      screen.changes.begin(entry.run, whenceOf(board, entry));
      history.mark(source === 'earlier');
      reading.begin(entry.run);
      player.eject();
      screen.clear();
    }
    const news = reading.take({ ...entry, recorded: source !== 'live' });
    drawBadge(parts, source, reading.events);
    const tape = news.length ? reading.tape() : undefined;
    if (tape) {
      if (source === 'live') history.keep(entry.run, runIn(reading.events), entry.log);
      screen.changes.end(reading.events);
      player.load(tape);
    } else if (news.length || !reading.events.length) {
      for (const event of news) fold(reading.state, event);
      draw();
    }
    if (!news.length) return;
    if (entry.lost) setText(parts.live, entry.lost);
    panels.draw();
  }

  return {
    show(log) {
      own.take(log);
      tour.drawOpener();
    },
  };
}

// The page's own run, shown or not: what the page gave last, and whether its messages arrive.
function createOwn(parts, { reading, history, visit, put, draw, changes }) {
  let given = { log: '' };
  const own = {
    lost: '', // in words, while they do not

    take(log) {
      if (own.lost && log.log !== given.log) { // they arrive again
        own.lost = '';
        changeAll(reading.state);
      }
      given = log;
      dispatchEvent(new CustomEvent('board:news'));
      if (!visit.keeps(log)) put(log);
      else if (!log.recorded && stageOf(log) === 'done') finish(log);
    },
  };

  // It came to its end behind another one.
  function finish({ run, log }) {
    const events = eventsOf(log);
    history.keep(run, runIn(events), log);
    changes.note(events);
  }

  listenForConnection(({ state, words }) => {
    if (state === 'lost' || state === 'silent') own.lost = words;
    if (own.lost && stageOf(reading) !== 'done') draw();
    if (words) setText(parts.live, words); // after what the run says
  }, () => given);
  return own;
}

function runIn(events) {
  return events.find(({ kind }) => kind === 'run');
}

// What a run is to be compared with depends on where it is from.
function whenceOf(board, { source, isBeside }) {
  if (!board.dataset.away) return 'own';
  return source === 'earlier' ? 'earlier' : isBeside ? 'beside' : 'visit';
}

// What a panel shows is made when it is opened, and again when another run is shown.
function drawerOf(board, parts, { reading, history, page }) {
  const drawMethod = createMethod(parts);
  const drawers = new Map(Object.entries({
    method: () => drawMethod(reading.events, reading.recorded, stageOf(reading) === 'lost'),
    take: createTake(board, parts, { ...page, shown: () => reading }),
    code: createCode(parts, () => reading),
    history: history.draw,
  }));
  return (name) => drawers.get(name)?.();
}

// By their keys.
function toolsOf(board, parts, { tour, visit, player }) {
  const presenter = createPresenter(board, parts.present);
  const toggleKeys = () => board.querySelector('[data-panel="keys"]').click();
  return {
    t: tour.toggle,
    p: presenter.toggle,
    l: () => !tour.isOpen && visit.swap(),
    '?': toggleKeys,
    ' ': () => player.press('play'),
    r: () => player.press('restart'),
    ArrowLeft: () => player.press('back'),
    ArrowRight: () => player.press('forward'),
    get Escape() {
      if (!parts.keys.hidden) return toggleKeys;
      return presenter.isOn && !visit.isBusy ? presenter.leave : undefined;
    },
  };
}
