// The model at the top of the page: which one runs, how far one has come that loads, and the choice of another.
// Asks the server now and then, as a switch may be made by anybody, over REST too.

const MODEL_TIMES = { idle: 3000, busy: 200, most: 30_000 };

function createModels(element, server) {
  const times = { ...MODEL_TIMES, ...window.modelTimes }; // a test has less time
  const [line, form, refusal] = element.querySelector('.models').children;
  const notice = createNotice(element);
  const select = form.querySelector('select');
  const button = form.querySelector('button');
  let state = { active: '', busy: false };
  let listed = null; // the model that was active when the list was asked for
  let isChosen = false; // by hand, and not switched to yet

  function draw() {
    select.disabled = state.busy;
    button.disabled = state.busy || !select.value || select.value === state.active;
  }

  function refuse(words) {
    refusal.textContent = words;
    refusal.hidden = !words;
  }

  function list(ids) {
    const wanted = isChosen ? select.value : state.active;
    const known = ids.includes(state.active) ? ids : ['', ...ids];
    select.replaceChildren(...known.map((id) => {
      const option = document.createElement('option');
      [option.value, option.textContent] = [id, id || 'another one'];
      return option;
    }));
    select.value = known.includes(wanted) ? wanted : known[0];
    form.hidden = !ids.some((id) => id !== state.active);
  }

  async function look() {
    const before = state;
    state = JSON.parse(await server.look());
    notice.show(state.note);
    if (state.active !== before.active) isChosen = false;
    if (state.busy) refuse('');
    if (!state.busy && (before.busy || listed !== state.active)) {
      listed = state.active;
      list(JSON.parse(await server.here()));
    }
    draw();
  }

  // Not while the page is out of sight, and rarely where nobody answers.
  async function follow() {
    let pause = times.idle;
    while (element.isConnected) {
      try {
        if (!document.hidden) await look();
        pause = state.busy ? times.busy : times.idle;
      } catch {
        pause = Math.min(2 * pause, times.most);
      }
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }

  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    const wanted = select.value;
    isChosen = false;
    [select.disabled, button.disabled] = [true, true];
    refuse('');
    const answer = server.choose(wanted).then(JSON.parse, () => ({ refused: 'the server does not answer' }));
    for (let isOver = false; !isOver;) {
      await look().catch(() => 0);
      isOver = await Promise.race([answer, new Promise((go) => setTimeout(go, times.busy, null))]);
    }
    await look().catch(() => 0);
    refuse((await answer).refused ?? '');
  });
  select.addEventListener('change', () => {
    isChosen = true;
    refuse('');
    draw();
  });
  follow();
}
