// A visit: the board shows another run than the page's own, until the page gives a new one.
// What the page gives meanwhile is kept and not drawn.

function createVisit(board, put) {
  let own; // what the page gave last
  let recording; // the last of what it gave that was recorded, and that was run here
  let live;
  let isAway = false;
  let whenOver;

  // `log`: what is drawn before somebody is told that it is over.
  function end(log) {
    const tell = whenOver;
    [isAway, whenOver] = [false, undefined];
    delete board.dataset.away;
    if (log) put(log);
    tell?.();
  }

  function go(log, over) {
    if (isAway) end();
    [isAway, whenOver] = [true, over];
    board.dataset.away = 'true';
    put(log);
  }

  function back() {
    if (isAway) end(own);
  }

  return {
    // Whether a log of the page stays in the background.
    keeps(log) {
      if (isAway && log.run !== own.run) end();
      own = log;
      if (log.recorded) recording = log;
      else if (/^\{"kind": ?"run"/m.test(log.log)) live = log;
      return isAway;
    },

    go,
    back,

    // Recorded and live, by turns: where there are both, of the same fields.
    swap() {
      const other = own?.recorded ? live : recording;
      if (isAway) back();
      else if (other && namesIn(other) === namesIn(own)) go(other);
    },

    // Whether the page's own run goes on.
    get isBusy() { return Boolean(own) && stageOf(own) === 'going'; },
  };
}

function namesIn({ log }) {
  return JSON.stringify(JSON.parse(log.split('\n', 1)[0] || '{}').names);
}
