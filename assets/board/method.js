// The method of a run: what was compared, under which conditions, and what it does not show. Made from
// the run's events alone, so that it stands beside a run wherever that is shown or taken.

const MOST_NAMED = 12; // fields or parts of a schema in one line

// [{ title, lines }]; `recorded`: the run was saved and is shown again; `isLost`: nothing more of it comes.
function methodOf(events, recorded, isLost = false) {
  const state = finalOf(events);
  if (!state.run) {
    return [{ title: 'No run yet', lines: ['Press Run, or choose a scenario that has a recording.'] }];
  }
  return [
    { title: 'What was compared', lines: comparedIn(state) },
    { title: 'Conditions', lines: conditionsIn(state, recorded) },
    { title: 'What was counted', lines: countedIn(state, isLost) },
    { title: 'What this does not show', lines: caveatsOf(state) },
  ].map(({ title, lines }) => ({ title, lines: lines.filter(Boolean) }));
}

// One line that names a result with all that it depends on.
function citationOf(events, recorded) {
  const state = finalOf(events);
  const { run, end } = state;
  if (!run) return '';
  const { machine, backend, device, dtype, model, cache, temperature, date } = run;
  return [
    `PCD beside streamed JSON, ${scenarioTitle(run)}, ${counted(run.names.length, 'field')}`,
    ...['pcd', 'ar'].map((name) => `${LANE_NAMES[name]} ${laneTime(state.lanes[name])}`),
    end?.speed_up == null ? 'no speed-up' : [`baseline ÷ PCD ${factor(end.speed_up)}`, ...marksOf(end)].join(' '),
    `baseline mode ${run.mode}, ${jsonStyle(run.style)}`,
    `${model}, ${[dtype, backend, device, machine].filter(Boolean).join(', ')}`,
    `prefix cache ${cache}, T = ${temperature}, n = 1`,
    `${date.slice(0, 10)}, ${recorded ? 'recorded' : 'live'}`,
  ].join('; ').replace(/\s+/g, ' ');
}

function marksOf(end) {
  return (end?.marks ?? []).map((mark) => MARKS.get(mark) ?? `⚠ ${mark}`);
}

function laneTime({ ended, ms }) {
  return ended ? duration(ms).join(' ') : 'not finished';
}

function comparedIn({ run }) {
  const { names, context, mode, reading, strategy, scoring, prior } = run;
  const enforced = MODES.get(mode) ?? 'unknown to this page';
  return [
    `Scenario: ${scenarioTitle(run)}; ${counted(names.length, 'field')}, ${counted([...context].length, 'character')} of text.`,
    'The same model, weights, dtype and prompt for both lanes, and the same state of the prefix cache.',
    `PCD: ${STRATEGIES.get(strategy) ?? STRATEGIES.get('tree')}; ${
      reading === 'best-first' ? 'read until no other choice can win (best-first)' : 'every allowed choice is read (complete)'
    }; ${SCORINGS.get(scoring) ?? `scoring ${scoring}`}; ${PRIORS.get(prior) ?? `prior ${prior}`}. The JSON is put together in code.`,
    `Baseline: the model writes ${jsonStyle(run.style)}, token by token, greedy; mode ${mode} (${enforced}).`,
    (isServed(run) ? AGAINST_SERVED : AGAINST).get(mode),
    isServed(run) && !run.opening && 'The baseline writes the opening brace itself, after the prompt without it: what the server enforces begins there.',
  ];
}

const SCORINGS = new Map(Object.entries({
  identify: 'a choice is scored up to the token that only it can have',
  full: 'a choice is scored to the end of its line',
}));

const PRIORS = new Map(Object.entries({
  none: 'no prior is subtracted',
  content_free: 'the scores of a text without content are subtracted',
}));

// What the baseline's mode leaves to chance, and what another one would.
const STRICTER = 'would rule out invented keys, omissions and values that are not allowed, and is mostly faster, '
  + 'because it writes keys and punctuation without asking the model: compare with mode schema';
const AGAINST = new Map(Object.entries({
  free: `Only the prompt holds the baseline to the schema. A grammar of the schema ${STRICTER}.`,
  json: `Any JSON object is enforced, not this schema. A grammar of the schema ${STRICTER}.`,
  schema: 'A grammar of the schema holds the baseline: keys, order and allowed values are enforced, and tokens that it '
    + 'leaves no choice about are written without asking the model.',
}));

// A server asks its model for every token.
const STRICTER_SERVED = 'would rule out invented keys, omissions and values that are not allowed: compare with mode schema';
const AGAINST_SERVED = new Map(Object.entries({
  free: `Only the prompt holds the baseline to the schema. The server's structured outputs ${STRICTER_SERVED}.`,
  json: `The server enforces any JSON object, not this schema. Its structured outputs ${STRICTER_SERVED}.`,
  schema: "The server's structured outputs hold the baseline to the schema: keys and allowed values are enforced.",
}));

function conditionsIn({ run, warmUp, headsMs, lanes }, recorded) {
  const { order, cache, temperature, date, versions } = run;
  const told = CACHES.get(cache);
  const made = Object.entries(versions ?? {}).map((pair) => pair.join(' '));
  return [
    `${recorded ? 'Recorded: a saved run, shown again.' : 'Live: run from this page.'} Made on ${date}.`,
    `Model ${run.model} (${run.why}), ${run.dtype}, ${run.backend} on ${run.device}.`,
    run.machine && `Machine: ${run.machine}.`,
    made.length && `Versions: ${made.join(', ')}.`,
    `Order: ${order.map((lane) => LANE_NAMES[lane]).join(' then ')}, one after the other, ${isServed(run) ? 'with whatever else the server did then' : 'alone on the device'}. The replay puts both on a common zero.`,
    `Prefix cache: ${CACHE_STATES.get(cache) ?? cache}${told ? `; ${told}` : ''}.`,
    run.prompt_tokens != null && `Prompt: ${counted(run.prompt_tokens, 'token')} for each lane.`,
    `T = ${temperature}: it changes the shares, never which choice wins. No sampling in either lane.`,
    warmUp
      ? `Warm-up: ${duration(warmUp.took_ms).join(' ')} at load, in neither clock.`
      : 'No warm-up is in the events of this run.',
    headsMs.length > 0 && `Heads sent to the server before the lanes' clocks started: ${headsMs.map((ms) => duration(ms).join(' ')).join(', ')}.`,
    `Waiting: ${duration(run.ms).join(' ')}, in neither clock. ${whoseClocks(run)}`,
    queueOf(lanes) && `In the server's queue, which is in the clocks: ${queueOf(lanes)}.`,
    'n = 1: one run, no median and no spread.',
  ];
}

function whoseClocks(run) {
  if (!isServed(run)) return "Clocks are the engine's.";
  return "Clocks are the client's around the wire: the network and the server's own queue are in them.";
}

const CACHE_STATES = new Map(Object.entries({ hit: 'warm (hit)', miss: 'cold (miss)', off: 'off' }));

function countedIn({ run, lanes: { pcd, ar }, end, judged }, isLost) {
  const speedUp = end?.speed_up ?? null;
  const forced = isServed(run) ? '' : `, ${ar.forced ?? 0} of them forced by the grammar`;
  return [
    `PCD: ${pcd.ended ? `${laneTime(pcd)}, ${countsOf(run, pcd)}, ${counted(pcd.tokens, 'token')} in the tree` : laneTime(pcd)}.`,
    `Baseline: ${ar.ended ? `${laneTime(ar)}, ${countsOf(run, ar)}, ${counted(ar.tokens, 'token')} written${forced}` : laneTime(ar)}.`,
    speedUp !== null && `Baseline ÷ PCD: ${factor(speedUp)}, ${clockOf(run)}, against baseline mode ${run.mode}.`,
    speedUp !== null && speedUp < 1 && `⚠ PCD is the slower lane here: it took ${factor(1 / speedUp)} the baseline's time.`,
    ...(speedUp === null ? [] : marksOf(end).map((mark) => `${mark}: the factor does not stand without this mark.`)),
    end ? end.state !== 'done' && `The run ${endedAs(end, (message) => `: ${message}`)}. There is no result to compare.`
      : isLost ? 'The run broke off: nothing more of it comes.' : 'The run is not over.',
    judged && `${VERDICT}${verdict(judged)}. Agreement with it is not correctness.`,
  ];
}

const VERDICT = "The baseline's text: ";

// How a run ended that has no result; `because` puts its reason into words.
function endedAs({ state, message }, because) {
  return state === 'failed' ? `failed${because(message)}` : 'was stopped';
}

function caveatsOf(state) {
  const { run } = state;
  const left = run.unsupported ?? [];
  const dependent = run.names.filter((name) => run.schema[name].depends_on?.length);
  return [
    'Only bounded fields: booleans and closed lists. Free text and open lists need something else.',
    left.length && `⚠ Left out of the schema, ${counted(left.length, 'part')}: ${listed(left.map(({ pointer, reason }) => `${pointer} (${reason})`))}.`,
    dependent.length
      ? `Fields that depend on others are decided after them: ${listed(dependent)}. All others are decided independently of each other.`
      : 'Fields are decided independently of each other, given the prompt: nothing makes them agree. The baseline can look back at what it wrote.',
    'Guaranteed: the syntax and that each value is an allowed one. Not guaranteed: that it is right.',
    'Shares are among the allowed choices of a field. They are not calibrated.',
    ...doubtsOf(state),
    'The factor depends on the baseline: its mode, JSON style and prefix cache are part of it.',
    `One user, ${isServed(run) ? 'this model on this server' : 'batch 1, this model on this device'}. Under load, or elsewhere, it is another.`,
  ];
}

// The decisions of this run that its own numbers call weak.
function doubtsOf({ rows }) {
  const asked = [...rows.values()].filter(({ decided }) => decided && decided.cardinality > 1);
  if (!asked.length) return [];
  const low = asked.filter(({ decided }) => isLowMass(decided));
  const near = asked.filter(({ decided }) => isNearTie(decided));
  const short = asked.filter(({ decided }) => decided.unasked);
  return [
    short.length && `The server takes so many tokens at a fork: of the probability was not asked for at most ${
      listed(short.map(({ name, decided }) => `${percent(decided.unasked_mass)} (${name})`))}.`,
    low.length
      ? `⚠ Low candidate mass, the model wanted to write something else: ${listed(low.map(({ name, decided }) => `${name} (${percent(decided.candidate_mass)})`))}.`
      : `No field has a candidate mass below ${percent(LOW_MASS)}.`,
    near.length
      ? `≈ Near ties, less than ${percent(NEAR_TIE)} ahead of the next choice: ${listed(near.map(({ name, decided }) => `${name} (${percent(marginOf(decided.top))})`))}.`
      : `No field is a near tie, less than ${percent(NEAR_TIE)} ahead of the next choice.`,
  ];
}

function listed(items) {
  const more = items.length - MOST_NAMED;
  return [...items.slice(0, MOST_NAMED), ...(more > 0 ? [`and ${more} more`] : [])].join(', ');
}

// The method's panel: its text, and the citation line that can be copied.
function createMethod(parts) {
  let drawn; // the events that it was made from, and how much of them it says
  parts['method.cite'].addEventListener('click', () => copy(parts['method.citation'].textContent, parts['method.said']));

  return function draw(events, recorded, isLost) {
    const told = events.filter(({ kind }) => MILESTONES.has(kind)).length + Number(isLost);
    if (drawn?.events === events && drawn.told === told) return; // hundreds of tokens change nothing in it
    drawn = { events, told };
    drawMethod(parts['method.text'], methodOf(events, recorded, isLost));
    const citation = citationOf(events, recorded);
    setText(parts['method.citation'], citation);
    setText(parts['method.said'], '');
    parts['method.cite'].hidden = !citation;
  };
}

const MILESTONES = new Set(['run', 'warmup', 'lane_end', 'end']);

function drawMethod(place, sections) {
  place.replaceChildren(...sections.map(({ title, lines }) => {
    const section = document.createElement('section');
    setText(section.appendChild(document.createElement('h2')), title);
    const list = section.appendChild(document.createElement('ul'));
    for (const line of lines) {
      const item = list.appendChild(document.createElement('li'));
      setText(item, line);
      if (line.startsWith(VERDICT)) item.dataset.tells = 'flags'; // which a bet hides
    }
    return section;
  }));
}
