// Two runs side by side: the conditions in which they differ, what each measured, and every field.
// A ratio holds inside one run; none is made across two.

function createComparison(parts) {
  const { comparison: box, 'comparison.only': only } = parts;
  let pair;

  function draw() {
    const [one, other] = pair.map(({ title, events }) => ({ title, events, state: finalOf(events) }));
    setText(parts['comparison.names'], `A: ${one.title} · B: ${other.title}`);
    const conditions = conditionRows(one, other);
    fillTable(parts['comparison.conditions'], ['Differs in', 'A', 'B'], conditions);
    fillTable(parts['comparison.clocks'], [timesOf(one.state.run, other.state.run), 'A', 'B'], clockRows(one.state, other.state));
    setText(parts['comparison.caution'], caution(one.state.run, other.state.run));
    const rows = fieldRows(one.state, other.state);
    const of = (verdict) => rows.filter((row) => row.verdict === verdict);
    const [differ, same, inA, inB] = VERDICTS.map(of);
    const shared = differ.length + same.length;
    setText(parts['comparison.count'], [
      `${differ.length} of the ${counted(shared, 'field')} in both ${differ.length === 1 ? 'differs' : 'differ'}`,
      inA.length ? `${inA.length} only in A` : '', inB.length ? `${inB.length} only in B` : '',
    ].filter(Boolean).join(', '));
    const cells = [...differ, ...inA, ...inB, ...(only.checked ? [] : same)].map(({ name, values, verdict }) => [name, ...values, verdict]);
    fillTable(parts['comparison.fields'], ['Field', 'PCD, A', 'PCD, B', 'Baseline, A', 'Baseline, B', 'Verdict'], cells);
  }

  only.addEventListener('change', draw);
  return {
    // Two of { id, title, events }, the older one first; undefined for none.
    show(two) {
      const key = (runs) => runs?.map(({ id }) => id).join('\n');
      box.hidden = !two;
      if (!two || key(two) === key(pair)) return;
      pair = two;
      draw();
    },
  };
}

function conditionRows(one, other) {
  const [was, now] = [one.state.run, other.state.run];
  const texts = was.context === now.context ? [] : [['text', brief(was.context), brief(now.context)]];
  const isSameSchema = fieldsOf(was) === fieldsOf(now);
  const fields = isSameSchema ? [] : [['fields', counted(was.names.length, 'field'), counted(now.names.length, 'field')]];
  const told = differing(was, now).filter(([label]) => isSameSchema || label !== WORDING)
    .map(([label, a, b]) => [label, ...(label === WORDING ? ['one', 'another'] : [a, b])]);
  return [['date', was.date, now.date], ...texts, ...fields, ...told];
}

function brief(text) {
  return text.length > MOST_QUOTED ? `${text.slice(0, MOST_QUOTED)}…` : text;
}

// What the times of both are; where the clocks differ, each names its own.
function timesOf(was, now) {
  const [one, other] = [was, now].map(clockOf);
  return one === other ? `${one[0].toUpperCase()}${one.slice(1)}` : `A: ${one}, B: ${other}`;
}

function clockRows(one, other) {
  const both = (label, of) => [label, of(one), of(other)];
  return [
    ...Object.entries(LANE_NAMES).map(([name, label]) => both(label, ({ lanes }) => duration(lanes[name].ms).join(' '))),
    both('Baseline ÷ PCD, inside the run', ({ end }) => (end.speed_up === null ? MISSING : factor(end.speed_up))),
    both('asked of the model, PCD', ({ run, lanes }) => countsOf(run, lanes.pcd)),
    both('asked of the model, baseline', ({ run, lanes }) => countsOf(run, lanes.ar)),
    ...(queueOf(one.lanes) || queueOf(other.lanes) ? [both("in the server's queue", ({ lanes }) => queueOf(lanes) || MISSING)] : []),
    both('marks', ({ end }) => marksOf(end).join(' · ') || MISSING),
  ];
}

function caution(was, now) {
  const others = ['machine', 'device', 'model', 'dtype'].filter((key) => (was[key] ?? '') !== (now[key] ?? ''));
  if (clockOf(was) !== clockOf(now)) others.push('the clocks');
  const why = others.length ? ` Here ${others.join(' and ')} differ, so the times of A and B do not belong together.` : '';
  return `No speed-up is given across two runs: a ratio holds inside one run, where both lanes had the same conditions.${why}`;
}

// Fields of either run: { name, values, verdict }, the values as PCD in A and B, baseline in A and B.
function fieldRows(one, other) {
  const names = [...new Set([...one.run.names, ...other.run.names])];
  return names.map((name) => {
    const rows = [one, other].map((state) => state.rows.get(name));
    const decided = rows.map((row) => (row ? decidedText(row) : ABSENT));
    const written = rows.map((row) => (row ? row.text || 'omitted' : ABSENT));
    return { name, values: [...decided, ...written], verdict: verdictOf(rows) };
  });
}

function decidedText({ decided }) {
  return decided ? `${valueText(decided.value)} ${share(decided)}` : MISSING;
}

function verdictOf([one, other]) {
  if (!one || !other) return one ? '− only in A' : '+ only in B';
  return isOther(one.decided, other.decided) || one.text !== other.text ? '≠ differs' : '= same';
}

const VERDICTS = ['≠ differs', '= same', '− only in A', '+ only in B'];
const ABSENT = 'not in it';

// A table of texts; the roles are told because a narrow screen lays the cells out otherwise.
function fillTable(table, heading, rows) {
  const cells = (words, role) => words.map((text) => {
    const cell = document.createElement('span');
    cell.setAttribute('role', role);
    setCut(cell, text || (role === 'cell' ? MISSING : ''));
    return cell;
  });
  const line = (children) => {
    const row = document.createElement('div');
    row.setAttribute('role', 'row');
    row.append(...children);
    return row;
  };
  table.replaceChildren(line(cells(heading, 'columnheader')), ...rows.map(([name, ...values]) => (
    line([...cells([name], 'rowheader'), ...values.flatMap((text, i) => {
      const [cell] = cells([text], 'cell');
      cell.dataset.column = heading[i + 1];
      return [cell];
    })])
  )));
}
