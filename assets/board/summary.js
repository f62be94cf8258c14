// What stands around the rows: where a run comes from, each lane's counts, the speed-up, and lines about the whole.

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

function drawLane(parts, name, lane, run) {
  const part = (key) => parts[`${name}.${key}`];
  setText(part('how'), lane.running ? 'running' : ENDINGS.get(lane.how) ?? lane.how);
  part('how').dataset.how = lane.running ? 'running' : lane.how;
  setText(part('calls'), isServed(run) ? 'requests' : 'passes');
  setText(part('passes'), String(lane.passes ?? MISSING));
  setText(part('tokens'), String(lane.tokens ?? MISSING));
  setCut(part('cache'), lane.cache ?? MISSING, CACHES.get(lane.cache) ?? '');
  drawSent(part, lane, isServed(run));
  if (name === 'ar') drawWriting(part, lane, isServed(run));
}

// What only a lane on a server has.
function drawSent(part, { sent, queue }, isServed) {
  for (const name of ['sent', 'queue']) part(name).parentNode.hidden = !isServed;
  setText(part('sent'), sent?.toLocaleString('en') ?? MISSING);
  setText(part('queue'), queue === null ? MISSING : duration(queue).join(' '));
}

// What only a lane that writes has. A server does not say which tokens it was not asked for.
function drawWriting(part, { forced, firstTokenMs, rate }, isServed) {
  part('forced').parentNode.hidden = isServed;
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
  setCut(parts.conditions, speedUp === null ? `baseline ÷ PCD, ${clockOf(run)}` : conditions(run));
  const marks = marksOf(end);
  if (speedUp !== null && speedUp < 1) marks.unshift('⚠ PCD is the slower one');
  setCut(parts.marks, marks.join(' · '));
}

function conditions(run) {
  const { model, device, dtype, mode, style } = run;
  return `baseline mode ${mode}, ${jsonStyle(style)} ÷ PCD, ${clockOf(run)}, n = 1: ${model}, ${device}, ${dtype}`;
}

function jsonStyle(style) {
  return STYLES.get(style) ?? `JSON style ${style}`;
}

function runLine({ run }) {
  if (!run) return 'Both lanes: same weights, same prompt, same state of the cache, one after the other; on this machine alone on the device.';
  const order = run.order.map((lane) => LANE_NAMES[lane]).join(' then ');
  return [
    `${run.model} (${run.why})`,
    isServed(run) ? '' : `${run.backend} on ${run.device}`, // it stands in the reason
    isServed(run) ? '' : run.dtype,
    `baseline mode ${run.mode}`,
    jsonStyle(run.style),
    `prefix cache ${run.cache}`,
    `order ${order}`,
    `T\u00a0=\u00a0${run.temperature}`,
    READINGS.get(run.reading) ?? '',
    run.strategy === 'rows' ? 'PCD reads a row per branch' : '',
    isServed(run) ? clockOf(run) : '',
    run.unsupported?.length ? `⚠ ${run.unsupported.length} of the schema's parts left out` : '',
  ].filter(Boolean).join(' · ');
}

function untimed({ run, warmUp }) {
  if (!run) return '';
  const times = [`${duration(run.ms).join(' ')} waiting`];
  if (warmUp) times.push(`${duration(warmUp.took_ms).join(' ')} warm-up at load`);
  return `Not in the clocks: ${times.join(', ')}`;
}

function verdict({ outcome, counts }) {
  const words = [...FLAGS].filter(([flag]) => counts[flag]).map(([flag, [, word]]) => `${counts[flag]} ${word}`);
  return [OUTCOMES.get(outcome) ?? outcome, ...words].join(' · ');
}
