// The two clocks and the speed-up once more, in a thin strip that stays in sight while what
// is below them scrolls. For the eye only: a screen reader has the lanes.

function createStrip(parts) {
  const [pcd, factor, ar] = ['strip.pcd', 'strip.factor', 'strip.ar'].map((name) => parts[name].lastElementChild);
  new IntersectionObserver(([{ isIntersecting, boundingClientRect }]) => {
    parts.strip.classList.toggle('needed', !isIntersecting && boundingClientRect.bottom < 1);
  }).observe(parts['pcd.clock']);

  return function draw() {
    setText(pcd, timeOn(parts['pcd.clock']));
    setText(factor, parts.factor.textContent);
    setText(ar, timeOn(parts['ar.clock']));
  };
}

function timeOn(clock) {
  return [...clock.children].map((node) => node.textContent.trim()).join(' ');
}
