// The card: a result as one picture, 1200 by 630, as link previews and slides want it. It names all that the
// numbers depend on; the whole method is in the file's own text.

const CARD = { width: 1200, height: 630, edge: 56 };
const PALETTES = {
  light: { page: '#ffffff', text: '#1e293b', quiet: '#5b6779', line: '#dbe2ea', pcd: '#1d4ed8', ar: '#b45309', bad: '#be123c' },
  dark: { page: '#0f172a', text: '#f1f5f9', quiet: '#a3b0c2', line: '#334155', pcd: '#7aa7ff', ar: '#f0a04b', bad: '#fb7185' },
};

// A PNG as bytes.
async function cardOf(events, recorded, palette) {
  const canvas = Object.assign(document.createElement('canvas'), { width: CARD.width, height: CARD.height });
  drawCard(canvas.getContext('2d'), events, recorded, PALETTES[palette]);
  const picture = await new Promise((done) => canvas.toBlob(done, 'image/png'));
  return withText(new Uint8Array(await picture.arrayBuffer()), 'Description', methodText(events, recorded));
}

function drawCard(pen, events, recorded, colors) {
  const { run, end, lanes } = finalOf(events);
  const { width, height, edge } = CARD;
  pen.fillStyle = colors.page;
  pen.fillRect(0, 0, width, height);
  const say = (text, x, y, size, color, { weight = 400, room = width - edge - x, align = 'left' } = {}) => {
    Object.assign(pen, { fillStyle: colors[color], textAlign: align });
    pen.fillText(fitted(pen, literal(text), weight, size, room), x, y);
  };
  const line = (y) => { pen.fillStyle = colors.line; pen.fillRect(edge, y, width - 2 * edge, 1); };
  const marks = marksOf(end);
  const isSlower = end?.speed_up < 1;
  const [middle, column] = [width / 2, 350];

  say('Parallel constrained decoding beside streamed JSON', edge, 84, 34, 'text', { weight: 650, room: 860 });
  say(recorded ? '● RECORDED' : '◉ LIVE', width - edge, 82, 22, 'quiet', { weight: 700, align: 'right', room: 200 });
  say(`${scenarioTitle(run)}, ${counted(run.names.length, 'field')}`, edge, 122, 22, 'quiet');
  line(148);
  say('PCD', edge, 200, 26, 'pcd', { weight: 650, room: column });
  say(laneTime(lanes.pcd), edge, 268, 60, 'text', { weight: 650, room: column });
  say(countsOf(run, lanes.pcd), edge, 306, 22, 'quiet', { room: column });
  say('baseline ÷ PCD', middle, 200, 22, 'quiet', { align: 'center', room: 300 });
  say(end?.speed_up == null ? MISSING : factor(end.speed_up), middle, 268, 60, 'text', { weight: 650, align: 'center', room: 300 });
  say('n = 1', middle, 306, 22, 'quiet', { align: 'center', room: 300 });
  say(`Baseline, mode ${run.mode}`, width - edge, 200, 26, 'ar', { weight: 650, align: 'right', room: column });
  say(laneTime(lanes.ar), width - edge, 268, 60, 'text', { weight: 650, align: 'right', room: column });
  say(`${counted(lanes.ar.tokens, 'token')} written`, width - edge, 306, 22, 'quiet', { align: 'right', room: column });
  say([isSlower ? '⚠ PCD is the slower one' : '', ...marks].filter(Boolean).join(' · '), middle, 350, 22, 'bad', { weight: 650, align: 'center', room: width - 2 * edge });
  line(376);
  [
    `${run.model}, ${run.dtype}`,
    [`${run.backend} on ${run.device}`, run.machine].filter(Boolean).join(', '),
    `Baseline mode ${run.mode} (${MODES.get(run.mode) ?? MISSING}), ${jsonStyle(run.style)}, greedy; prefix cache ${run.cache}`,
    `${run.date.slice(0, 10)}; order ${run.order.map((lane) => LANE_NAMES[lane]).join(' then ')}; ${clockOf(run)}, waiting and warm-up not in it`,
  ].forEach((text, i) => say(text, edge, 420 + 34 * i, 22, i ? 'quiet' : 'text'));
  line(544);
  say(`One run, one user, this ${isServed(run) ? 'server' : 'device'}. The factor depends on the baseline and its mode.`, edge, 580, 19, 'text');
  say('Values are allowed ones, not proved right; shares are not calibrated.', edge, 608, 19, 'text');
}

// Smaller where it would not fit, down to a half; then cut.
function fitted(pen, text, weight, size, room) {
  const measured = (part, pixels) => {
    pen.font = `${weight} ${pixels}px system-ui, "Segoe UI", Roboto, "Noto Sans", sans-serif`;
    return pen.measureText(part).width;
  };
  const smaller = Math.max(size / 2, Math.min(size, (size * room) / measured(text, size)), LEAST_PIXELS);
  if (measured(text, smaller) <= room + 1) return text;
  const characters = [...text].slice(0, 400);
  while (characters.length && measured(`${characters.join('')}…`, smaller) > room) characters.pop();
  return `${characters.join('')}…`;
}

const LEAST_PIXELS = 16;

function methodText(events, recorded) {
  return methodOf(events, recorded).map(({ title, lines }) => [title, ...lines.map((line) => `- ${line}`)].join('\n')).join('\n\n');
}

// A PNG with a text of its own (an uncompressed iTXt chunk) before its end.
function withText(png, keyword, text) {
  const encoder = new TextEncoder();
  const body = new Uint8Array([...encoder.encode(`iTXt${keyword}`), 0, 0, 0, 0, 0, ...encoder.encode(text)]);
  const chunk = new Uint8Array(body.length + 8);
  const view = new DataView(chunk.buffer);
  view.setUint32(0, body.length - 4);
  chunk.set(body, 4);
  view.setUint32(body.length + 4, crc32(body));
  const end = png.length - 12; // where IEND is
  return new Blob([png.slice(0, end), chunk, png.slice(end)], { type: 'image/png' });
}
