// A draft: the rows that a person edits, made of what the server reads in the text, and written back as a text.
// What the table cannot show of a field is kept as it is written.

const PARTS = ['type', 'choices', 'titles', 'description', 'depends_on'];

let lastKey = 0;

function blankRow() {
  return {
    key: ++lastKey, name: '', type: '"boolean"', choices: [], description: '', depends: [],
    order: [...PARTS], // parts, and [name, JSON] of members that the table cannot show
    given: new Set(['type']), // parts that are written even where they are empty
    whole: '', // JSON in place of an object
  };
}

// The rows of a sheet. Fields that others depend on are held as rows, so that a new name reaches them.
function rowsOf(sheet) {
  const rows = sheet.rows.map(rowOf);
  for (const row of rows) row.depends = row.depends.map((name) => rows.find((other) => other.name === name) ?? name);
  return rows;
}

function rowOf({ name, parts, whole }) {
  const row = { ...blankRow(), name: JSON.parse(name), type: '', order: [], given: new Set(), whole };
  for (const [part, json] of parts) {
    const isKnown = PARTS.includes(part) && !row.given.has(part) && take(row, part, json);
    row.order.push(isKnown ? part : [part, Array.isArray(json) ? list(json) : json]);
    if (isKnown) row.given.add(part);
  }
  const titles = row.order.find((part) => part[0] === 'titles');
  if (titles) pairTitles(row, parts.find(([part]) => part === 'titles')[1]);
  if (row.type === '"boolean"' && row.given.has('choices')) row.given.add('boolean choices');
  complete(row);
  return row;
}

// Whether the table can show the part.
function take(row, part, json) {
  if (part === 'type') return Boolean(row.type = isText(json) ? json : '');
  if (part === 'description' && isText(json)) {
    row.description = JSON.parse(json);
    return true;
  }
  if (part === 'choices' && Array.isArray(json)) {
    row.choices = json.map((one) => ({ json: one, title: '' }));
    return true;
  }
  if (part === 'depends_on' && Array.isArray(json) && json.every(isText)) {
    row.depends = json.map((one) => JSON.parse(one));
    return true;
  }
  return false;
}

// Titles move with their choices, wherever there is one for each.
function pairTitles(row, titles) {
  const fits = Array.isArray(titles) && titles.every(isText) && row.given.has('choices');
  if (!fits || titles.length !== row.choices.length) return;
  row.order = row.order.map((part) => (part[0] === 'titles' && !row.given.has('titles') ? 'titles' : part));
  row.given.add('titles');
  row.choices.forEach((choice, i) => { choice.title = JSON.parse(titles[i]); });
}

// The parts that a field may yet get, behind the ones that stand before them elsewhere.
function complete(row) {
  PARTS.forEach((part, i) => {
    if (row.order.some((one) => one === part || one[0] === part)) return;
    const before = row.order.findLastIndex((one) => PARTS.slice(0, i).includes(one));
    row.order.splice(before + 1, 0, part);
  });
}

// A part that is written in a way that the table cannot show, as its JSON; undefined where it can.
function foreign(row, part) {
  return row.order.find((one) => Array.isArray(one) && one[0] === part)?.[1];
}

// The text of a draft, laid out as the page lays out a preset's.
function textOf(rows) {
  if (!rows.length) return '{}';
  return `{\n${rows.map((row) => `  ${JSON.stringify(row.name)}: ${specOf(row)}`).join(',\n')}\n}`;
}

function specOf(row) {
  if (row.whole) return row.whole;
  const members = row.order
    .map((part) => (Array.isArray(part) ? part : [part, written(row, part)]))
    .filter(([, json]) => json !== undefined);
  return members.length ? `{\n${members.map(([part, json]) => `    ${JSON.stringify(part)}: ${json}`).join(',\n')}\n  }` : '{}';
}

// The JSON of a part; undefined where there is nothing to write.
function written(row, part) {
  const isGiven = row.given.has(part);
  const isBoolean = row.type === '"boolean"' && !row.given.has('boolean choices');
  switch (part) {
    case 'type': return row.type || undefined;
    case 'choices': return isBoolean || !(isGiven || isOpen(row)) ? undefined : list(row.choices.map(({ json }) => json));
    case 'titles': return isBoolean || !(isGiven || row.choices.some(({ title }) => title))
      ? undefined : list(row.choices.map(({ title }) => JSON.stringify(title)));
    case 'description': return isGiven || row.description ? JSON.stringify(row.description) : undefined;
    default: return isGiven || row.depends.length
      ? list(row.depends.map((one) => JSON.stringify(one.name ?? one))) : undefined;
  }
}

// A field that has choices of its own.
function isOpen(row) {
  return row.type === '"enum"' || row.type === '"const"';
}

function list(items) {
  return `[${items.join(', ')}]`;
}
