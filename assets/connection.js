// The connection: whether the server still answers, asked only while somebody waits for it.
//
// A run says something every second (core/ui/runs.py), so its silence is a reason to ask. Gradio
// sees a stream that breaks, and loads the page anew when the server answers again. It does not
// see a stream that has fallen silent, nor a server that went away while nobody asked it.

const CONNECTION_TIMES = {
  silence: 3000, // without a word, after which the server is asked
  answer: 3000, // that it has for an answer
  dead: 12_000, // without a word of a run though the server answers
  look: 500,
  retry: 2000,
  thanks: 5000, // for which it is said that the connection is back
};

const CONNECTION_WORDS = {
  lost: 'Connection lost: the server does not answer. What has arrived stays, finished runs can be replayed.',
  silent: 'Connection lost: nothing more of this run arrives. What has arrived stays.',
  back: 'Connected again.',
};

// `waitedFor()`: "run", "answer" or "". `ask()`: whether the server answers. `tell(state, words)`: each change.
function createConnection({ waitedFor, ask, tell, times }) {
  let state = 'fine'; // fine, lost, silent, back
  let heard = performance.now(); // when the server last said anything
  let deadAt = heard + times.dead; // from when on a run without news is none
  let isWatching = false;

  function set(next) {
    if (next === state) return;
    state = next;
    tell(state, CONNECTION_WORDS[state] ?? '');
    if (state === 'back') setTimeout(() => state === 'back' && set('fine'), times.thanks);
  }

  async function look() {
    if (!(await ask())) {
      set('lost');
      return;
    }
    heard = performance.now();
    if (state === 'lost') {
      deadAt = heard + times.silence; // a run that goes on says so by then
      set('back');
    } else if (waitedFor() === 'run' && heard > deadAt) {
      set('silent');
    }
  }

  // One question at a time, and none while nobody waits.
  async function watch() {
    if (isWatching) return;
    isWatching = true;
    while (state === 'lost' || waitedFor()) {
      const patience = state === 'lost' ? times.retry : times.silence;
      if (performance.now() - heard >= patience) await look();
      await new Promise((resolve) => setTimeout(resolve, state === 'lost' ? times.retry : times.look));
    }
    isWatching = false;
  }

  return {
    get state() { return state; },
    watch,
    news() {
      heard = performance.now();
      deadAt = heard + times.dead;
      if (state === 'lost' || state === 'silent') set('back');
      watch();
    },
    // Somebody uses the page: worth a question, where nothing was heard for some time.
    async used() {
      if (state !== 'fine' || performance.now() - heard < times.silence) return;
      await look();
      watch();
    },
  };
}

async function askServer(patience) {
  const { root, api_prefix: prefix } = window.gradio_config;
  try {
    const answer = await fetch(`${root}${prefix}/app_id`, { cache: 'no-store', signal: AbortSignal.timeout(patience) });
    return answer.ok;
  } catch {
    return false; // refused, cut off, or too late
  }
}

// The bar at the lower edge, over the page, so that nothing moves when it comes.
function createConnectionBar() {
  const bar = document.createElement('section');
  const [words, button] = [document.createElement('p'), document.createElement('button')];
  Object.assign(bar, { id: 'connection', hidden: true, ariaLabel: 'Connection' });
  Object.assign(button, { type: 'button', hidden: true });
  bar.append(words, button);
  document.body.append(bar);
  return {
    show(state, text, name = '', press = undefined) {
      bar.dataset.state = state;
      bar.hidden = !text;
      words.textContent = text;
      button.hidden = !name;
      button.textContent = name;
      button.onclick = press ?? null;
    },
    hide: () => { bar.hidden = true; },
  };
}

whenPageStands(() => {
  const times = { ...CONNECTION_TIMES, ...window.connectionTimes }; // a test has less time
  const bar = createConnectionBar();
  let isPressed = false; // Run, and nothing has come since
  let isAsking = false; // a link, which the server makes
  let forgets; // the timer that gives a press up
  const connection = createConnection({
    times,
    ask: () => askServer(times.answer),
    waitedFor() {
      if (document.querySelector('#stop:enabled')) return 'run';
      return isPressed || isAsking || document.querySelector('#benchmark-cancel:enabled') ? 'answer' : '';
    },
    tell(state, words) {
      if (state === 'lost') isAsking = false; // what was asked for is lost too
      const anew = state === 'silent' ? ['Load the page anew, keeping what was typed', () => location.reload()] : [];
      bar.show(state, words, ...anew);
      dispatchEvent(new CustomEvent('connection', { detail: { state, words } }));
    },
  });
  addEventListener('board:news', () => {
    isPressed = false;
    connection.news();
  });
  addEventListener('click', ({ target }) => {
    if (target.closest?.('#run:enabled')) {
      isPressed = true;
      if (connection.state === 'fine') bar.hide();
      clearTimeout(forgets);
      forgets = setTimeout(() => { isPressed = false; }, times.dead);
    }
    if (target.closest?.('[data-part="take.share"]')) isAsking = true;
    connection.used();
    connection.watch();
  }, { capture: true });
  addEventListener('sharelink', () => { isAsking = false; });
  addEventListener('input', () => connection.used(), { capture: true });
  addEventListener('offline', () => connection.used());
  window.kept.begin(bar, () => connection.state !== 'fine' || isPressed || document.querySelector('#stop:enabled'));
});
