// What was typed and what the board shows, kept in the tab over the reload that gradio does after
// a lost connection. In memory until the page goes, and gone from storage as soon as it is back.

window.kept = (() => {
  const KEY = 'pcd.kept';
  const LOST = 'The run ended here when the page was loaded anew. What had arrived stays; press Run for a new one.';
  const BACK = 'The page was loaded anew while a run went on or the connection was away. What you had typed is back.';
  const isWaiting = stored() !== null; // when this page began
  let noted; // the inputs' values
  let bar;
  let isLetGo = false;

  function stored() {
    try {
      return sessionStorage.getItem(KEY);
    } catch {
      return null; // not allowed
    }
  }

  function keep() {
    const shown = {};
    dispatchEvent(new CustomEvent('board:keep', { detail: shown }));
    const { run, log, recorded, stage } = shown;
    const inputs = noted ? typedOver(noted) : null;
    for (const board of [{ run, log, recorded, stage }, null]) { // without the log where that is too much for the store
      try {
        sessionStorage.setItem(KEY, JSON.stringify({ inputs, board }));
        return;
      } catch { /* full, or not allowed */ }
    }
  }

  function taken() {
    try {
      const text = stored();
      sessionStorage.removeItem(KEY);
      return JSON.parse(text);
    } catch {
      return null; // not allowed, or not ours
    }
  }

  return {
    begin(itsBar, isAtRisk) {
      bar = itsBar;
      addEventListener('pagehide', () => !isLetGo && isAtRisk() && keep());
    },
    // Why the inputs are about to be filled, empty where they are not.
    get waiting() { return isWaiting ? 'kept' : ''; },
    // The inputs as they are now; tells of it where one of them is another.
    note(values) {
      const isOther = JSON.stringify(values) !== JSON.stringify(noted);
      noted = values;
      if (isOther) dispatchEvent(new CustomEvent('inputs'));
      return [];
    },
    // The next page is to begin anew.
    letGo() { isLetGo = true; },
    // The values of the inputs and of the board as they are to be: those that were kept, or those given.
    restored(given) {
      const { inputs, board } = taken() ?? {};
      const [fresh, shown] = [given.slice(0, -1), given.at(-1)];
      const fits = Array.isArray(inputs) && inputs.length === fresh.length
        && inputs.every((value, i) => value === null || typeof value === typeof fresh[i]);
      if (fits || isLog(board)) bar.show('back', BACK, 'Close', bar.hide);
      return [...(fits ? inputs : fresh), isLog(board) ? withEnd(board) : shown];
    },
  };

  // A run that was going on is none any more.
  function withEnd({ stage, ...board }) {
    return ['going', 'lost'].includes(stage) ? { ...board, lost: LOST } : board;
  }

  function isLog(board) {
    try {
      const { run, log, recorded } = board;
      if (typeof run !== 'string' || typeof log !== 'string' || typeof recorded !== 'boolean') return false;
      return log.trim() !== '' && log.trimEnd().split('\n').every((line) => JSON.parse(line).kind);
    } catch {
      return false;
    }
  }
})();
