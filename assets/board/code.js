// The run that is shown, as code that asks for the same: over REST, from Python, for an MCP client. Made from the
// run's event alone. Texts stand in it as JSON writes them, whose escapes are Python's too: what a shell, Python or
// an editor would obey is never there as itself.

const MOST_REST_CONTEXT = 65_536; // bytes
const MOST_REST_CHOICES = 256;
const MOST_REST_BODY = 2 ** 20; // bytes
const MOST_TEXT_LINES = 200; // from there on a text stands on one line
const INSTALL_MCP = 'pip install "mcp>=1.21,<2"';

// Beside the characters that JSON escapes anyway. An editor may take the separators for ends of lines.
const UNSEEN = new RegExp(`${OBEYED.source}|[\\u2028\\u2029\\ufeff]`, 'g');

// [{ id, label, text, notes }], one for each way to ask; `text` is empty where it cannot be asked so, and the notes
// say why. `address`: of the page, without a slash at its end; `mcp`: whether the server is one for MCP.
function snippetsOf(run, { address, mcp }) {
  const asked = askedIn(run);
  const body = written(asked.body, JSON_WORDS);
  const refused = refusedByRest(run, body);
  const model = `The server decides with the model that it runs then; this run is of ${run.model}.`;
  const flat = run.source && run.source !== 'fields' && 'The schema was imported: these are its fields, and values come back by their names.';
  const settings = unknownToEndpoint(run);
  const served = run.backend === 'vllm' && `The model is on a vLLM server: give its address in the place of ${SERVER}.`;
  const lane = `PCD alone; POST ${address}/v1/race tells both lanes.`;
  const rest = (text) => (refused ? { text: '', notes: [refused] } : { text, notes: [lane, model, flat] });
  return [
    { id: 'curl', label: 'curl', ...rest(curlOf(address, body)) },
    { id: 'httpx', label: 'Python, REST', ...rest(httpxOf(address, asked)) },
    { id: 'library', label: 'Python, library', text: libraryOf(run, asked), notes: ['Run it in the folder of this program.', served, flat] },
    { id: 'client', label: 'gradio_client', text: clientOf(run, address, asked), notes: [model, settings, flat] },
    { id: 'mcp', label: 'MCP', ...(mcp ? { text: mcpOf(address), notes: [KEY_FOR_MCP, model] } : { text: '', notes: [WITHOUT_MCP] }) },
    { id: 'call', label: 'MCP call', ...(mcp ? { text: callOf(asked), notes: ['Arguments of the tool parallel.', settings, flat] } : { text: '', notes: [WITHOUT_MCP] }) },
  ].map(({ notes, ...snippet }) => ({ ...snippet, notes: notes.filter(Boolean) }));
}

const WITHOUT_MCP = `This server is none for MCP: start the app with --mcp, after ${INSTALL_MCP}.`;

// What the run was asked, in maps: an object would put keys such as "10" and "2" in an order of its own.
function askedIn(run) {
  const schema = new Map(run.names.map((name) => [name, new Map(Object.entries(run.schema[name]))]));
  const page = { temperature: run.temperature, style: run.style ?? 'pretty', cache: run.cache !== 'off' };
  const options = new Map(Object.entries({ ...page, complete: run.reading !== 'best-first' }));
  for (const [name, usual] of [['scoring', 'identify'], ['prior', 'none']]) {
    if ((run[name] ?? usual) !== usual) options.set(name, run[name]);
  }
  return {
    context: run.context,
    schema,
    page: new Map(Object.entries(page)),
    options,
    body: new Map([['context', run.context], ['schema', schema], ...options]),
  };
}

// Why REST does not take the run's request; '' where it does.
function refusedByRest(run, body) {
  const size = bytesOf(run.context);
  if (size > MOST_REST_CONTEXT) return beyondRest(`a text of at most ${counted(MOST_REST_CONTEXT, 'byte')}, this one has ${counted(size, 'byte')}`);
  const long = run.names.find((name) => run.schema[name].choices?.length > MOST_REST_CHOICES);
  if (long !== undefined) return beyondRest(`at most ${MOST_REST_CHOICES} choices in a field, ${long} has ${counted(run.schema[long].choices.length, 'choice')}`);
  if (bytesOf(body) > MOST_REST_BODY) return beyondRest(`a request of at most ${counted(MOST_REST_BODY, 'byte')}, this one has ${counted(bytesOf(body), 'byte')}`);
  return '';
}

function beyondRest(limit) {
  return `REST takes ${limit}. The library and gradio_client take it.`;
}

function bytesOf(text) {
  return new TextEncoder().encode(text).length;
}

function unknownToEndpoint(run) {
  const left = [['scoring', 'identify'], ['prior', 'none']].filter(([name, usual]) => (run[name] ?? usual) !== usual);
  return left.length > 0 && `The tool knows no ${left.map(([name]) => `${name} (this run: ${run[name]})`).join(' and no ')}.`;
}

// --- each way ---

// Each line of the body begins with a space or a brace, so none of them can end the text; between quoted ends a
// shell reads nothing in it.
function curlOf(address, body) {
  return [
    `curl -sS '${address}/v1/pcd/decode' \\`,
    "  -H 'Content-Type: application/json' \\",
    '  -H "X-API-Key: ${PCD_API_KEY-}" \\', // curl sends no header that is empty
    "  --data-binary @- <<'JSON'",
    body,
    'JSON\n',
  ].join('\n');
}

function httpxOf(address, { context, schema, options }) {
  const settings = [...options].map(([name, value]) => `${quoted(name)}: ${written(value, PYTHON_WORDS)}`);
  return `import json
import os

import httpx

context = ${textInPython(context)}
schema = ${written(schema, PYTHON_WORDS)}
body = {"context": context, "schema": schema, ${settings.join(', ')}}
${KEY_IN_PYTHON}
answer = httpx.post(${quoted(`${address}/v1/pcd/decode`)}, json=body, headers=headers, timeout=None)
print(json.dumps(answer.json(), indent=2))
answer.raise_for_status()
`;
}

const KEY_IN_PYTHON = `key = os.environ.get("PCD_API_KEY")
headers = {"X-API-Key": key} if key else {}`;

function libraryOf(run, asked) {
  const lanes = {
    pcd: `result = engine.run_parallel(context, schema, ${keywords(asked.options)})
print(json.dumps(result.values, indent=2))
print(f"PCD: {result.elapsed_ms:.1f} ms")
`,
    ar: `for event in engine.stream_baseline(context, schema, mode=${quoted(run.mode)}, ${keywords(asked.page, 'temperature')}):
    if event["kind"] == "lane_end":
        print(json.dumps(event["text"]))
        print(f"baseline: {event['ms']:.1f} ms")
`,
  };
  return `import json

from core.engine import Engine
from core.schema import StructuredSchema

${run.backend !== 'vllm' && run.why.startsWith('its path was given') ? "# The model is a folder of the server: give the path of yours.\n" : ''}context = ${textInPython(asked.context)}
schema = StructuredSchema(${written(asked.schema, PYTHON_WORDS)})
engine = Engine.load(${loadedAs(run).join(', ')})
${run.order.map((lane) => lanes[lane]).join('')}`;
}

// What a run says of its weights may be more than a name that can be asked for. Where a server is, it does not say.
function loadedAs({ model, backend, dtype }) {
  if (backend === 'vllm') return [quoted(SERVER), `backend=${quoted(backend)}`];
  const known = { backend: ['torch', 'mlx'], dtype: ['bfloat16', 'float16', 'float32'] };
  const asked = Object.entries({ backend, dtype }).filter(([name, value]) => known[name].includes(value)).map(([name, value]) => `${name}=${quoted(value)}`);
  return [quoted(model), ...asked];
}

const SERVER = 'http://HOST:PORT';

function clientOf(run, address, asked) {
  const calls = {
    pcd: `answer = client.predict(context, json.dumps(schema), ${keywords(asked.page)}, api_name="/parallel")
print(json.dumps(json.loads(answer)["values"], indent=2))
`,
    ar: `for line in client.submit(context, json.dumps(schema), mode=${quoted(run.mode)}, ${keywords(asked.page, 'temperature')}, api_name="/autoregressive"):
    event = json.loads(line)
    if event["kind"] == "lane_end":
        print(json.dumps(event["text"]))
`,
  };
  return `import json
import os

from gradio_client import Client

context = ${textInPython(asked.context)}
schema = ${written(asked.schema, PYTHON_WORDS)}
${KEY_IN_PYTHON}
client = Client(${quoted(`${address}/`)}, headers=headers, download_files=False, verbose=False)
${run.order.map((lane) => calls[lane]).join('')}`;
}

// Of the two tools the one whose last word is the answer.
function mcpOf(address) {
  const server = new Map([['type', 'http'], ['url', `${address}/gradio_api/mcp/?tools=parallel`]]);
  return `${written(new Map([['mcpServers', new Map([['pcd', server]])]]), JSON_WORDS)}\n`;
}

const KEY_FOR_MCP = 'Where the server has a key, "headers": {"X-API-Key": "..."} belongs beside the url.';

function callOf({ context, schema, page }) {
  return `${written(new Map([['context', context], ['schema', onOneLine(written(schema, JSON_WORDS))], ...page]), JSON_WORDS)}\n`;
}

// --- how values are written ---

const JSON_WORDS = new Map([[true, 'true'], [false, 'false'], [null, 'null']]);
const PYTHON_WORDS = new Map([[true, 'True'], [false, 'False'], [null, 'None']]);

// A text as JSON and Python both read it, in characters that do nothing on a screen.
function quoted(text) {
  return JSON.stringify(text).replace(UNSEEN, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

// Maps as objects or dicts, a line for each member; lists on one line.
function written(value, words, margin = '') {
  if (typeof value === 'string') return quoted(value);
  if (words.has(value)) return words.get(value);
  if (Array.isArray(value)) return `[${value.map((one) => written(one, words)).join(', ')}]`;
  if (!(value instanceof Map)) return String(value); // a number, to its last digit
  const deeper = `${margin}  `;
  const members = [...value].map(([key, one]) => `${deeper}${quoted(key)}: ${written(one, words, deeper)}`);
  return `{\n${members.join(',\n')}\n${margin}}`;
}

// No text holds a line's end, so each of them is one of the layout.
function onOneLine(json) {
  return json.replace(/\n */g, ' ');
}

function textInPython(text) {
  const lines = text.split(/(?<=\n)/);
  if (lines.length < 2 || lines.length > MOST_TEXT_LINES) return quoted(text);
  return `(\n${lines.map((line) => `    ${quoted(line)}\n`).join('')})`;
}

function keywords(options, ...left) {
  return [...options].filter(([name]) => !left.includes(name)).map(([name, value]) => `${name}=${written(value, PYTHON_WORDS)}`).join(', ');
}

// --- the panel ---

// Where the page is, whatever port and path it is served under.
function pageAddress({ origin, pathname }) {
  return (origin + pathname).replace(/\/+$/, '').replaceAll("'", '%27');
}

function createCode(parts, shown) {
  let chosen = 'curl';
  let drawn; // the run that the snippets are of
  let snippets = [];
  parts['code.copy'].addEventListener('click', () => copy(current().text, parts['code.said']));

  const current = () => snippets.find(({ id }) => id === chosen);

  function list() {
    fit(parts['code.ways'], snippets.length, 'button');
    snippets.forEach(({ id, label }, i) => {
      const button = parts['code.ways'].children[i];
      button.type = 'button';
      button.dataset.way = id;
      setText(button, label);
    });
  }

  parts['code.ways'].addEventListener('click', ({ target }) => {
    const button = target.closest('button');
    if (!button) return;
    chosen = button.dataset.way;
    drawChosen();
  });

  function drawChosen() {
    for (const button of parts['code.ways'].children) button.ariaPressed = String(button.dataset.way === chosen);
    const { label, text, notes } = current() ?? { label: '', text: '', notes: [NOTHING_ASKED] };
    setText(parts['code.text'], text);
    parts['code.text'].hidden = parts['code.copy'].hidden = !text;
    parts['code.copy'].ariaLabel = `Copy: ${label}`;
    setText(parts['code.said'], '');
    setText(parts['code.notes'], notes.join('\n'));
  }

  return function draw() {
    const run = shown().events.find(({ kind }) => kind === 'run');
    if (drawn && run === drawn) return;
    drawn = run;
    snippets = run ? snippetsOf(run, { address: pageAddress(location), mcp: window.gradio_config?.mcp_server === true }) : [];
    list();
    drawChosen();
  };
}

const NOTHING_ASKED = 'There is no run to show as code yet: press Run, or choose a scenario that has a recording.';
