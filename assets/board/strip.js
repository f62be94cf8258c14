// The two clocks and the speed-up once more, in a thin strip that stays in sight while what
// is below them scrolls. For the eye only: a screen reader has the lanes.

function createStrip(parts) {
  const [pcd, factor, ar] = ['strip.pcd', 'strip.factor', 'strip.ar'].map((name) => parts[name].lastElementChild);
  // What is below the window counts as in sight: only past its upper edge is a clock gone.
  new IntersectionObserver((told) => {
    parts.strip.classList.toggle('needed', !told.at(-1).isIntersecting);
  }, { rootMargin: '0px 0px 1000000px 0px' }).observe(parts['pcd.clock']);

  return function draw() {
    setText(pcd, timeOn(parts['pcd.clock']));
    setText(factor, parts.factor.textContent);
    setText(ar, timeOn(parts['ar.clock']));
  };
}

function timeOn(clock) {
  return [...clock.children].map((node) => node.textContent.trim()).join(' ');
}
