// The presenter's view: the board alone, in letters that can be read from the back of a room. The page
// behind it keeps its place and its state, and cannot be reached by Tab.

function createPresenter(board, button) {
  let before; // what had the focus

  const isOn = () => document.body.dataset.presenting !== undefined;

  function set(on) {
    const focused = document.activeElement;
    button.ariaPressed = String(on);
    if (on) {
      before = focused;
      document.body.dataset.presenting = '';
      if (focused === button || !board.contains(focused)) board.focus({ preventScroll: true }); // no button takes the space bar
    } else {
      delete document.body.dataset.presenting;
      if ((focused === button || focused === board) && before?.isConnected && before !== document.body) giveFocus(before);
    }
  }

  button.addEventListener('click', () => set(!isOn()));

  return { toggle: () => set(!isOn()), leave: () => set(false), get isOn() { return isOn(); } };
}

// Gradio's buttons fade in, and cannot take the focus in their first frames.
function giveFocus(node, frames = 30) {
  node.focus({ preventScroll: true });
  if (document.activeElement !== node && frames > 0) requestAnimationFrame(() => giveFocus(node, frames - 1));
}
