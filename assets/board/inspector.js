// Inside a decision: what a field was decided from, in the numbers of its event. Opens for the
// field that is selected, and follows a replay.

const NEAR_TIE = 0.05; // between the shares of the first two choices
const LOW_MASS = 0.1; // of any allowed choice

function createInspector(parts) {
  let all = false; // whether every choice is listed
  let last = []; // the state and the field that were drawn
  parts['inspector.more'].addEventListener('click', () => {
    all = !all;
    draw(...last);
  });

  function draw(state, name) {
    if (name !== last[1]) all = false;
    last = [state, name];
    const row = state.rows.get(name) ?? state.invented.get(name);
    parts.inspector.hidden = !row;
    if (!row) return;
    setText(parts['inspector.name'], name);
    setText(parts['inspector.about'], row.description ?? '');
    const { decided } = row;
    drawChoices(parts, decided, all);
    setText(parts['inspector.facts'], decided ? factsOf(decided).join(' · ') : undecidedWords(state, name));
    drawTokens(parts['inspector.path'], (decided?.path ?? []).map(([text, share]) => (
      { text, isMarked: share !== null, title: share === null ? 'no other choice goes on from here' : forkTitle(share) }
    )));
    drawTokens(parts['inspector.written'], writtenOf(state.lanes.ar, name).map(({ text, forced, ms }) => (
      { text, isMarked: !forced, title: `${forced ? 'forced by the grammar' : 'chosen by the model'}, ${duration(ms).join(' ')}` }
    )));
  }

  return { draw };
}

function drawChoices(parts, decided, all) {
  const top = decided?.top ?? [];
  const listed = all ? top : top.slice(0, LISTED);
  const list = parts['inspector.choices'];
  while (list.children.length > listed.length) list.lastElementChild.remove();
  while (list.children.length < listed.length) {
    const item = list.appendChild(document.createElement('li'));
    for (const tag of ['span', 'i', 'b']) item.append(document.createElement(tag));
  }
  listed.forEach(([choice, share], i) => {
    const [text, bar, number] = list.children[i].children;
    setCut(text, valueText(choice));
    bar.style.setProperty('--share', share);
    setText(number, shareText(decided, share));
  });
  const others = top.length - LISTED;
  parts['inspector.more'].hidden = others <= 0;
  setText(parts['inspector.more'], all ? 'Show fewer' : `and ${others} more`);
}

// What to know beside the shares; a word and a sign where they are weak.
function factsOf(decided) {
  const { top, cardinality, candidate_mass: mass, unread = 0, unread_mass: rest = 0, levels } = decided;
  if (cardinality === 1) return ['The schema allows this value alone: nothing was asked'];
  const facts = [`probability of any allowed choice ${percent(mass)}${isLowMass(decided) ? ' ⚠ low' : ''}`];
  if (top.length > 1) {
    facts.push(`${percent(marginOf(top))} ahead of the next${isNearTie(decided) ? ' ≈ near tie' : ''}`);
  }
  facts.push(`${counted(levels, 'fork')} on its path`);
  if (unread) facts.push(`${unread} proved to lose and not read, together at most ${percent(rest)}`);
  const { unasked = 0, unasked_mass: left = 0 } = decided;
  if (unasked) facts.push(unaskedWords(unasked, left));
  return facts;
}

// A server takes so many token ids at a fork, which may be fewer than go into its branches.
function unaskedWords(unasked, mass) {
  const [are, hold] = unasked === 1 ? ['was', 'it holds'] : ['were', 'they hold'];
  return `${counted(unasked, 'vocabulary token')} ${are} not asked for; ${hold} at most ${percent(mass)} of the probability`;
}

// A fixed value has no other to be near to, and nothing was asked about it.
function isNearTie({ top, cardinality }) {
  return cardinality > 1 && top.length > 1 && marginOf(top) < NEAR_TIE;
}

function marginOf(top) {
  return top[0][1] - top[1][1];
}

function isLowMass({ cardinality, candidate_mass: mass }) {
  return cardinality > 1 && mass < LOW_MASS;
}

function forkTitle(share) {
  return `a fork: of all that could follow, ${percent(share)} goes this way`;
}

// The baseline's tokens that touch the member of a key.
function writtenOf(lane, name) {
  const members = [...lane.members.values()].filter((member) => member.name === name);
  return lane.written.filter(({ from, to }) => members.some(({ start, end }) => from < end && to > start));
}

function drawTokens(list, tokens) {
  while (list.children.length > tokens.length) list.lastElementChild.remove();
  while (list.children.length < tokens.length) list.append(document.createElement('code'));
  tokens.forEach(({ text, isMarked, title }, i) => {
    const node = list.children[i];
    setText(node, text.replaceAll('\n', '⏎').replaceAll(' ', '·'));
    setTitle(node, title);
    node.classList.toggle('marked', isMarked);
  });
  list.parentNode.hidden = !tokens.length;
}

function undecidedWords(state, name) {
  if (state.rows.has(name)) return 'PCD has not decided it yet.';
  return 'The baseline made this key up: PCD decides the keys of the schema and no others.';
}
