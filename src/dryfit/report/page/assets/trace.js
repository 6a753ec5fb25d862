// Lifetimes, sites, segments and figures as columns. Undoes dryfit/report/page/payload.py, which says what a site is.

const BEFORE = -1; // the moment before the first event

function readTrace({ head, column }) {
  const sites = readSites(column);
  const trace = {
    ...head,
    sites,
    bands: readBands(head, column),
    ...readLifetimes(head, column),
    segments: {
      begin: undelta(column('segment_begin')),
      end: column('segment_end').map((left) => head.events - left),
      place: undelta(column('segment_place')),
      size: column('segment_size'),
    },
    reservedEvent: undelta(column('reserved_event')),
    reserved: undelta(column('reserved')),
    oom: undelta(column('oom')),
    time: undelta(column('time')),
    timeEvery: column('time_every')[0],
    stackFrame: undelta(column('stack_frame')),
    stackCaller: column('stack_caller'),
  };
  trace.hasTime = trace.time.length > 1 && trace.time[trace.time.length - 1] > 0;
  return Object.assign(trace, changesOf(trace), { latestEnd: latestEnds(trace.completed) });
}

// From which event on the program is in which step and phase.
function readBands({ strings }, column) {
  const events = undelta(column('band_event'));
  const steps = undelta(column('band_step'));
  return Array.from(column('band_phase'), (phase, i) => [events[i], steps[i], strings[phase]]);
}

function readSites(column) {
  return {
    requested: column('site_requested'),
    rounding: column('site_rounding'),
    remainder: column('site_remainder'),
    owner: Uint8Array.from(column('site_owner')),
    module: undelta(column('site_module')),
    line: undelta(column('site_line')),
    stream: column('site_stream'),
    stack: undelta(column('site_stack')),
    tensor: undelta(column('site_tensor')),
    isOutput: column('site_is_output'),
  };
}

function readLifetimes(head, column) {
  const count = head.lifetimes;
  const [codes, steps, lengths, waits, places] = ['site', 'begin', 'length', 'wait', 'place'].map(column);
  const site = new Int32Array(count);
  const begin = new Int32Array(count);
  const end = new Int32Array(count);
  const completed = new Int32Array(count);
  const place = new Float64Array(count);
  const follower = new Int32Array(head.sites + 1).fill(-1);
  const lastStep = new Int32Array(head.sites);
  const lastLength = new Int32Array(head.sites);
  const lastWait = new Int32Array(head.sites);
  const lastPlace = new Float64Array(head.sites).fill(-1);
  let previous = head.sites;
  let fresh = 0;
  let previousBegin = 0;
  let previousPlace = 0;
  for (let i = 0; i < count; i++) {
    let s = codes[i] - 1;
    if (s < 0) s = follower[previous] < 0 ? fresh : follower[previous];
    follower[previous] = s;
    previous = s;
    if (s === fresh) fresh += 1;

    lastStep[s] += unzigzag(steps[i]);
    lastLength[s] += unzigzag(lengths[i]);
    lastWait[s] += unzigzag(waits[i]);
    lastPlace[s] = (lastPlace[s] < 0 ? previousPlace : lastPlace[s]) + unzigzag(places[i]);
    site[i] = s;
    begin[i] = previousBegin += lastStep[s];
    end[i] = lastLength[s] ? begin[i] + lastLength[s] - 1 : head.events;
    completed[i] = end[i] + lastWait[s];
    place[i] = previousPlace = lastPlace[s];
  }
  return { site, begin, end, completed, place };
}

// Allocations and frees in the order of their events: the lifetime's number + 1, negative for a free. A block that was
// freed before the recording only waits for its stream; it is in no sum.
function changesOf({ begin, end, events }) {
  const count = begin.length;
  const freesBefore = new Int32Array(events + 1);
  let frees = 0;
  for (let i = 0; i < count; i++) {
    if (end[i] <= begin[i] || end[i] >= events) continue;
    freesBefore[end[i] + 1] += 1;
    frees += 1;
  }
  for (let e = 1; e <= events; e++) freesBefore[e] += freesBefore[e - 1];
  const freed = new Int32Array(frees);
  for (let i = 0; i < count; i++) {
    if (end[i] > begin[i] && end[i] < events) freed[freesBefore[end[i]]++] = i;
  }
  const changeEvent = new Int32Array(count + frees);
  const change = new Int32Array(count + frees);
  let out = 0;
  let f = 0;
  for (let i = 0; i <= count; i++) {
    const until = i < count ? begin[i] : events;
    for (; f < frees && end[freed[f]] <= until; f++) {
      changeEvent[out] = end[freed[f]];
      change[out++] = -freed[f] - 1;
    }
    if (i < count && end[i] > begin[i]) {
      changeEvent[out] = begin[i];
      change[out++] = i + 1;
    }
  }
  return { changeEvent: changeEvent.subarray(0, out), change: change.subarray(0, out) };
}

// Of each run of lifetimes, when the last one was over: what a search for the living skips by.
const RUN = 256;
function latestEnds(completed) {
  const latest = new Int32Array(Math.ceil(completed.length / RUN));
  for (let i = 0; i < completed.length; i++) {
    const run = (i / RUN) | 0;
    if (completed[i] > latest[run]) latest[run] = completed[i];
  }
  return latest;
}

// How many of the sorted values are at most `limit`.
function countUpTo(values, limit) {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= limit) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Calls `visit` with each lifetime that overlaps the events from `first` to `last`; `ends` is when it counts as over.
function forEachAlive(trace, first, last, ends, visit) {
  const until = countUpTo(trace.begin, last);
  for (let run = 0; run * RUN < until; run++) {
    if (trace.latestEnd[run] <= first) continue;
    const stop = Math.min(until, (run + 1) * RUN);
    for (let i = run * RUN; i < stop; i++) if (ends[i] > first) visit(i);
  }
}

function bandAt(trace, event) {
  const { bands } = trace;
  let low = 0;
  let high = bands.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (bands[middle][0] <= event) low = middle + 1;
    else high = middle;
  }
  return low - 1; // -1: before the first mark
}

function whenText(trace, event) {
  if (event < 0) return 'before the recording';
  const band = trace.bands[bandAt(trace, event)];
  if (!band) return `event ${formatCount(event)}`;
  return `event ${formatCount(event)}, ${stepName(band[1])}${band[1] ? `, ${band[2]}` : ''}`;
}

function addressOf(trace, place) {
  let found = trace.ranges[0];
  for (const range of trace.ranges) if (range[2] <= place) found = range;
  return `0x${(found[0] + (place - found[2]) * trace.unit).toString(16)}`;
}
