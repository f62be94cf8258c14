// The keyboard: Ctrl or Cmd with Enter runs, Escape stops, from anywhere on the race's tab.
// Before the editor sees the key, or it would take Enter for a new line.

addEventListener('keydown', (event) => {
  const run = document.getElementById('run');
  if (!run?.offsetParent) return; // another tab is open
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    event.stopPropagation();
    run.click();
  } else if (event.key === 'Escape' && event.target.ariaExpanded !== 'true') {
    pressStop(window.runPressed);
  }
}, { capture: true });

// The server's first answer enables Stop, and a press in that moment may be lost: an Escape
// presses for four seconds, as long as it is the same run and there is something to stop.
function pressStop(run, tries = 20) {
  if (run !== window.runPressed) return; // another run by now
  const stop = document.getElementById('stop');
  if (!stop.disabled) stop.click();
  if (tries > 0) setTimeout(pressStop, 200, run, tries - 1);
}

// The third clock, the browser's own: from the press of Run to the end on the screen.
// Not on the board, which shows what a run's events say and nothing else.

addEventListener('click', ({ target }) => {
  if (!target.closest?.('#run')) return;
  const pressed = (window.runPressed = performance.now());
  const board = document.querySelector('.board');
  const line = document.getElementById('click-to-screen');
  line.textContent = '';
  const watching = new MutationObserver(() => {
    if (!['done', 'stopped', 'failed'].includes(board.dataset.phase)) return;
    watching.disconnect();
    if (board.dataset.away) return; // another run is on the screen, and says nothing of this one
    requestAnimationFrame(() => {
      line.textContent = `From click to screen: ${((performance.now() - pressed) / 1000).toFixed(2)} s`;
    });
  });
  watching.observe(board, { attributes: true, attributeFilter: ['data-phase'] });
}, { capture: true });
