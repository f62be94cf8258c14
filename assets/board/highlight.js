// One field, the same everywhere: hover, focus and tap light up its row and its members
// in both texts; selecting it also scrolls those into view, inside their panes.

function createHighlight(board, panes, onSelect) {
  let hot; // under the pointer or focused
  let selected;
  let pointer = ''; // where it was last

  const linked = () => board.querySelectorAll('[data-field]');
  const focused = () => document.activeElement?.dataset.field;
  const fieldOf = (event) => event.target.closest('[data-field]')?.dataset.field;

  function paint() {
    for (const node of linked()) {
      node.classList.toggle('hot', node.dataset.field === hot);
      node.classList.toggle('selected', node.dataset.field === selected);
      if (node.role === 'row') node.ariaSelected = String(node.dataset.field === selected);
    }
  }

  function heat(field) {
    if (field === hot) return;
    hot = field;
    paint();
  }

  function select(field) {
    selected = field;
    paint();
    onSelect(field);
    if (field !== undefined) panes.forEach((pane) => reveal(pane, field));
  }

  function move(node, step) {
    const group = [...node.parentNode.children].filter((child) => child.dataset.field !== undefined);
    group[group.indexOf(node) + step]?.focus();
  }

  board.addEventListener('pointerover', (event) => {
    const position = `${event.screenX} ${event.screenY}`;
    if (position !== pointer) heat(fieldOf(event) ?? focused()); // else the page moved under a pointer at rest
    pointer = position;
  });
  board.addEventListener('pointerleave', () => heat(focused()));
  board.addEventListener('focusin', (event) => {
    heat(fieldOf(event));
    if (!['button', 'row'].includes(event.target.role)) return;
    for (const node of event.target.parentNode.querySelectorAll('[tabindex="0"]')) node.tabIndex = -1;
    event.target.tabIndex = 0;
  });
  board.addEventListener('focusout', () => heat(undefined));
  board.addEventListener('click', (event) => {
    if (!event.target.closest('button, input')) select(fieldOf(event)); // a control is about what is selected
  });
  board.addEventListener('keydown', (event) => {
    const field = fieldOf(event);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (field === undefined || event.ctrlKey || event.metaKey) return;
    if (step) move(event.target, step);
    else if (event.key === 'Enter' || event.key === ' ') select(field);
    else return;
    event.preventDefault();
  });

  return { paint, get selected() { return selected; }, clear: () => { hot = undefined; select(undefined); } };
}

function reveal(pane, field) {
  const node = [...pane.querySelectorAll('[data-field]')].find((child) => child.dataset.field === field);
  if (!node) return;
  const [inner, outer] = [node.getBoundingClientRect(), pane.getBoundingClientRect()];
  if (inner.top >= outer.top && inner.bottom <= outer.bottom) return;
  pane.scrollTop += inner.top - outer.top - (pane.clientHeight - inner.height) / 2;
}
