// A line of plain text, with a bar while something takes long.

function createNotice(element) {
  const notice = element.querySelector('.notice');
  const [text, bar] = notice.children;
  return {
    show({ text: words, tone, fraction }) {
      text.textContent = words;
      notice.title = words;
      notice.dataset.tone = tone;
      bar.hidden = tone !== 'busy';
      if (fraction === null) bar.removeAttribute('value');
      else bar.value = fraction;
    },
  };
}
