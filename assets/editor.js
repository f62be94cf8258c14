// The schema's text as a table, two ways. The text is what counts: an edit here makes a new text, and what the server
// reads in a text is drawn here, if it is still the text that stands in the editor.
// Text from outside reaches the page through textContent, value, title and labels only.

// `send(text)`: puts a text into the editor beside the table.
function createSheet(element, send) {
  const root = element.querySelector('.sheet');
  const parts = Object.fromEntries([...root.querySelectorAll('[data-part]')].map((node) => [node.dataset.part, node]));
  const cards = createCards(parts, { put, tell });
  let current; // the text in the editor, as far as the table knows
  let sheet = { text: '', state: 'fields', reason: '', rows: [], faults: [] }; // the server's last
  let shown; // the text that the cards stand for
  let sent = []; // texts of this table that the editor has not repeated yet

  // A text made here, which the cards stand for.
  function put(text) {
    shown = text;
    offer(text);
  }

  function offer(text) {
    if (text === current) return;
    current = text;
    sent.push(text);
    send(text);
    fresh();
  }

  // The text in the editor, by whomever: its own texts come back to the table late, and are no news.
  function told(text) {
    const at = sent.indexOf(text);
    if (at >= 0) {
      sent.splice(0, at + 1);
      return;
    }
    sent = [];
    current = text;
    fresh();
  }

  function answer(next) {
    current ??= next.text;
    if (next.text !== current) return; // of a text that was there before
    sheet = next;
    draw();
    fresh();
  }

  // Cards of another text than the editor's are not for editing.
  function fresh() {
    parts.table.inert = shown !== current;
  }

  // Drawn where it is seen: a person who edits as JSON waits for no cards.
  function draw() {
    if (parts.table.hidden) return;
    if (sheet.text !== shown) {
      if (parts.told.children.length) tell(''); // a way back to a table that is no more
      cards.draw(rowsOf(sheet), sheet.state !== 'fields');
    }
    shown = sheet.text;
    drawState();
  }

  function drawState() {
    cards.fault(sheet.faults);
    root.dataset.state = sheet.state;
    setText(parts.reason, sheet.reason);
    parts.take.hidden = sheet.state !== 'locked';
    parts.add.hidden = sheet.state !== 'fields';
  }

  function view(name) {
    for (const button of root.querySelectorAll('[data-view]')) button.ariaPressed = String(button.dataset.view === name);
    document.getElementById('editors').dataset.view = name;
    parts.table.hidden = name !== 'table';
    if (sheet.text === current) draw();
    fresh();
  }

  // What just happened, in words, perhaps with a way back.
  function tell(words, [name, undo] = []) {
    parts.told.textContent = words;
    if (!undo) return;
    const button = Object.assign(document.createElement('button'), { type: 'button', textContent: name });
    button.addEventListener('click', () => {
      tell('');
      undo();
    });
    parts.told.append(' ', button);
  }

  for (const button of root.querySelectorAll('[data-view]')) button.addEventListener('click', () => view(button.dataset.view));
  parts.take.addEventListener('click', () => {
    const rows = cards.rows();
    put(textOf(rows));
    cards.draw(rows, false);
    sheet = { ...sheet, state: 'fields', reason: '', faults: [] };
    drawState();
    parts.add.focus();
  });
  parts.open.addEventListener('click', () => parts.file.click());
  parts.file.addEventListener('change', async () => {
    const [file] = parts.file.files;
    parts.file.value = ''; // the same file may be picked again
    if (!file) return;
    const { text, words } = await readFile(file);
    tell(words ?? `${literal(file.name)} is in the editor.`);
    if (text !== undefined) offer(text);
  });

  return {
    show(value) {
      if (value.now !== undefined) told(value.now);
      else if (value.sheet) answer(JSON.parse(value.sheet));
    },
  };
}
