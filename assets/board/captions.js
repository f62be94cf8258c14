// What happens at a moment of a replay, in words that the events give.

function captionOf(tape, state, ms) {
  return [pcdCaption(tape, state, ms), writingCaption(tape, state, ms)].filter(Boolean).join(' ');
}

function pcdCaption(tape, { run, lanes: { pcd }, rows }, ms) {
  if (pcd.ended) return `PCD has decided ${counted(rows.size, 'field')} in ${countsOf(run, pcd)}.`;
  const doing = tape.doing('pcd', ms);
  if (!doing) return '';
  const { name, from, to, tokens } = doing;
  const fields = `, for all ${counted(rows.size, 'field')}${isServed(run) ? '' : ' at once'}`;
  const forks = `, read at the forks: ${counted(tape.forks, 'fork')} on the paths of the ${counted(rows.size, 'value')}`;
  const what = `${phaseWords(run, name) ?? name}${TREES.has(name) ? fields : ''}${name === 'scoring' ? forks : ''}`;
  const size = tokens === undefined ? '' : `, ${counted(tokens, 'token')}`;
  return `PCD: ${what}${size}, ${duration(ms - from).join(' ')} of ${duration(to - from).join(' ')}.`;
}

function writingCaption(tape, { run, lanes: { ar } }, ms) {
  if (ar.ended) return `The baseline has written ${counted(ar.tokens, 'token')} in ${countsOf(run, ar)}.`;
  const doing = tape.doing('ar', ms);
  if (!doing) return '';
  if (doing.name !== 'writing') {
    const size = doing.tokens === undefined ? '' : ` of ${counted(doing.tokens, 'token')}`;
    return `${isServed(run) ? 'The server reads the baseline’s prompt' : 'The baseline reads its prompt'}${size}.`;
  }
  const last = ar.characters.slice(-MOST_WRITTEN).join('').split('\n').at(-1).trim();
  return `The baseline has written ${counted(ar.tokens ?? 0, 'token')}${last ? `, now: ${last}` : ''}.`;
}

// What PCD does to all rows that are not decided yet, as the style sheet knows it.
function deedOf(tape, ms) {
  const name = tape.doing('pcd', ms)?.name;
  return TREES.has(name) ? 'reading' : name === 'scoring' || name === 'assembly' ? name : '';
}

const TREES = new Set(['tree', 'context + tree']);
const MOST_WRITTEN = 48; // characters
