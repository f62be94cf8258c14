// The report: one HTML file with this board, its script, its style sheet and a run's events in it. It opens
// from a disk without a network. Made as a document, so that texts are set and never pasted into markup.

// `template`: the board's own markup, before anything was drawn in it; `log`: the run's trace.
function reportOf({ events, log, template }) {
  const { model, mode, context, schema } = runIn(events);
  const heading = `${scenarioTitle(runIn(events))}: PCD beside streamed JSON`;
  const report = document.implementation.createHTMLDocument(literal(`${model}, baseline mode ${mode}, n = 1: PCD beside streamed JSON`));
  const nonce = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');
  report.documentElement.lang = 'en';
  const add = (parent, tag, values, text = '') => {
    const node = parent.appendChild(report.createElement(tag));
    for (const [name, value] of Object.entries(values)) node.setAttribute(name, value);
    node.textContent = text;
    return node;
  };
  const title = report.querySelector('title');
  add(report.head, 'meta', { charset: 'utf-8' });
  add(report.head, 'meta', { 'http-equiv': 'Content-Security-Policy', content: policy(nonce) });
  add(report.head, 'meta', { name: 'viewport', content: 'width=device-width, initial-scale=1' });
  report.head.append(title);
  const style = document.getElementById('styles').textContent;
  add(report.head, 'style', { nonce, id: 'styles' }, `${themeOf(style)}${style}`);
  report.body.className = 'report';
  add(report.body, 'h1', {}, literal(heading));
  add(report.body, 'div', { id: 'board' }).innerHTML = template;
  addPrinted(add, report.body, methodOf(events, true));
  addAsked(add, report.body, { Text: context, Schema: JSON.stringify(schema, (key, value) => (typeof value === 'bigint' ? String(value) : value), 2) });
  add(report.body, 'script', { type: 'application/x-ndjson', id: 'log' }, log.replaceAll('<', '\\u003c'));
  add(report.body, 'script', { nonce }, scriptOf());
  return `<!doctype html>\n${report.documentElement.outerHTML}\n`;
}

function policy(nonce) {
  return `default-src 'none'; script-src 'nonce-${nonce}'; style-src 'nonce-${nonce}'; base-uri 'none'; form-action 'none'`;
}

// The method below the board, for paper and for whoever runs no script.
function addPrinted(add, parent, sections) {
  const place = add(parent, 'section', { class: 'printed', 'aria-label': 'Method' });
  for (const { title, lines } of sections) {
    add(place, 'h2', {}, literal(title));
    const list = add(place, 'ul', {});
    for (const line of lines) add(list, 'li', {}, literal(line));
  }
}

// What both lanes were asked.
function addAsked(add, parent, texts) {
  const place = add(parent, 'section', { class: 'asked', 'aria-label': 'Text and schema' });
  for (const [title, text] of Object.entries(texts)) {
    add(place, 'h2', {}, title);
    add(place, 'pre', {}, literal(text));
  }
}

// The script of the board as it runs here, and what starts it there.
function scriptOf() {
  const source = `const boardScript = ${boardScript};\n(${startReport})(boardScript());\n`;
  return source.replace(/<(?=\/script|!--)/gi, '\\x3c'); // would end the element, or change how it ends
}

function startReport(createBoard) {
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const paint = (isDark) => document.body.classList.toggle('dark', isDark);
  dark.addEventListener('change', () => paint(dark.matches));
  addEventListener('beforeprint', () => paint(false)); // paper is white
  addEventListener('afterprint', () => paint(dark.matches));
  paint(dark.matches);
  const board = createBoard(document.getElementById('board'));
  board.show({ run: 'report', log: document.getElementById('log').textContent, recorded: true });
}

// The page's theme as values, light and dark, for the variables that the style sheet uses and does not set.
function themeOf(style) {
  const names = new Set([...style.matchAll(/var\((--[\w-]+)/g)].map(([, name]) => name));
  for (const [, name] of style.matchAll(/(--[\w-]+)\s*:/g)) names.delete(name);
  const values = (isDark) => {
    const found = isDark ? getComputedStyle(document.body.appendChild(darkened())) : getComputedStyle(document.documentElement);
    const lines = [...names].map((name) => [name, found.getPropertyValue(name).trim()]).filter(([, value]) => value);
    if (isDark) document.body.lastElementChild.remove();
    return lines.map(([name, value]) => `  ${name}: ${value};\n`).join('');
  };
  return `:root {\n${values(false)}}\n.dark {\n${values(true)}}\n`.replaceAll('<', '');
}

function darkened() {
  const probe = document.createElement('div');
  probe.className = 'dark';
  return probe;
}
