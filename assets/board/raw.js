// The JSON of a lane as text, its members linked to their rows. Grows at the end only,
// so that no character moves that stands already.

const END_SLACK = 8; // pixels within which a reader counts as being at the end

// `follows`: keeps to the end of the text while the reader is there.
function createRaw(pane, follows) {
  let drawn = '';

  return function show(lane) {
    const members = [...lane.members.values()].sort((a, b) => a.start - b.start);
    const key = `${lane.characters.length} ${members.map(({ start, end }) => `${start}-${end}`).join()}`;
    if (key === drawn) return;
    drawn = key;
    const atEnd = pane.scrollHeight - pane.scrollTop - pane.clientHeight < END_SLACK;
    const pieces = [...split(lane.characters, members)];
    pieces.forEach((piece, i) => setPiece(pane.children[i] ?? pane.appendChild(document.createElement('span')), piece));
    while (pane.children.length > pieces.length) pane.lastChild.remove();
    if (follows && atEnd) pane.scrollTop = pane.scrollHeight;
  };
}

// The text cut at the members: [text, name of the field or undefined].
function* split(characters, members) {
  let position = 0;
  for (const { name, start, end } of members) {
    if (start < position) continue;
    yield [characters.slice(position, start).join(''), undefined];
    yield [characters.slice(start, end).join(''), name];
    position = end;
  }
  yield [characters.slice(position).join(''), undefined];
}

function setPiece(node, [text, name]) {
  setText(node, text);
  if (node.dataset.field === name) return;
  if (name === undefined) {
    delete node.dataset.field;
    node.removeAttribute('role');
    node.removeAttribute('tabindex');
  } else {
    node.dataset.field = name;
    node.setAttribute('role', 'button');
    // One tab stop a pane; from there the arrow keys.
    node.tabIndex = node.parentNode.querySelector('[tabindex="0"]') ? -1 : 0;
  }
}
