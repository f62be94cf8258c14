// The card of one field. `hooks`: edited(row) when something of the row has changed, tell(words), others() the rows.

const TYPES = new Map(Object.entries({ '"boolean"': 'boolean', '"enum"': 'enum', '"const"': 'fixed' }));
const IN_SUMMARY = 6; // choices that a closed card names

function createCard(template, row, hooks) {
  const node = template.content.firstElementChild.cloneNode(true);
  const part = (name) => node.querySelector(`.${name}`);
  const [name, type, more, body, fault] = ['name', 'type', 'more', 'body', 'fault'].map(part);
  const description = part('description');
  const edited = () => {
    drawSummary();
    hooks.edited(row);
  };
  const chips = createChips(node, row, { edited, tell: hooks.tell });
  let isDrawn = false; // what is inside is drawn when it is first seen
  let wrong; // in words

  function drawLabels() {
    const field = literal(row.name) || 'the field without a name';
    const labels = {
      name: `Name of ${field}`, type: `Type of ${field}`, remove: `Remove ${field}`,
      up: `Move ${field} up`, down: `Move ${field} down`, description: `Description of ${field}`,
      'new-choice': `New choice of ${field}`, filter: `Find a choice of ${field}`, chips: `Choices of ${field}`,
      depend: `Decide ${field} after another field`,
    };
    for (const [key, label] of Object.entries(labels)) part(key).ariaLabel = label;
  }

  function drawSummary() {
    const names = row.choices.slice(0, IN_SUMMARY).map(({ json }) => showChoice(json)).join(', ');
    const rest = row.choices.length > IN_SUMMARY ? ', …' : '';
    const choices = [counted(row.choices.length, 'choice'), names].filter(Boolean).join(': ') + rest;
    const own = row.whole || (row.type === '"boolean"' ? 'true or false' : choices);
    const after = row.depends.length ? ` · after ${row.depends.map((one) => one.name ?? one).join(', ')}` : '';
    setText(part('summary'), `${own}${after}${row.description ? ` · ${row.description}` : ''}`);
  }

  function drawType() {
    if (!TYPES.has(row.type)) {
      const words = row.type ? JSON.parse(row.type) : foreign(row, 'type') ?? 'no type';
      type.options[0].value = row.type;
      type.options[0].textContent = literal(words);
      type.options[0].hidden = false;
    }
    type.value = row.type;
    part('closed').hidden = row.type !== '"boolean"';
    part('open').hidden = row.type === '"boolean"';
  }

  function drawKept() {
    const members = row.order.filter(Array.isArray).map(([key, json]) => `${key}: ${json}`);
    if (row.whole) members.push(row.whole);
    part('kept').hidden = members.length === 0;
    setText(part('kept'), `Kept as it is written, to be edited as JSON: ${members.join(', ')}`);
  }

  function drawDepends() {
    part('depends').replaceChildren(...row.depends.map((one, i) => {
      const item = document.createElement('li');
      const drop = document.createElement('button');
      drop.type = 'button';
      drop.textContent = '×';
      drop.ariaLabel = `Not after ${literal(one.name ?? one)}`;
      drop.disabled = row.isLocked;
      drop.addEventListener('click', () => {
        row.depends.splice(i, 1);
        drawDepends();
        part('depend').focus();
        edited();
      });
      item.append(literal(one.name ?? one), drop);
      return item;
    }));
    const free = hooks.others().filter((other) => other !== row && !row.depends.includes(other));
    part('depend').replaceChildren(new Option('decide after …', ''), ...free.map((other) => new Option(literal(other.name), other.key)));
  }

  function open(isOpened) {
    more.ariaExpanded = String(isOpened);
    body.hidden = !isOpened;
    if (!isOpened) return;
    drawDepends();
    if (!isDrawn) chips.draw();
    isDrawn = true;
  }

  // What the table cannot show it does not edit either.
  function lock() {
    const isWhole = Boolean(row.whole);
    for (const control of node.querySelectorAll('input, select, textarea, button')) {
      control.disabled = row.isLocked && !control.matches('.more, .filter, .chips button');
    }
    const controls = {
      type: [type], description: [description], choices: [part('new-choice'), part('add-choice')],
      depends_on: [part('depend')],
    };
    for (const [key, own] of Object.entries(controls)) {
      for (const control of own) control.disabled ||= isWhole || foreign(row, key) !== undefined;
    }
  }

  name.addEventListener('input', () => {
    row.name = name.value;
    drawLabels();
    hooks.renamed(row);
    edited();
  });
  description.addEventListener('input', () => {
    row.description = description.value;
    edited();
  });
  type.addEventListener('change', () => {
    row.type = type.value;
    row.given.add('type');
    row.given.delete('boolean choices');
    drawType();
    edited();
    if (isOpen(row) && !row.choices.length) {
      open(true);
      part('new-choice').focus();
    }
  });
  more.addEventListener('click', () => open(body.hidden));
  part('depend').addEventListener('focus', drawDepends);
  part('depend').addEventListener('change', ({ target }) => {
    const other = hooks.others().find(({ key }) => String(key) === target.value);
    if (other) row.depends.push(other);
    drawDepends();
    edited();
  });

  name.value = row.name;
  description.value = row.description;
  fault.id = `fault-${row.key}`;
  drawLabels();
  drawType();
  drawSummary();
  drawKept();
  lock();

  return {
    node,
    row,
    open,
    // Another field, which this one names, has a new name.
    drawNames() {
      drawSummary();
      if (!body.hidden) drawDepends();
    },
    get isOpen() { return !body.hidden; },
    // What is wrong with the field, '' where nothing is.
    fault(words) {
      if (words === wrong) return;
      wrong = words;
      setText(fault, words);
      fault.hidden = !words;
      name.setAttribute('aria-invalid', String(Boolean(words)));
      if (words) name.setAttribute('aria-describedby', fault.id);
      else name.removeAttribute('aria-describedby');
    },
  };
}
