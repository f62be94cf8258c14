// A column that somebody copied from a spreadsheet or a CSV file: a cell a line. Each cell is a text as it stands
// there, digits too; nothing of it is trimmed but the line's end.

const MOST_CHOICES = 1024;
const MOST_NAMED = 5; // of what is left out

// A cell in quotes as a spreadsheet writes what has a tab, a quote or a line break in it, or a plain one.
const CELL = /"((?:[^"]|"")*)"(?=[\t\r\n]|$)|[^\t\r\n]*/y;

// A table as rows of cells; undefined where the text is one cell.
function readTable(text) {
  if (!/[\t\r\n]/.test(text)) return undefined;
  const rows = [[]];
  let at = 0;
  for (;;) {
    CELL.lastIndex = at;
    const [cell, inQuotes] = CELL.exec(text);
    rows.at(-1).push(inQuotes?.replaceAll('""', '"') ?? cell);
    at += cell.length;
    if (at >= text.length) break;
    const end = text.startsWith('\r\n', at) ? 2 : 1;
    if (text[at] !== '\t') rows.push([]);
    at += end;
  }
  if (rows.length > 1 && rows.at(-1).join('') === '') rows.pop(); // the last line's end
  return rows;
}

// What a pasted table adds to the choices that are there: { added, words }, the words also of what it does not add.
function pastedChoices(rows, known) {
  const isTable = rows.length > 1;
  const columns = Math.max(...rows.map((row) => row.length));
  const cells = isTable ? rows.map(([cell]) => cell) : rows[0];
  const seen = new Set(known);
  const [added, twice] = [[], []];
  for (const cell of cells.filter(Boolean)) {
    const json = JSON.stringify(cell);
    (seen.has(json) ? twice : added).push(json);
    seen.add(json);
  }
  if (known.length + added.length > MOST_CHOICES) {
    const size = `${added.length} new choices beside ${known.length} are ${known.length + added.length}`;
    return { added: [], words: `Nothing was added: ${size}; at most ${MOST_CHOICES} are allowed.` };
  }
  const empty = cells.length - added.length - twice.length;
  return {
    added,
    words: [
      `${counted(added.length, 'choice')} added, each as text.`,
      isTable && columns > 1 ? `Of ${columns} columns the first was taken.` : '',
      twice.length ? `${twice.length} left out, there already: ${named(twice)}.` : '',
      empty ? `${counted(empty, 'empty cell')} left out.` : '',
    ].filter(Boolean).join(' '),
  };
}

function named(choices) {
  const more = choices.length - MOST_NAMED;
  return choices.slice(0, MOST_NAMED).map(showChoice).join(', ') + (more > 0 ? ` and ${more} more` : '');
}
