// Both lanes' clocks. The shown number glides to the last engine time received:
// there within GLIDE_MS, never past it, never backwards.

const GLIDE_MS = 100;

function createClocks(faces) {
  const clocks = new Map();
  for (const lane of Object.keys(faces)) clocks.set(lane, { ...faces[lane], from: 0, to: null, since: 0, shown: 0 });
  const still = matchMedia('(prefers-reduced-motion: reduce)');
  let frame = 0;

  function step(now) {
    for (const clock of clocks.values()) {
      if (clock.to === null) continue;
      const part = still.matches ? 1 : Math.min(1, Math.max(0, now - clock.since) / GLIDE_MS);
      clock.shown = Math.max(clock.shown, clock.from + (clock.to - clock.from) * part);
    }
    print();
    frame = [...clocks.values()].some((clock) => clock.shown < clock.to) ? requestAnimationFrame(step) : 0;
  }

  function print() {
    const longest = Math.max(...[...clocks.values()].map((clock) => clock.shown), 1e-9);
    for (const { number, unit, span, to, shown } of clocks.values()) {
      const [digits, name] = to === null ? [MISSING, ''] : duration(shown);
      setText(number, name ? digits.padStart(6, FIGURE_SPACE) : digits);
      setText(unit, name);
      span.style.transform = `scaleX(${shown / longest})`;
    }
  }

  function set(lane, ms, ended) {
    const clock = clocks.get(lane);
    if (ms === null || ended) Object.assign(clock, { from: ms ?? 0, to: ms, shown: ms ?? 0 });
    else if (ms !== clock.to) Object.assign(clock, { from: clock.shown, to: ms, since: performance.now() });
  }

  // The lanes as the fold has them; a lane that has ended shows its own number at once.
  return function show(lanes) {
    for (const lane of clocks.keys()) set(lane, lanes[lane].ms, lanes[lane].ended);
    print();
    frame ||= requestAnimationFrame(step);
  };
}
