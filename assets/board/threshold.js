// The threshold: which decided fields would go through, and which to a person. The share among the
// allowed choices decides; it marks in the row what makes a share weak.

const NOT_CALIBRATED = 'Decided by the share among the allowed choices, which is not calibrated.';
const LOWER_BOUND = 'A share with ≥ was read best-first and is a lower bound: it may be larger than it says.';

function createThreshold(parts) {
  const limit = parts['threshold.limit'];
  let drawn = blankState();

  function mark(node, { decided }) {
    const cell = node.querySelector('.signs');
    setMarks(cell, signsOf(decided, limit.valueAsNumber));
    setTitle(cell, cell.textContent);
  }

  function draw(state) {
    drawn = state;
    const line = thresholdLine(state, limit.valueAsNumber);
    setCut(parts['threshold.line'], line);
    limit.ariaValueText = line;
    const isBound = [...state.rows.values()].some(({ decided }) => decided && atLeast(decided));
    setCut(parts['threshold.about'], [NOT_CALIBRATED, isBound ? LOWER_BOUND : ''].join(' ').trim());
  }

  limit.addEventListener('input', () => {
    draw(drawn);
    for (const node of parts.rows.querySelectorAll('[data-field]')) {
      const row = drawn.rows.get(node.dataset.field);
      if (row) mark(node, row);
    }
  });

  return { draw, mark };
}

// A fixed value was not decided by anybody.
function goesThrough({ cardinality, probability }, limit) {
  return cardinality === 1 || probability >= limit;
}

function thresholdLine({ rows }, limit) {
  const decided = [...rows.values()].map((row) => row.decided).filter(Boolean);
  const at = limit.toFixed(2);
  if (!decided.length) return `At ${at}: no field is decided yet.`;
  const through = decided.filter((one) => goesThrough(one, limit)).length;
  const of = decided.length < rows.size ? `the ${decided.length} decided so far` : decided.length;
  return `At ${at}, ${through} of ${of} ${through === 1 ? 'goes' : 'go'} through, ${decided.length - through} to a person.`;
}

function signsOf(decided, limit) {
  if (!decided) return [];
  return [
    !goesThrough(decided, limit) && ['person', '☞', 'to a person'],
    isNearTie(decided) && ['tie', '≈', 'near tie'],
    isLowMass(decided) && ['low', '⚠', 'low mass'],
  ].filter(Boolean);
}

// Marks in a cell, each an icon and a word: [name, icon, word].
function setMarks(cell, marks) {
  const words = marks.map(([, icon, word]) => `${icon} ${literal(word)}`).join(' ');
  if (cell.textContent === words) return;
  cell.replaceChildren(...marks.flatMap(([name, icon, word], i) => {
    const node = document.createElement('span');
    node.dataset.mark = name;
    const sign = document.createElement('i');
    sign.textContent = icon;
    sign.ariaHidden = 'true';
    node.append(sign, ` ${literal(word)}`);
    return i ? [' ', node] : [node];
  }));
}
