// Single keys, wherever no control wants them: Space, R, ← and → the replay, T the tour, P the presenter's view,
// L recorded or live, ? the keys.

const TYPING = 'input:not([type="range"], [type="checkbox"], [type="radio"]), textarea, select, [contenteditable], [role="listbox"]';
const MOVING = `input, ${TYPING}, [role="tab"]`; // take arrows
const PRESSING = `button, a, summary, ${MOVING}, [role="row"], [role="button"]`; // take the space bar

function isWanted({ target, key }) {
  if (target.closest?.('.sheet')) return true; // the schema's table has keys of its own
  if (key === 'Escape') return target.ariaExpanded === 'true' || Boolean(target.closest?.('.panel'));
  return Boolean(target.closest?.(key === ' ' ? PRESSING : /^(Arrow|Page)/.test(key) ? MOVING : TYPING));
}

// `tour` comes before the replay, which takes some of the same keys.
function listenForTools(board, tour, tools) {
  // A button that was pressed by hand leaves the space bar to the replay.
  board.addEventListener('click', ({ target, detail }) => {
    if (detail > 0) target.closest('.replay button, .tools button')?.blur();
  });
  addEventListener('keydown', (event) => {
    if (!board.offsetParent) return; // another tab is open
    const deed = tour.deedAt(event) ?? toolAt(event, tools);
    if (!deed) return;
    event.preventDefault();
    event.stopPropagation();
    deed();
  }, { capture: true });
}

function toolAt(event, tools) {
  const isHeld = event.repeat && !event.key.startsWith('Arrow');
  const isPlain = !event.ctrlKey && !event.metaKey && !event.altKey && !isHeld;
  return isPlain && !isWanted(event) ? tools[event.key.length === 1 ? event.key.toLowerCase() : event.key] : undefined;
}
