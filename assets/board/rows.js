// The rows: one per field, and below them one per invented key. A row is made once
// and filled in place.

// `mark` adds to a row of a field what is not of its run alone.
function createRows(template, fields, invented, mark) {
  const nodes = { fields: new Map(), invented: new Map() }; // name -> its element

  function made(row, kind, group) {
    const node = template.content.firstElementChild.cloneNode(true);
    node.dataset.field = row.name;
    setCut(node.querySelector('.name'), row.name, [row.name, row.description].filter(Boolean).join('\n'));
    group.append(node);
    nodes[kind].set(row.name, node);
    return node;
  }

  // Rows of another schema than the one drawn: all of them anew. Invented keys come and go.
  function fit(state) {
    const names = [...state.rows.keys()];
    const drawn = [...nodes.fields.keys()];
    if (drawn.length && (drawn.length !== names.length || drawn.some((name, i) => name !== names[i]))) {
      for (const node of nodes.fields.values()) node.remove();
      nodes.fields.clear();
      fields.scrollTop = 0;
    }
    for (const [name, node] of nodes.invented) {
      if (state.invented.has(name)) continue;
      node.remove();
      nodes.invented.delete(name);
    }
  }

  return function show(state) {
    fit(state);
    for (const [kind, rows, group] of [['fields', state.rows, fields], ['invented', state.invented, invented]]) {
      for (const row of rows.values()) {
        const node = nodes[kind].get(row.name);
        if (node && !state.isNew && !state.changed.has(row)) continue;
        fill(node ?? made(row, kind, group), row, state);
        if (kind === 'fields') mark(nodes.fields.get(row.name), row, state);
      }
    }
    for (const group of [fields, invented]) keepStop(group);
    state.changed.clear();
    state.isNew = false;
  };
}

// One tab stop a group; from there the arrow keys.
function keepStop(group) {
  const first = group.querySelector('[tabindex="0"]') ?? group.querySelector('[tabindex]');
  if (first) first.tabIndex = 0;
}

function fill(node, row, state) {
  const { decided } = row;
  setCut(node.querySelector('.value'), decided ? valueText(decided.value) : '');
  setTitle(node.querySelector('.pcd'), decided ? valueText(decided.value) : '');
  node.querySelector('.bar i').style.transform = `scaleX(${decided?.probability ?? 0})`;
  setText(node.querySelector('.percent'), decided ? share(decided) : '');
  node.querySelector('.share').title = decided ? shares(decided) : '';
  fillWritten(node.querySelector('.ar'), row);
  fillFlags(node.querySelector('.flags'), flagsOf(row, state));
  node.dataset.verdict = flagsOf(row, state).at(-1) ?? '';
  node.classList.toggle('decided', Boolean(decided));
}

// A value that is no JSON stands as it was written; what a lenient reader would take it for is beside it.
function fillWritten(cell, { text, lenient }) {
  const note = lenient && readLeniently(lenient);
  if (cell.textContent !== literal(text + note)) {
    const beside = document.createElement('small');
    beside.textContent = literal(note);
    cell.replaceChildren(literal(text), beside);
  }
  setTitle(cell, note ? `${text}\nis no JSON; a lenient reader would take it for\n${lenient}` : text);
}

function share(decided) {
  return shareText(decided, decided.probability);
}

const LISTED = 8; // choices in a tooltip, and of a decision that is looked into at first

// What the bar's tooltip says: the likeliest choices, and how much the model wanted any of them.
function shares(decided) {
  const { top, cardinality, candidate_mass: mass, unread = 0, unread_mass: rest } = decided;
  if (cardinality === 1) return 'The schema allows this value alone: nothing was asked';
  const lines = top.slice(0, LISTED).map(([choice, share]) => `${shareText(decided, share)}  ${valueText(choice)}`);
  const others = cardinality - unread - lines.length;
  if (others > 0) lines.push(`and ${others} more`);
  if (unread) lines.push(`${unread} proved to lose and not read, together at most ${percent(rest)}`);
  lines.push(`Probability of any allowed choice: ${percent(mass)}`);
  return ['Share among the allowed choices', ...lines].join('\n');
}

// The share of a choice, as far as it is known.
function shareText(decided, share) {
  if (decided.cardinality === 1) return 'fixed';
  const bound = atLeast(decided);
  return bound && share < 0.0005 ? `${bound}0 %` : bound + percent(share);
}

// What was not read could only make a share larger.
function atLeast({ unread_mass: rest = 0 }) {
  return rest >= 0.0005 ? '≥ ' : '';
}

function flagsOf(row, state) {
  // On the common axis of a replay the baseline may write a value before the other lane has decided it.
  const flags = row.flags.filter((flag) => row.decided || !BETWEEN_LANES.has(flag));
  if (row.partial) flags.push(state.end || state.lanes.ar.ended ? 'partial' : 'writing');
  if (!flags.length && row.text) flags.push('open');
  return flags;
}

const BETWEEN_LANES = new Set(['same', 'differs']);

function fillFlags(cell, flags) {
  const key = flags.join(' ');
  if (cell.dataset.flags === key) return;
  cell.dataset.flags = key;
  const words = flags.map((flag) => FLAGS.get(flag) ?? ['•', flag]);
  cell.title = words.map(([, word]) => word).join(', ');
  cell.replaceChildren(...words.map(([icon, word], i) => {
    const node = document.createElement('span');
    node.dataset.flag = flags[i];
    const mark = document.createElement('i');
    mark.textContent = icon;
    mark.ariaHidden = 'true';
    node.append(mark, ` ${word}`);
    return node;
  }));
}
