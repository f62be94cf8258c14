// What is read of the log that is shown: its events, and the state that they fold to.

function createReading() {
  let run; // its id
  let read = 0; // of the log, up to the last whole line

  const reading = {
    log: '',
    recorded: false,
    lost: '', // in words, why nothing more comes of it
    events: [], // no live ones
    state: blankState(),

    isOther: ({ run: id, log }) => id !== run || log.length < read,

    begin(id) {
      [run, read] = [id, 0];
      Object.assign(reading, { events: [], state: blankState() });
    },

    // The log's new events.
    take({ log, recorded, lost = '' }) {
      const end = log.lastIndexOf('\n') + 1;
      const news = eventsOf(log.slice(read, end));
      read = end;
      Object.assign(reading, { log: log.slice(0, end), recorded, lost });
      reading.events.push(...news.filter(({ kind }) => !LIVE.has(kind)));
      return news;
    },

    // What a finished run has told can be played again; one that was stopped or failed has told no whole.
    tape: () => (stageOf(reading) === 'done' ? createTape(reading.events) : undefined),
  };
  return reading;
}
