// A schema file of the person's own, read in the browser.

const MOST_BYTES = 2 ** 20;

// { text } or { words }, why there is none.
async function readFile(file) {
  const name = literal(file.name);
  if (file.size > MOST_BYTES) {
    const size = `${file.size.toLocaleString('en')} bytes; at most ${MOST_BYTES.toLocaleString('en')} are read`;
    return { words: `⚠ ${name} has ${size}; put the part that is meant into a file of its own.` };
  }
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(await file.arrayBuffer());
    return { text: text.replace(/\r\n?/g, '\n') }; // as the editor keeps lines
  } catch {
    return { words: `⚠ ${name} cannot be read as a text in UTF-8; choose a .json or .yaml file.` };
  }
}
