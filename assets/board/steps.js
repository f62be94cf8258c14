// The six steps: what each says, does and asks. A step: { name, title, text, said, deed, options,
// points, notes, enter, press, moved }; `press` is its own deed, and where nothing is left of that, the next step.

function stepsOf(stage) {
  return [resultStep, betStep, motionStep, changeStep, scaleStep, turnStep].map((step) => step(stage));
}

function resultStep({ data, player, put }) {
  const main = data.points.find(({ id }) => id === data.main);
  return {
    name: 'result',
    title: 'The result first',
    text: `${main.title}: ${counted(main.fields, 'field')}. Same model, same schema, same text. `
      + `PCD took ${spoken(main.pcd_ms)}, the baseline ${spoken(main.ar_ms)}: ${headline(main)}.`,
    deed: 'Play or pause at 1×',
    enter() {
      put(data.main);
      player.setSpeed('1×');
      player.press('full');
    },
    press: () => player.press('play'),
  };
}

// The flags are hidden until somebody has said what they expect.
function betStep({ board, data, player, put, draw, next }) {
  const { fields, answer, options, counts, sure, pcd_right: ours, ar_right: theirs } = data.bet;
  const bet = createBet(board.querySelector('[data-part="tour.options"]'), options.map(String), (i) => options[i] === answer);
  const told = [...FLAGS].filter(([flag]) => flag !== 'same' && counts[flag]).map(([flag, [, word]]) => `${counts[flag]} ${word}`);
  const step = {
    name: 'bet',
    title: 'Your bet',
    text: `At how many of the ${counted(fields, 'field')} does the baseline not write the value that PCD decided?`,
    deed: 'Show the flags',
    options: bet,
    enter() {
      put(data.main);
      player.press('full');
      if (bet.isOpen) board.dataset.veil = 'flags';
    },
    press() {
      if (!bet.isOpen) {
        next();
        return;
      }
      bet.reveal();
      delete board.dataset.veil;
      step.deed = '';
      step.said = `At ${answer} of ${fields}: ${told.join(', ')}. Agreement is not correctness.`
        + (sure ? ` Of ${counted(sure, 'field')} with an answer noted in the scenario, PCD has ${ours} right, the baseline ${theirs}.` : '');
      draw();
    },
  };
  return step;
}

// From zero at 1/50×, with a pause wherever PCD begins something else.
function motionStep({ data, player, put, draw, next }) {
  let stops = [];
  const step = {
    name: 'motion',
    title: 'Slow motion',
    enter() {
      put(data.main);
      player.setSpeed('1/50×');
      player.stopAt(0);
      stops = stopsOf(player.tape);
      step.moved();
    },
    // A pause that is passed over by hand is as good as one that was waited for.
    moved() {
      const { position, isPlaying } = player;
      const ahead = stops.find(({ ms }) => ms > position + EDGE);
      const here = stops.findLast(({ ms }) => ms <= position + EDGE);
      const wait = ahead && duration(50 * (ahead.ms - position)).join(' ');
      step.text = here?.text ?? 'Both lanes from zero, fifty times slower. The replay pauses where PCD begins something else.';
      step.said = ahead ? `At 1/50× the next pause comes in ${wait}${isPlaying ? '; press again to be there at once' : ''}.` : '';
      step.deed = ahead ? 'Go on' : '';
      draw();
    },
    press() {
      const ahead = stops.find(({ ms }) => ms > player.position + EDGE);
      if (!ahead) next();
      else if (player.isPlaying) player.stopAt(ahead.ms);
      else player.playTo(ahead.ms);
      step.moved();
    },
  };
  return step;
}

// Where PCD begins something else, a little inside, and where it is through.
function stopsOf(tape) {
  const words = isServed(tape.run) ? SERVED_PAUSES : PAUSES;
  const begun = tape.intervals.pcd
    .filter(({ name, from, to }) => to - from > EDGE && name !== 'plan')
    .map(({ name, from }) => ({ ms: from + EDGE, text: words[deedOf(tape, from + EDGE) || 'prompt'] ?? name }));
  const end = tape.intervals.pcd.at(-1)?.to ?? 0;
  return [...begun, { ms: end, text: words.end }];
}

const PAUSES = {
  prompt: 'Pause: the prompt. Both lanes read the same one, in a pass each.',
  reading: 'Pause: the tree pass. Every allowed choice of every row is in it, so all rows are read at once.',
  scoring: 'Pause: the forks. A value is decided where its tokens part from those of the other choices.',
  assembly: 'Pause: the assembly. Code puts the decided values together; nothing is written by the model.',
  end: 'PCD is through. Look at what the baseline has written by now.',
};

const SERVED_PAUSES = {
  ...PAUSES,
  prompt: 'Pause: the prompt. Both lanes have the server read it, in a request each.',
  reading: 'Pause: the requests. Each fork that is read is a prompt of its own; many of them go in one request.',
};

// One sentence of the text is another: which rows change?
function changeStep({ board, data, player, put, draw, next }) {
  const { change } = data;
  if (!change) {
    return {
      name: 'change',
      title: 'Change one fact',
      text: 'No run with a changed text is recorded here. Live: change a sentence in the context, press Run, and compare the rows.',
      enter: () => put(data.main),
      press: next,
    };
  }
  const { options, turns } = change;
  const changed = new Map(turns.map((turn) => [turn.name, turn]));
  const list = board.querySelector('[data-part="tour.options"]');
  const bet = createBet(list, options, (i) => changed.has(options[i]), { several: true });
  const step = {
    name: 'change',
    title: `Change one fact: ${change.label}`,
    text: `“${change.was}” becomes “${change.now}” Which of these fields will PCD decide otherwise?`,
    deed: 'Show the second run',
    options: bet,
    enter() {
      put(data.main);
      player.press('full');
      if (!bet.isOpen) put(change.id, true);
    },
    press() {
      if (!bet.isOpen) {
        next();
        return;
      }
      bet.reveal();
      put(change.id, true);
      step.deed = '';
      step.text = `${counted(turns.length, 'field')} changed for PCD, ${change.ar_turns} for the baseline.`;
      step.notes = turns.map(({ name, was, now }) => `${name}: ${was} → ${now}`);
      draw();
    },
  };
  return step;
}

// Every recorded race as a point; the one of the fewest fields is asked for first.
function scaleStep({ board, data, put, draw, next }) {
  const { points } = data;
  const asked = points.at(-1); // the fewest fields, the longest list
  const isAsked = ({ fields, longest }) => fields === asked.fields && longest === asked.longest;
  const right = new Set(points.filter(isAsked).map((point) => leadOf(point)[0]));
  const list = board.querySelector('[data-part="tour.options"]');
  const leads = ['PCD', `level, within ${100 * LEVEL} %`, 'the baseline'];
  const bet = createBet(list, leads, (i) => right.has(i));
  const step = {
    name: 'scale',
    title: 'Where it pays',
    text: `A bar is one recorded run (n = 1) with its baseline mode: baseline ÷ PCD, ${[...new Set(points.map(clockOf))].join(' or ')}. ${counted(asked.fields, 'field')}, ${asked.longest} choices: who is ahead?`,
    deed: 'Show the rest',
    options: bet,
    points: (node) => drawScale(node, points, (point) => !bet.isOpen || !isAsked(point), ({ id }) => put(id)),
    enter() {},
    press() {
      if (!bet.isOpen) {
        next();
        return;
      }
      bet.reveal();
      put(asked.id);
      step.deed = '';
      const most = points.reduce((one, other) => (other.speed_up > one.speed_up ? other : one));
      step.said = `Measured with ${asked.longest} choices: ${points.filter(isAsked).map(ratio).join(' and ')}. `
        + `The most here: ${ratio(most)}, ${counted(most.fields, 'field')}. ${[...new Set(points.map(madeOn))].join('; ')}.`;
      draw();
    },
  };
  return step;
}

function turnStep({ data, put, leave }) {
  const caveats = caveatsOf(finalOf(eventsOf(data.logs[data.main].log))).filter(Boolean);
  return {
    name: 'turn',
    title: 'Your turn',
    get text() {
      const way = document.body.dataset.presenting === undefined ? '' : ' (P shows them)';
      return `Put your own text and schema into the editors${way}, then Run (Ctrl or ⌘ with Enter). What this recording does not show:`;
    },
    deed: 'Run live',
    notes: [...caveats.slice(0, 3), ...caveats.slice(-2)], // of the answers, and of the ratio
    enter: () => put(data.main), // what its limits are of
    press() {
      leave();
      document.getElementById('run')?.click();
    },
  };
}

// The ratio of one run, with what it depends on.
function headline(point) {
  return `${ratio(point)}, n = 1, ${madeOn(point)}`;
}

function ratio({ speed_up: speedUp, mode, marks }) {
  return [`${factor(speedUp)} against mode ${mode}`, ...marksOf({ marks })].join(' ');
}

function madeOn({ model, device }) {
  return `${model} on ${device}`;
}

function spoken(ms) {
  return duration(ms).join(' ');
}
