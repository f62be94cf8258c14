// A bet: options to pick from, by click or by number, and then which of them are so.

// `isRight(i)` says it of an option; `several`: more than one may be picked.
function createBet(list, texts, isRight, { several = false } = {}) {
  const picked = new Set();
  let isOpen = true; // until it is revealed

  function draw() {
    fit(list, texts.length, 'li');
    texts.forEach((text, i) => {
      const button = list.children[i].firstElementChild ?? list.children[i].appendChild(madeOption(i));
      const outcome = isOpen ? '' : isRight(i) ? 'right' : picked.has(i) ? 'wrong' : 'no';
      setText(button.children[1], text);
      setText(button.children[2], OUTCOME_WORDS.get(outcome));
      button.dataset.outcome = outcome;
      button.ariaPressed = String(picked.has(i));
      button.ariaDisabled = String(!isOpen);
    });
  }

  function pick(i) {
    if (!isOpen || i >= texts.length) return;
    if (picked.has(i)) {
      picked.delete(i);
    } else {
      if (!several) picked.clear();
      picked.add(i);
    }
    draw();
  }

  return {
    draw,
    pick,
    reveal() {
      isOpen = false;
      draw();
    },
    get isOpen() { return isOpen; },
  };
}

const OUTCOME_WORDS = new Map([['', ''], ['right', '✓ right'], ['wrong', '✕ no'], ['no', '']]);

// The number on the key, the text, and room for the outcome.
function madeOption(i) {
  const button = document.createElement('button');
  button.type = 'button';
  button.dataset.option = i;
  for (const tag of ['kbd', 'span', 'b']) button.append(document.createElement(tag));
  setText(button.firstElementChild, String(i + 1));
  return button;
}
