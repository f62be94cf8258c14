// Where a lane's time goes: a bar cut at its phases, and the same in words. A number
// links the two, so that no colour has to be told from another. Shares, and with them
// the bar, come when the lane is over: before, there is no whole.

const NUMBERED = 0.07; // of the bar: a narrower segment has no room for its number

function createPhases(bar, legend) {
  // A lane as the fold has it, and its run. What a stopped lane has not told stays empty in the bar.
  return function show({ phases, ms, running }, run) {
    const told = [...phases];
    const whole = Math.max(ms ?? 0, told.reduce((sum, [, took]) => sum + took, 0), 1e-9);
    fit(bar, running ? 0 : told.length, 'i');
    fit(legend, told.length, 'li', 4);
    told.forEach(([name, took], i) => {
      const words = [name, duration(took).join(' '), running ? MISSING : percent(took / whole)];
      fillRow(legend.children[i], String(i + 1), words, phaseWords(run, name));
      if (!running) fillSegment(bar.children[i], String(i + 1), words, took / whole);
    });
  };
}

function fillRow(row, number, words, explained) {
  [number, ...words].forEach((text, i) => setText(row.children[i], text));
  setTitle(row, [words.join(', '), explained].filter(Boolean).join('\n'));
}

function fillSegment(segment, number, words, share) {
  segment.style.width = `${100 * share}%`;
  setText(segment, share < NUMBERED ? '' : number);
  setTitle(segment, words.join(', '));
}

// As many children as there are phases, each with as many parts as its words have.
function fit(parent, count, tag, parts = 0) {
  while (parent.children.length > count) parent.lastElementChild.remove();
  while (parent.children.length < count) {
    const node = parent.appendChild(document.createElement(tag));
    for (let i = 0; i < parts; i += 1) node.append(document.createElement('span'));
  }
}
