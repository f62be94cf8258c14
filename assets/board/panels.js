// The panels that the tools of the board open: one at a time, below the button that opened it.

// Each button with data-panel opens the part of that name; `onOpen` fills it, from what is shown then.
function createPanels(board, parts, onOpen) {
  const buttons = [...board.querySelectorAll('[data-panel]')];
  let open; // the name of the panel that is

  function draw() {
    for (const button of buttons) {
      const isOpen = button.dataset.panel === open;
      button.ariaExpanded = String(isOpen);
      parts[button.dataset.panel].hidden = !isOpen;
    }
    if (open) onOpen(open);
  }

  function set(name) {
    open = name;
    draw();
  }

  for (const button of buttons) {
    const name = button.dataset.panel;
    button.addEventListener('click', () => set(open === name ? undefined : name));
  }
  board.addEventListener('keydown', (event) => {
    const panel = event.key === 'Escape' && event.target.closest('.panel');
    if (!panel) return;
    set(undefined);
    buttons.find(({ dataset }) => parts[dataset.panel] === panel).focus();
    event.stopPropagation();
  });
  draw();

  return { draw };
}
