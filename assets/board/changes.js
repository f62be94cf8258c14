// Was -> now: a run beside the finished one that was on the board before it, field by field. What it
// is compared with is kept here, and not in the fold, which depends on nothing but a run's events.

const HINT = 'Change one fact in the text and run again: the fields that change are marked.';

function createChanges(parts) {
  let last; // the finished run that was shown last, at its end: what the page's next one is compared with
  let lastBefore; // what that was compared with itself
  let given = {}; // the run that the page gave last: its id, and the finished run before it
  let visited; // the finished run of a visit that was shown last
  let from; // where the run that is shown is from
  let before; // what the run that is shown is compared with
  let judged; // the `run` event that was looked at, and what was found

  // `whence`: own, where the page gave the run. One of a visit was not made after the one that is shown, and is
  // compared with none; only beside is compared with the one before it in the same visit.
  function begin(id, whence) {
    if (whence === 'own' && id !== given.id) given = { id, before: last };
    before = { own: given.before, beside: visited }[whence];
    from = whence;
    judged = undefined;
  }

  function judge(run) {
    if (judged?.run !== run) judged = { run, ...comparability(before?.run, run) };
    return judged;
  }

  function draw(state) {
    const line = changesLine(before, state, judge(state.run));
    setCut(parts.changes, line);
    parts.changes.toggleAttribute('data-hint', line === HINT);
  }

  function mark(node, row, state) {
    const then = judge(state.run).isComparable ? before.rows.get(row.name) : undefined;
    markDecided(node.querySelector('.pcd'), then?.decided, row.decided);
    if (then && hasChanged(then, row)) {
      const cell = node.querySelector('.ar');
      setTitle(cell, [cell.title, wasNow(writtenText(then), writtenText(row))].join('\n'));
    }
  }

  // A finished run, before it is drawn. One that is shown a second time is not compared with itself.
  function end(events) {
    const now = finalOf(events);
    if (from === 'own' || from === 'earlier') last = now;
    if (from !== 'own') visited = now;
    else if (before && isSameRun(before, now)) before = given.before = lastBefore;
    else lastBefore = before;
  }

  // One that came to its end and was not shown.
  function note(events) {
    last = finalOf(events);
  }

  return { begin, end, note, draw, mark };
}

function isSameRun(one, other) {
  const key = ({ run, lanes: { pcd, ar } }) => [run?.date, pcd.ms, ar.ms].join();
  return key(one) === key(other);
}

// Whether a run's values may stand beside those of the run before; else why not, where that is no matter of course.
function comparability(was, now) {
  if (!was || !now || fieldsOf(was) !== fieldsOf(now)) return { isComparable: false };
  const others = differing(was, now);
  const obstacles = others.filter(([label]) => MUST_BE_SAME.has(label));
  return { isComparable: !obstacles.length, obstacles, others };
}

const MUST_BE_SAME = new Set(['model', 'dtype', 'JSON style']);

function changesLine(before, { rows, run, end }, { isComparable, obstacles, others }) {
  if (obstacles?.length) return `⊘ Not compared with the run before: ${differencesInWords(obstacles)}.`;
  if (!isComparable) return HINT;
  const now = [...rows.values()].filter(({ decided }) => decided);
  if (!now.length) return 'No field is decided yet that could be compared with the run before.';
  const changed = now.filter(({ name, decided }) => isOther(before.rows.get(name)?.decided, decided)).length;
  const written = end ? [...rows.values()].filter((row) => hasChanged(before.rows.get(row.name), row)).length : 0;
  return [
    changedWords(changed, now.length, now.length < rows.size),
    written ? `${written} of the baseline's values changed too` : '',
    before.run.context === run.context ? 'the text is the same' : 'the text differs',
    others.length ? `also different: ${differencesInWords(others)}` : '',
  ].filter(Boolean).join('; ').concat('.');
}

// `isPart`: of the fields that are decided so far.
function changedWords(changed, count, isPart) {
  if (changed) return `↻ ${changed} of ${isPart ? `the ${count} fields decided so far` : counted(count, 'field')} changed since the run before`;
  return isPart ? `= None of the ${count} decided so far changed` : '= No field changed since the run before';
}

function differencesInWords(differences) {
  return differences.map(([label, was, now, isLong]) => (isLong ? label : `${label} ${was} → ${now}`)).join(', ');
}

function isOther(was, now) {
  return Boolean(was && now) && valueText(was.value) !== valueText(now.value);
}

// What the baseline has written for a key, once it is whole.
function hasChanged(then, row) {
  return Boolean(then) && !row.partial && row.flags.length > 0 && then.text !== row.text;
}

function writtenText({ text }) {
  return text || 'nothing';
}

function wasNow(was, now) {
  return `was ${was} → now ${now}`;
}

// The mark under a value, and how its share moved beside it.
function markDecided(cell, was, now) {
  const isMarked = isOther(was, now);
  const words = isMarked ? wasNow(valueText(was.value), valueText(now.value)) : '';
  setMarks(cell.querySelector('.was'), isMarked ? [['was', '↻', words]] : []);
  if (!was || !now) return;
  const moved = `share ${share(was)} → ${share(now)}`;
  setTitle(cell, [isMarked ? words : cell.title, `${moved}${isMarked ? '' : ', since the run before'}`].join('\n'));
}
