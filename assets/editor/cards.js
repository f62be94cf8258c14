// The list of cards: which fields there are, in which order, by keys and by drag.

const MANY_FIELDS = 12; // fields that need no box to find one

function createCards(parts, { put, tell }) {
  const list = parts.cards;
  let cards = [];
  let dragged; // { card, from }

  const hooks = {
    edited: () => put(textOf(rows())),
    renamed: (row) => cards.filter((card) => card.row.depends.includes(row)).forEach((card) => card.drawNames()),
    others: rows,
    tell,
  };

  function rows() {
    return cards.map(({ row }) => row);
  }

  const cardOf = (node) => cards.find((card) => card.node === node.closest('.card'));
  const visible = () => cards.filter(({ node }) => !node.hidden);

  function draw(drafts, isLocked) {
    const opened = new Set(cards.filter((card) => card.isOpen).map(({ row }) => row.name));
    cards = [];
    cards = drafts.map((row) => createCard(parts.card, Object.assign(row, { isLocked }), hooks));
    list.replaceChildren(...cards.map(({ node }) => node));
    for (const card of cards) if (opened.has(card.row.name)) card.open(true);
    sieve();
  }

  function sieve() {
    const wanted = parts.find.value.toLowerCase();
    for (const { node, row } of cards) node.hidden = Boolean(wanted) && !row.name.toLowerCase().includes(wanted);
    const shown = visible().length;
    const all = counted(cards.length, 'field');
    setText(parts.fields, shown === cards.length ? all : `${shown} of ${all}`);
    parts.find.hidden = cards.length <= MANY_FIELDS && !wanted;
    parts.none.hidden = cards.length > 0;
  }

  function add() {
    const card = createCard(parts.card, blankRow(), hooks);
    cards.push(card);
    list.append(card.node);
    parts.find.value = '';
    sieve();
    card.node.querySelector('.name').focus();
    hooks.edited();
  }

  function remove(card) {
    const others = visible();
    const next = others[others.indexOf(card) + 1] ?? others[others.indexOf(card) - 1];
    const at = cards.indexOf(card);
    const asked = cards.filter(({ row }) => row.depends.includes(card.row));
    // The others keep the name: what they depend on is no field now, and they say so.
    for (const { row } of asked) row.depends = row.depends.map((one) => (one === card.row ? card.row.name : one));
    cards.splice(at, 1);
    card.node.remove();
    sieve();
    (next?.node.querySelector('.name') ?? parts.add).focus();
    hooks.edited();
    tell(`${literal(card.row.name) || 'A field without a name'} was removed.`, ['Put it back', () => {
      cards.splice(at, 0, card);
      list.insertBefore(card.node, list.children[at] ?? null);
      for (const { row } of asked) row.depends = row.depends.map((one) => (one === card.row.name ? card.row : one));
      sieve();
      card.node.querySelector('.name').focus();
      hooks.edited();
    }]);
  }

  // In the place of another one; what had the focus keeps it.
  function place(card, target) {
    const [from, to] = [cards.indexOf(card), cards.indexOf(target)];
    const focused = card.node.contains(document.activeElement) ? document.activeElement : undefined;
    cards.splice(from, 1);
    cards.splice(to, 0, card);
    target.node[from < to ? 'after' : 'before'](card.node);
    focused?.focus();
  }

  function step(card, by) {
    const others = visible();
    const target = others[others.indexOf(card) + by];
    if (!target || card.row.isLocked) return;
    place(card, target);
    card.node.scrollIntoView({ block: 'nearest' });
    tell(`${literal(card.row.name) || 'The field'} is ${cards.indexOf(card) + 1} of ${cards.length}.`);
    hooks.edited();
  }

  list.addEventListener('click', ({ target }) => {
    const button = target.closest('button');
    if (button?.matches('.remove')) remove(cardOf(button));
    else if (button?.matches('.up')) step(cardOf(button), -1);
    else if (button?.matches('.down')) step(cardOf(button), 1);
  });
  list.addEventListener('keydown', (event) => {
    const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!event.altKey || !by || event.target.matches('select')) return;
    event.preventDefault();
    step(cardOf(event.target), by);
  });

  // Dragged by its grip a card changes places with those whose middle it has come past.
  list.addEventListener('pointerdown', (event) => {
    const grip = event.target.closest('.grip');
    if (!grip || event.button !== 0 || cardOf(grip).row.isLocked) return;
    event.preventDefault();
    const card = cardOf(grip);
    dragged = { card, from: cards.indexOf(card) };
    card.node.classList.add('dragged');
  });
  addEventListener('pointermove', (event) => dragged && drag(event.clientY));
  for (const end of ['pointerup', 'pointercancel']) addEventListener(end, drop);

  function drag(y) {
    const { card } = dragged;
    const { top, bottom } = list.getBoundingClientRect();
    if (y < top + 24) list.scrollTop -= 12;
    if (y > bottom - 24) list.scrollTop += 12;
    const others = visible();
    const at = others.indexOf(card);
    const middle = ({ node }) => {
      const box = node.getBoundingClientRect();
      return box.top + box.height / 2;
    };
    const above = others.slice(0, at).find((other) => y < middle(other));
    const below = others.slice(at + 1).findLast((other) => y > middle(other));
    if (above ?? below) place(card, above ?? below);
  }

  function drop() {
    if (!dragged) return;
    const { card, from } = dragged;
    dragged = undefined;
    card.node.classList.remove('dragged');
    if (cards.indexOf(card) === from) return;
    tell(`${literal(card.row.name) || 'The field'} is ${cards.indexOf(card) + 1} of ${cards.length}.`);
    hooks.edited();
  }

  parts.find.addEventListener('input', sieve);
  parts.add.addEventListener('click', add);

  return {
    draw,
    rows,
    // What the server says is wrong: with fields, by their place.
    fault(faults) {
      const words = new Map(faults.map(({ row, text }) => [row, text]));
      cards.forEach((card, i) => card.fault(words.get(i) ?? ''));
      setText(parts.general, words.get(-1) ?? '');
    },
  };
}
