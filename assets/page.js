// The keyboard: Ctrl or Cmd with Enter runs, Escape stops, from anywhere on the race's tab.
// Before the editor sees the key, or it would take Enter for a new line.

addEventListener('keydown', (event) => {
  const run = document.getElementById('run');
  if (!run?.offsetParent) return; // another tab is open
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    event.stopPropagation();
    enterWhatIsTyped(event.target, () => run.click());
  } else if (event.key === 'Escape' && event.target.ariaExpanded !== 'true' && !event.target.closest?.('.panel')) { // closes it
    pressStop(window.runPressed);
  }
}, { capture: true });

// A run takes what is shown: a choice in the box of the schema's table counts, and is in the text when the inputs
// tell of it.
function enterWhatIsTyped(target, then) {
  if (!target.matches?.('.sheet input')) return then();
  const waits = setTimeout(go, MOST_TYPED_MS); // where it was in the text already
  function go() {
    clearTimeout(waits);
    removeEventListener('inputs', go);
    then();
  }
  addEventListener('inputs', go);
  target.dispatchEvent(new Event('change'));
}

const MOST_TYPED_MS = 500;

// The server's first answer enables Stop, and a press in that moment may be lost: an Escape
// presses for four seconds, as long as it is the same run and there is something to stop.
function pressStop(run, tries = 20) {
  if (run !== window.runPressed) return; // another run by now
  const stop = document.getElementById('stop');
  if (!stop.disabled) stop.click();
  if (tries > 0) setTimeout(pressStop, 200, run, tries - 1);
}

// A link to inputs that is opened in a tab where the page stands already changes only the hash.
addEventListener('hashchange', () => {
  if (!/^#(preset|own)=/.test(location.hash)) return;
  window.kept.letGo(); // the link's inputs are wanted
  location.reload();
});

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

// Gradio may run what is in the head when the page already stands.
function whenPageStands(call) {
  if (document.body) call();
  else addEventListener('DOMContentLoaded', call);
}
