// Both lanes' clocks: the last time of theirs that was received, never past it, never backwards.
// Drawn when a message comes and not for each frame of the screen: a browser that paints
// beside the engine takes time from it.

function createClocks(faces) {
  const shown = new Map(Object.keys(faces).map((lane) => [lane, null]));

  // The lanes as the fold has them; `length` is that of a replay, which may go back.
  return function show(lanes, length) {
    for (const [lane, before] of shown) {
      const { ms, ended } = lanes[lane];
      shown.set(lane, length || ms === null || ended ? ms : Math.max(before ?? 0, ms));
    }
    const longest = length ?? Math.max(...shown.values(), 1e-9);
    for (const [lane, ms] of shown) {
      const { number, unit, span } = faces[lane];
      const [digits, name] = ms === null ? [MISSING, ''] : duration(ms);
      setText(number, name ? digits.padStart(6, FIGURE_SPACE) : digits);
      setText(unit, name);
      span.style.transform = `scaleX(${(ms ?? 0) / longest})`;
    }
  };
}
