// The tour: six steps on recorded runs, drawn on the board itself. It loads all that it needs when
// it opens, and asks for nothing more. Keys: → or PageDown on, ← or PageUp back, Space the step's own
// deed, digits to pick, Escape to leave.

// `show` puts a log on the board.
function createTour(board, parts, { player, visit, show, load }) {
  let data; // what all steps are told from, once it was loaded
  let steps = [];
  let at = -1; // the step that is open
  let before; // what had the focus, and the speed of the replay
  let isOpen = false;
  let opened = 0; // how often, so that an answer that comes late belongs to its own opening

  function drawOpener() {
    parts['tour.open'].hidden = !load;
    parts['tour.open'].disabled = visit.isBusy;
    parts['tour.open'].title = visit.isBusy ? 'The tour waits until the run is over' : 'Six steps on recorded runs (T)';
    parts['tour.open'].ariaPressed = String(isOpen);
  }

  async function open() {
    if (isOpen || !load || visit.isBusy) return;
    [isOpen, before] = [true, { focus: document.activeElement, speed: player.speed }];
    const opening = (opened += 1);
    const isStale = () => !isOpen || opening !== opened;
    parts.tour.hidden = false;
    drawOpener();
    draw({ title: 'The tour', text: 'Loading its recordings.' });
    parts.tour.focus();
    try {
      data ??= JSON.parse(await load(), exactIntegers);
    } catch {
      if (!isStale()) draw({ title: 'The tour could not be loaded', text: 'The page got no answer. Leave the tour, and open it again when the page is connected.' });
      return;
    }
    if (isStale()) return; // it was left meanwhile
    if (visit.isBusy) {
      close();
      return;
    }
    steps = stepsOf({ board, data, player, put, draw: () => draw(steps[at]), leave, next: () => go(at + 1) });
    visit.go(data.logs[data.main], close);
    go(0);
  }

  // Put on the board for the tour: it is no new visit. `isBeside`: compared with the one that was there.
  function put(id, isBeside = false) {
    show({ ...data.logs[id], isBeside });
  }

  // Back to what the page had given.
  function leave() {
    if (at >= 0) visit.back(); // which closes
    else close();
  }

  function close() {
    if (!isOpen) return;
    [isOpen, at] = [false, -1];
    const { activeElement: focused } = document;
    const hadFocus = focused === document.body || parts.tour.contains(focused);
    parts.tour.hidden = true;
    for (const key of ['tour', 'veil']) delete board.dataset[key];
    player.setSpeed(before.speed);
    drawOpener();
    if (!hadFocus) return; // somebody is elsewhere by now, in an editor perhaps
    const { focus } = before;
    (focus?.isConnected && focus !== document.body ? focus : parts['tour.open']).focus();
  }

  function go(step) {
    if (step < 0) return;
    if (step >= steps.length) {
      leave();
      return;
    }
    at = step;
    delete board.dataset.veil;
    board.dataset.tour = steps[at].name;
    steps[at].enter();
    draw(steps[at]);
    parts.tour.scrollIntoView({ block: 'nearest' });
  }

  function draw({ title, text, said = '', deed = '', options, points, notes = [] }) {
    setText(parts['tour.title'], title);
    setText(parts['tour.count'], at < 0 ? '' : `Step ${at + 1} of ${steps.length}`);
    setText(parts['tour.text'], text);
    setText(parts['tour.said'], said);
    setText(parts['tour.deed'].firstElementChild, deed);
    parts['tour.deed'].hidden = !deed;
    parts['tour.back'].disabled = at < 1;
    parts['tour.next'].disabled = at < 0;
    setText(parts['tour.next'].firstElementChild, at === steps.length - 1 ? 'Finish' : 'Next');
    parts['tour.options'].hidden = !options;
    options?.draw();
    parts['tour.points'].hidden = !points;
    points?.(parts['tour.points']);
    fit(parts['tour.notes'], notes.length, 'li');
    notes.forEach((note, i) => setText(parts['tour.notes'].children[i], note));
  }

  function pick(i) {
    steps[at]?.options?.pick(i);
  }

  const moves = {
    ArrowRight: () => go(at + 1),
    PageDown: () => go(at + 1),
    ArrowLeft: () => go(at - 1),
    PageUp: () => go(at - 1),
    ' ': () => steps[at].press(),
  };

  // What the tour does at a key, undefined where it is not its key.
  function deedAt(event) {
    if (!isOpen || event.ctrlKey || event.metaKey || event.altKey) return undefined;
    if (event.key === 'Escape') return isWanted(event) ? undefined : leave;
    if (at < 0 || isWanted(event)) return undefined;
    if (/^[1-9]$/.test(event.key)) return () => pick(Number(event.key) - 1);
    return moves[event.key];
  }

  parts['tour.open'].addEventListener('click', () => (isOpen ? leave() : open()));
  parts['tour.skip'].addEventListener('click', leave);
  parts['tour.back'].addEventListener('click', () => go(at - 1));
  parts['tour.next'].addEventListener('click', () => go(at + 1));
  parts['tour.deed'].addEventListener('click', () => steps[at].press());
  parts['tour.options'].addEventListener('click', ({ target }) => {
    const option = target.closest('[data-option]');
    if (option) pick(Number(option.dataset.option));
  });
  const method = board.querySelector('[data-panel="method"]');
  parts['tour.method'].hidden = !method;
  parts['tour.method'].addEventListener('click', () => method.click());
  drawOpener();

  return {
    drawOpener,
    deedAt,
    toggle: () => (isOpen ? leave() : open()),
    moved: () => steps[at]?.moved?.(),
    get isOpen() { return isOpen; },
  };
}
