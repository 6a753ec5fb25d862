// Questions about single blocks: which are allocated at a moment, which one is at a place, what is known of it.

// Blocks allocated after an event, largest first.
function blocksAt(trace, series, event) {
  const found = [];
  forEachAlive(trace, event, event, trace.end, (i) => found.push(i));
  return found.sort((a, b) => series.block[trace.site[b]] - series.block[trace.site[a]] || a - b);
}

// In the stack, each owner's blocks lie on each other as they were made; their remainders are another owner's.
function blockAtHeight(trace, series, event, height) {
  const { owners } = series.at(event);
  let low = 0;
  for (let owner = 0; owner < owners.length; owner++) {
    if (height < low + owners[owner]) return blockOfOwner(trace, series, event, owner, height - low);
    low += owners[owner];
  }
  return -1;
}

function blockOfOwner(trace, series, event, owner, height) {
  const { sites, site } = trace;
  const isRemainder = trace.owners[owner] === 'block remainder';
  let low = 0;
  let found = -1;
  forEachAlive(trace, event, event, trace.end, (i) => {
    const s = site[i];
    const bytes = isRemainder ? sites.remainder[s] : sites.owner[s] === owner ? series.owned[s] : 0;
    if (found < 0 && height < low + bytes) found = i;
    low += bytes;
  });
  return found;
}

function blockAtAddress(trace, series, event, place) {
  let found = -1;
  forEachAlive(trace, event, event, trace.completed, (i) => {
    const units = series.block[trace.site[i]] / trace.unit;
    if (place >= trace.place[i] && place < trace.place[i] + units) found = i;
  });
  return found;
}

// Everything known of a block, as pairs of a name and a text.
function describeBlock(trace, series, i) {
  const { sites, strings } = trace;
  const s = trace.site[i];
  const tensor = trace.tensors[sites.tensor[s]];
  const [name, dtype, shape] = tensor ? tensor.map((text) => strings[text]) : ['', '', ''];
  const module = strings[trace.modules[sites.module[s]]];
  const isFreed = trace.end[i] < trace.events;
  const facts = [
    ['owner', trace.owners[sites.owner[s]] + (sites.isOutput[s] ? ' (logits or loss)' : '')],
    ['tensor', name],
    ['shape', [shape, dtype].filter(Boolean).join(' ')],
    ['module', module],
    ['line', strings[trace.lines[sites.line[s]]]],
    ['size', `${formatBytes(series.block[s])}, ${formatCount(series.block[s])} bytes`],
    ['asked for', sites.requested[s] === series.block[s] ? '' : `${formatCount(sites.requested[s])} bytes`],
    ['made', whenText(trace, trace.begin[i])],
    ['freed', isFreed ? whenText(trace, trace.end[i]) : 'never'],
    ['lived', isFreed ? lifeText(trace, i) : ''],
    ['address', addressOf(trace, trace.place[i])],
    ['stream', sites.stream[s] ? `0x${sites.stream[s].toString(16)}` : ''],
  ];
  return facts.filter(([, text]) => text);
}

function lifeText(trace, i) {
  const wait = trace.completed[i] - trace.end[i];
  const lived = plural(trace.end[i] - trace.begin[i], 'event');
  const isTimed = trace.begin[i] >= 0 && trace.hasTime;
  const time = isTimed ? timeOf(trace, trace.end[i]) - timeOf(trace, trace.begin[i]) : 0;
  const waited = wait > 1 ? `; then waited ${plural(wait, 'event')} for another stream` : '';
  return `${lived}${time ? `, about ${formatTime(time)}` : ''}${waited}`;
}

// Between the events whose time is known, on a straight line.
function timeOf(trace, event) {
  const knot = Math.min(Math.floor(event / trace.timeEvery), trace.time.length - 2);
  const from = knot * trace.timeEvery;
  const until = Math.min(from + trace.timeEvery, trace.events - 1);
  if (until <= from) return trace.time[knot];
  return trace.time[knot] + ((trace.time[knot + 1] - trace.time[knot]) * (event - from)) / (until - from);
}

function stackOf(trace, i) {
  const frames = [];
  for (let stack = trace.sites.stack[trace.site[i]]; stack > 0; stack -= trace.stackCaller[stack]) {
    frames.push(trace.strings[trace.frames[trace.stackFrame[stack]]]);
  }
  return frames;
}
