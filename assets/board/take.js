// Take a run away: as a report, as its trace, as a table, as a picture, or as a link to its inputs. What is
// taken is the run that is shown; each file has its method in it.

// `shown()`: { events, log, recorded, lost } of now; `askForLink()` asks the page for a link to its inputs, which answers
// with an event.
function createTake(board, parts, { template, askForLink, shown }) {
  const makers = {
    report: ['.html', 'text/html', (run) => reportOf({ ...run, log: savedLines(run.log).join(''), template })],
    trace: ['.trace.json', 'application/json', ({ events, log, recorded }) => traceText(events, log, recorded)],
    csv: ['.csv', 'text/csv', ({ events, recorded }) => csvOf(events, recorded)],
    card: ['.png', 'image/png', ({ events, recorded }) => cardOf(events, recorded, board.closest('.dark') ? 'dark' : 'light')],
  };

  for (const [name, [ending, type, make]] of Object.entries(makers)) {
    parts[`take.${name}`].addEventListener('click', async () => {
      const run = shown();
      const made = await make(run);
      download(fileName(run.events, ending), made instanceof Blob ? made : new Blob([made], { type }));
    });
  }
  parts['take.share'].addEventListener('click', () => askForLink?.());
  parts['take.copy'].addEventListener('click', () => copy(parts['take.link'].value, parts['take.said'], parts['take.link']));
  addEventListener('sharelink', ({ detail }) => giveLink(JSON.parse(detail)));
  addEventListener('inputs', () => giveLink({})); // the link is of other inputs now

  function giveLink({ page, link = '', refused = '' }) {
    parts['take.made'].hidden = !link;
    parts['take.link'].value = link && (page || location.origin + location.pathname) + link;
    setText(parts['take.said'], refused);
  }

  let drawn;
  return function draw() {
    const { events } = shown();
    if (events !== drawn) giveLink({});
    drawn = events;
    const run = events.find(({ kind }) => kind === 'run');
    const end = events.find(({ kind }) => kind === 'end');
    for (const name of Object.keys(makers)) {
      parts[`take.${name}`].disabled = !run || !end || (end.state !== 'done' && name !== 'trace');
    }
    setText(parts['take.note'], obstacle(run, end, stageOf(shown())));
  };
}

// Why there is nothing to take, or only a part of it.
function obstacle(run, end, stage) {
  if (!run && end) return `Nothing was run, so there is nothing to take: ${end.message || end.state}`;
  if (!run) return 'There is no run to take yet: press Run, or choose a scenario that has a recording.';
  if (stage === 'lost') return 'The run broke off: it has no end, and cannot be taken.';
  if (!end) return 'The run is not over: it can be taken when it is.';
  if (end.state === 'done') return 'Each file has the method in it, and opens without a network.';
  return `The run ${endedAs(end, (message) => ` (${message})`)}: it has no result to take, only the trace up to there.`;
}

// One document that core.trace reads: the method in words, and the events.
function traceText(events, log, recorded) {
  const method = JSON.stringify(methodOf(events, recorded), null, 1);
  return `{"method": ${method},\n"events": [\n${savedLines(log).map((line) => line.trimEnd()).join(',\n')}\n]}\n`;
}

function fileName(events, ending) {
  const run = events.find(({ kind }) => kind === 'run');
  return [scenarioOf(run)?.id ?? 'own', run.model, run.date.slice(0, 10)].map(plainName).join('_') + ending;
}

function plainName(text) {
  return text.replace(/[^\w.-]+/g, '-').replace(/\.{2,}/g, '.').replace(/^[.-]+|[.-]+$/g, '').slice(0, 60) || 'run';
}

function download(name, blob) {
  const link = Object.assign(document.createElement('a'), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // a slow disk may still be reading it
}

// To the clipboard, where the browser lets a page have it; else by hand, from the field.
async function copy(text, said, field) {
  try {
    await navigator.clipboard.writeText(text);
    setText(said, 'Copied.');
  } catch {
    setText(said, 'This browser keeps its clipboard to itself: select the text and copy it.');
    field?.select();
  }
}
