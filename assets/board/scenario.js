// Which scenario a run was of, told from the run itself: no event names it. The checksums of the
// page's scenarios come from `core/ui/scenarios.py`, which takes them in the same way.

// { id, title }; undefined for a text or a schema of somebody's own, parts of it that were left out included.
function scenarioOf({ context, names, schema, unsupported = [] }) {
  if (unsupported.length) return undefined;
  const fields = names.flatMap((name) => {
    const { type, description = '', choices = [], titles = [], depends_on: above = [] } = schema[name];
    return [name, type, description, ...choices.map(valueText), ...titles, ...above];
  });
  return SCENARIOS.get(crc32(new TextEncoder().encode([context, ...fields].join('\0'))));
}

function scenarioTitle(run) {
  return scenarioOf(run)?.title ?? 'own text and schema';
}

// Of bytes: the checksum of PNG and of zlib.
function crc32(bytes) {
  let crc = ~0;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit += 1) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}
