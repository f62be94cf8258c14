// The player: moves along a tape at a speed that is always shown. Its clock can be another
// than the browser's, so that a test can say how late it is.

const SPEEDS = new Map([['1×', 1], ['½×', 1 / 2], ['1/10×', 1 / 10], ['1/50×', 1 / 50]]);
const EDGE = 0.002; // milliseconds that a slider or a sum of frames may miss a moment by; events tell microseconds

function createPlayer(parts, show) {
  const clock = window.replayClock ?? { now: () => performance.now(), frame: (call) => requestAnimationFrame(call) };
  const calm = matchMedia('(prefers-reduced-motion: reduce)');
  let tape;
  let position = 0;
  let playing = false;
  let speed = '1×';
  let last; // when the position was right
  let target; // where playing pauses by itself
  let isAsked = false; // whether a frame is on its way

  function draw() {
    const at = tape ? position : 0;
    parts.replay.disabled = !tape;
    setText(parts['replay.time'], tape ? `${duration(at).join(' ')} of ${duration(tape.length).join(' ')}` : MISSING);
    parts['replay.scrub'].max = tape?.length ?? 1;
    parts['replay.scrub'].value = at;
    parts['replay.scrub'].ariaValueText = parts['replay.time'].textContent;
    setText(parts['replay.play'].firstElementChild, playing ? '❚❚' : '▶');
    setText(parts['replay.play'].lastElementChild, playing ? 'Pause' : 'Play');
    parts['replay.head'].style.transform = `translateX(${tape ? (100 * at) / tape.length : 0}%)`;
    for (const button of parts['replay.speeds'].children) {
      button.ariaPressed = String(button.textContent === speed);
    }
  }

  function seek(ms) {
    if (!tape) return;
    position = Math.min(Math.max(0, ms), tape.length);
    if (position >= tape.length - EDGE) [position, playing] = [tape.length, false];
    draw();
    show(tape, position);
  }

  function advance() {
    if (!playing) return;
    const now = clock.now();
    const moved = (now - last) * SPEEDS.get(speed);
    last = now;
    if (position + moved < (target ?? Infinity)) seek(position + moved);
    else stopAt(target);
  }

  function stopAt(ms) {
    pause();
    seek(ms);
  }

  // One frame is asked for at a time, however often somebody plays, pauses or changes the speed.
  function step() {
    if (isAsked || !playing) return;
    isAsked = true;
    clock.frame(() => {
      isAsked = false;
      advance();
      step();
    });
  }

  function play() {
    if (!tape) return;
    if (calm.matches) {
      stopAt(target ?? tape.length);
      return;
    }
    if (position >= tape.length) position = 0;
    [playing, last] = [true, clock.now()];
    seek(position);
    step();
  }

  function pause() {
    [playing, target] = [false, undefined];
    draw();
  }

  const deeds = {
    play: () => (playing ? pause() : play()),
    restart: () => stopAt(0),
    back: () => stopAt(tape.before(position - EDGE)),
    forward: () => stopAt(tape.after(position + EDGE)),
    full: () => stopAt(tape.length),
  };

  function setSpeed(name) {
    advance();
    speed = name;
    draw();
  }

  for (const name of SPEEDS.keys()) {
    const button = parts['replay.speeds'].appendChild(document.createElement('button'));
    button.textContent = name;
    button.addEventListener('click', () => setSpeed(name));
  }
  for (const [name, deed] of Object.entries(deeds)) parts[`replay.${name}`].addEventListener('click', () => tape && deed());
  parts['replay.scrub'].addEventListener('input', ({ target: { value } }) => {
    stopAt(Number(value));
  });
  draw();

  return {
    // A finished run is put in at its end: its result comes first.
    load(next) {
      tape = next;
      drawLanes(parts, next);
      seek(next.length);
    },
    eject() {
      [tape, playing, position, target] = [undefined, false, 0, undefined];
      drawLanes(parts, { length: 1, intervals: { pcd: [], ar: [] } });
      draw();
    },
    press: (name) => tape && deeds[name](),
    stopAt,
    setSpeed,
    // Plays on from here, and pauses at a moment.
    playTo(ms) {
      pause();
      target = ms;
      play();
    },
    get tape() { return tape; },
    get position() { return position; },
    get isPlaying() { return playing; },
    get speed() { return speed; },
  };
}

// Both lanes on the one axis: a bar each, cut at its phases.
function drawLanes(parts, { length, intervals }) {
  for (const [lane, own] of Object.entries(intervals)) {
    const bar = parts[`replay.${lane}`];
    fit(bar, own.length, 'i');
    own.forEach(({ name, from, to }, i) => {
      const segment = bar.children[i];
      segment.style.left = `${(100 * from) / length}%`;
      segment.style.width = `${(100 * (to - from)) / length}%`;
      setTitle(segment, `${LANE_NAMES[lane]}: ${name}, ${duration(to - from).join(' ')}`);
    });
  }
}
