// Where it pays: a bar for each recorded race. Measured points only, each a ratio inside its own run.

const LEVEL = 0.05; // two lanes within this share of each other are called level

// `isKnown(point)`: whether its ratio is shown; `onPick(point)` puts its recording on the board.
function drawScale(list, points, isKnown, onPick) {
  const most = Math.max(1, ...points.map((point) => point.speed_up));
  fit(list, points.length, 'li');
  list.style.setProperty('--one', 1 / most);
  points.forEach((point, i) => {
    const button = list.children[i].firstElementChild ?? list.children[i].appendChild(madeBar());
    const [asked, bar, ratio, word] = button.children;
    setText(asked, `${counted(point.fields, 'field')}, ${counted(point.choices, 'choice')}, ${point.mode}`);
    bar.style.setProperty('--share', isKnown(point) ? point.speed_up / most : 0);
    setText(ratio, isKnown(point) ? factor(point.speed_up) : '?');
    setText(word, isKnown(point) ? [leadOf(point)[1], ...marksOf(point)].join(' ') : '');
    setTitle(button, `${point.title}: show this recording`);
    button.onclick = () => onPick(point);
  });
}

function madeBar() {
  const button = document.createElement('button');
  button.type = 'button';
  for (const tag of ['span', 'i', 'b', 'small']) button.append(document.createElement(tag));
  return button;
}

// Who is ahead: which of three, and in a word.
function leadOf({ pcd_ms: pcd, ar_ms: ar }) {
  if (Math.abs(ar - pcd) <= LEVEL * Math.max(ar, pcd)) return [1, '≈ level'];
  return ar > pcd ? [0, 'PCD ahead'] : [2, '⚠ baseline ahead'];
}
