// The shelf: finished runs that this browser keeps, newest first, under one key of its local storage.
// What is read from there may be anybody's, and there may be no storage at all.

const SHELF = 'pcd.runs.1';
const MOST_KEPT = 20;

function createShelf() {
  let unstored; // what the browser refused to store: kept until the page is closed

  function read() {
    try {
      return contentOf(unstored ?? localStorage.getItem(SHELF));
    } catch {
      return contentOf(null); // a browser that lets this page store nothing
    }
  }

  // As many of the newest as there is room for; says how many, 0 where none of them can be stored.
  function write(keepsOwn, runs) {
    for (let count = runs.length; count >= 0; count -= 1) {
      const isLess = count === 0 && runs.length > 0;
      if (!isLess && store(JSON.stringify({ keepsOwn, runs: runs.slice(0, count) }))) return count;
    }
    erase();
    unstored = JSON.stringify({ keepsOwn, runs });
    return 0;
  }

  function store(text) {
    try {
      localStorage.setItem(SHELF, text);
    } catch {
      return false; // full, or closed to this page
    }
    unstored = undefined;
    return true;
  }

  // What must not be kept goes, also where nothing new can be stored.
  function erase() {
    try {
      localStorage.removeItem(SHELF);
    } catch {
      // Closed to this page: nothing was ever stored.
    }
  }

  return { read, write };
}

// { keepsOwn, runs: [{ id, scenario, log }], lost }: what is sound of a stored text, and how much is not.
// A run without a scenario is of a person's own text or schema.
function contentOf(text) {
  if (text === null) return { keepsOwn: false, runs: [], lost: 0 };
  const found = parsedLine(text);
  if (!isMapping(found) || !Array.isArray(found.runs)) return { keepsOwn: false, runs: [], lost: 1 };
  const keepsOwn = found.keepsOwn === true;
  const sound = found.runs.filter((run) => isMapping(run) && fits(run, { id: isText, scenario: isText, log: isText }));
  const allowed = sound.filter(({ scenario }) => keepsOwn || scenario);
  const runs = allowed.filter(({ id }, i) => allowed.findIndex((other) => other.id === id) === i).slice(0, MOST_KEPT);
  return { keepsOwn, runs: runs.map(({ id, scenario, log }) => ({ id, scenario, log })), lost: found.runs.length - runs.length };
}
