// The choices of one field as chips. Each key changes the chips that it is about and no other, so that a thousand of
// them stay quick.

const KINDS = [[/^"/, ''], [/^(true|false)$/, 'boolean'], [/^null$/, 'null'], [/^-?\d/, 'number']];

// `edited()`: the row's choices have changed. `tell(words)`: something that a person should know.
function createChips(card, row, { edited, tell }) {
  const [chips, box, filter, count] = ['.chips', '.new-choice', '.filter', '.count'].map((one) => card.querySelector(one));
  const choiceOf = new WeakMap(); // of a chip's node

  function made(choice) {
    const node = document.createElement('li');
    node.append(document.createElement('button'), document.createElement('button'));
    for (const button of node.children) {
      button.type = 'button';
      button.tabIndex = -1;
    }
    node.children[1].className = 'drop';
    node.children[1].textContent = '×';
    choiceOf.set(node, choice);
    fill(node, choice);
    return node;
  }

  function fill(node, { json, title }) {
    const [button, drop] = node.children;
    const text = showChoice(json);
    const kind = KINDS.find(([pattern]) => pattern.test(json))?.[1] ?? 'not allowed';
    node.dataset.kind = kind;
    button.replaceChildren(text);
    if (title) button.append(Object.assign(document.createElement('small'), { textContent: literal(title) }));
    button.title = [text, kind && `a ${kind}, not a text`, title && literal(title)].filter(Boolean).join('\n');
    drop.ariaLabel = `Remove ${text}`;
  }

  function draw() {
    chips.replaceChildren(...row.choices.map(made));
    sieve();
  }

  function drawCount() {
    const shown = [...chips.children].filter((node) => !node.hidden).length;
    const all = counted(row.choices.length, 'choice');
    setText(count, shown === row.choices.length ? all : `${shown} of ${all}`);
    card.classList.toggle('filtering', row.choices.length > FEW || filter.value !== '');
    if (!chips.querySelector('[tabindex="0"]')) rove(visible()[0]);
  }

  function sieve() {
    const wanted = filter.value.toLowerCase();
    for (const node of chips.children) {
      const { json, title } = choiceOf.get(node);
      node.hidden = Boolean(wanted) && !`${showChoice(json)}\n${title}`.toLowerCase().includes(wanted);
    }
    for (const node of chips.querySelectorAll('[hidden] [tabindex="0"]')) node.tabIndex = -1;
    drawCount();
  }

  const visible = () => [...chips.children].filter((node) => !node.hidden);

  // One tab stop; from there the arrow keys.
  function rove(node, isFocused = false) {
    for (const other of chips.querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
    if (!node) return isFocused && box.focus();
    node.children[0].tabIndex = 0;
    if (isFocused) node.children[0].focus();
  }

  function add(jsons) {
    const choices = jsons.map((json) => ({ json, title: '' }));
    row.choices.push(...choices);
    chips.append(...choices.map(made));
    sieve();
    chips.scrollTop = chips.scrollHeight;
    edited();
  }

  // What stands in the box becomes a choice; one that is there already stays in the box.
  function enter() {
    if (box.value === '') return;
    const json = readChoice(box.value);
    if (row.choices.some((choice) => choice.json === json)) {
      tell(`${showChoice(json)} is among the choices already.`);
      return;
    }
    box.value = '';
    add([json]);
  }

  function remove(node) {
    const others = visible();
    const next = others[others.indexOf(node) + 1] ?? others[others.indexOf(node) - 1];
    row.choices.splice(row.choices.indexOf(choiceOf.get(node)), 1);
    node.remove();
    rove(next, true);
    drawCount();
    edited();
  }

  // To where a visible neighbour stands, before or behind it.
  function move(node, place) {
    const others = visible();
    const at = others.indexOf(node);
    const target = others[{ before: at - 1, behind: at + 1, first: 0, last: others.length - 1 }[place]];
    if (!target || target === node) return;
    const forward = others.indexOf(target) > at;
    const choice = choiceOf.get(node);
    row.choices.splice(row.choices.indexOf(choice), 1);
    row.choices.splice(row.choices.indexOf(choiceOf.get(target)) + Number(forward), 0, choice);
    target[forward ? 'after' : 'before'](node);
    rove(node, true);
    tell(`${showChoice(choice.json)} is ${row.choices.indexOf(choice) + 1} of ${row.choices.length}.`);
    edited();
  }

  // A box in the chip's place until the key Enter or another place is pressed; Escape leaves the choice as it was.
  function edit(node) {
    const choice = choiceOf.get(node);
    const input = document.createElement('input');
    input.value = showChoice(choice.json);
    input.ariaLabel = `Choice ${showChoice(choice.json)}`;
    let isOver = false;
    const finish = (isTaken, isFocused) => {
      if (isOver) return;
      isOver = true;
      const json = readChoice(input.value);
      const isKnown = row.choices.some((other) => other !== choice && other.json === json);
      if (isTaken && isKnown) tell(`${showChoice(json)} is among the choices already; ${showChoice(choice.json)} stays.`);
      const isNew = isTaken && !isKnown && input.value !== '' && json !== choice.json;
      if (isNew) choice.json = json;
      input.remove();
      node.classList.remove('editing');
      fill(node, choice);
      if (isFocused) rove(node, true);
      if (isNew) edited();
    };
    input.addEventListener('keydown', (event) => {
      event.stopPropagation();
      if (event.key === 'Enter' && !event.isComposing) finish(true, true);
      else if (event.key === 'Escape') finish(false, true);
      else return;
      event.preventDefault();
    });
    input.addEventListener('change', () => finish(true, document.activeElement === input));
    input.addEventListener('blur', () => finish(true, false));
    node.classList.add('editing');
    node.prepend(input);
    input.select();
  }

  const keys = {
    ArrowLeft: (node, others, at) => rove(others[at - 1] ?? node, true),
    ArrowRight: (node, others, at) => rove(others[at + 1] ?? node, true),
    ArrowUp: (node, others, at) => rove(others[at - 1] ?? node, true),
    ArrowDown: (node, others, at) => rove(others[at + 1] ?? node, true),
    Home: (node, others) => rove(others[0], true),
    End: (node, others) => rove(others.at(-1), true),
  };
  const moves = { ArrowLeft: 'before', ArrowRight: 'behind', Home: 'first', End: 'last' };

  chips.addEventListener('keydown', (event) => {
    const node = event.target.closest('li');
    if (event.ctrlKey || event.metaKey || row.isLocked) return;
    if (event.altKey) {
      if (!moves[event.key]) return;
      move(node, moves[event.key]);
    } else if (event.key === 'Backspace' || event.key === 'Delete') {
      remove(node);
    } else if (keys[event.key]) {
      keys[event.key](node, visible(), visible().indexOf(node));
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });
  chips.addEventListener('click', ({ target }) => {
    const button = target.closest('button');
    if (!button || row.isLocked) return;
    if (button.className === 'drop') remove(button.parentNode);
    else edit(button.parentNode);
  });
  box.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && !event.isComposing && !event.ctrlKey && !event.metaKey) {
      enter();
    } else if (event.key === 'Backspace' && box.value === '' && visible().length) {
      rove(visible().at(-1), true); // pressed once more it removes
    } else return;
    event.preventDefault();
  });
  box.addEventListener('change', enter);
  box.addEventListener('paste', (event) => {
    const table = readTable(event.clipboardData.getData('text/plain'));
    if (!table) return;
    event.preventDefault();
    const { added, words } = pastedChoices(table, row.choices.map(({ json }) => json));
    if (added.length) add(added);
    tell(words);
  });
  card.querySelector('.add-choice').addEventListener('click', () => {
    enter();
    box.focus();
  });
  filter.addEventListener('input', sieve);

  return { draw };
}

const FEW = 12; // choices that need no filter
