// Single keys, wherever no control wants them: T the tour, P the presenter's view, L recorded or live, ? the keys.

const TYPING = 'input:not([type="range"], [type="checkbox"], [type="radio"]), textarea, select, [contenteditable], [role="listbox"]';
const MOVING = `input, ${TYPING}, [role="tab"]`; // take arrows
const PRESSING = `button, a, summary, ${MOVING}, [role="row"], [role="button"]`; // take the space bar

function isWanted({ target, key }) {
  if (key === 'Escape') return target.ariaExpanded === 'true' || Boolean(target.closest?.('.panel'));
  return Boolean(target.closest?.(key === ' ' ? PRESSING : /^(Arrow|Page)/.test(key) ? MOVING : TYPING));
}

// `tour` comes before the replay, which takes some of the same keys.
function listenForTools(board, tour, tools) {
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
  const isPlain = !event.ctrlKey && !event.metaKey && !event.altKey && !event.repeat;
  return isPlain && !isWanted(event) ? tools[event.key.length === 1 ? event.key.toLowerCase() : event.key] : undefined;
}
