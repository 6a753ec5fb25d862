// Allocated memory by owner after any event, and the highest moment of any range of events. All of it is whole bytes.

const CHECKPOINT = 4096; // changes between two stored sums: a search never adds up more than these

function createSeries(trace) {
  const { sites, site, change, changeEvent } = trace;
  const owners = trace.owners.length;
  const remainderOwner = trace.owners.indexOf('block remainder');
  const block = sites.requested.map((asked, s) => asked + sites.rounding[s]);
  const owned = block.map((bytes, s) => bytes - sites.remainder[s]);
  const checkpoints = [];

  const sums = new Float64Array(owners);
  function apply(k) {
    const isFree = change[k] < 0;
    const s = site[isFree ? -change[k] - 1 : change[k] - 1];
    const bytes = block[s];
    if (isFree) {
      sums[sites.owner[s]] -= owned[s];
      sums[remainderOwner] -= sites.remainder[s];
      return -bytes;
    }
    sums[sites.owner[s]] += owned[s];
    sums[remainderOwner] += sites.remainder[s];
    return bytes;
  }
  for (let k = 0; k < change.length; k++) {
    if (k % CHECKPOINT === 0) checkpoints.push(sums.slice());
    apply(k);
  }
  if (!checkpoints.length) checkpoints.push(sums.slice());

  // Leaves `sums` as they are after all changes up to `event`; gives the number of those changes.
  function seek(event) {
    const until = countUpTo(changeEvent, event);
    const from = Math.min(checkpoints.length - 1, Math.floor(until / CHECKPOINT));
    sums.set(checkpoints[from]);
    for (let k = from * CHECKPOINT; k < until; k++) apply(k);
    return until;
  }

  function at(event) {
    seek(event);
    return { owners: sums.slice(), total: sums.reduce((a, b) => a + b, 0) };
  }

  // Of each range between neighbouring bounds: its highest moment (event, total, owners). A range
  // holds the states after the events from its own bound up to the next one; an empty range, that of its bound.
  function walk(bounds) {
    const ranges = bounds.length - 1;
    const stacks = new Float64Array(ranges * owners);
    const highest = new Float64Array(ranges);
    const event = new Int32Array(ranges);
    let k = seek(bounds[0]);
    let total = sums.reduce((a, b) => a + b, 0);
    for (let r = 0; r < ranges; r++) {
      const first = bounds[r];
      const last = Math.max(first, bounds[r + 1] - 1);
      while (k < change.length && changeEvent[k] <= first) total += apply(k++);
      let high = total;
      let when = first;
      stacks.set(sums, r * owners);
      while (k < change.length && changeEvent[k] <= last) {
        const now = changeEvent[k];
        do total += apply(k++);
        while (k < change.length && changeEvent[k] === now);
        if (total > high) {
          high = total;
          when = now;
          stacks.set(sums, r * owners);
        }
      }
      highest[r] = high;
      event[r] = when;
    }
    return { stacks, highest, event };
  }

  function reservedAt(event) {
    const changes = countUpTo(trace.reservedEvent, event);
    return changes ? trace.reserved[changes - 1] : trace.before_reserved;
  }

  const mostReserved = trace.reserved.reduce((a, b) => Math.max(a, b), trace.before_reserved);
  return { at, walk, reservedAt, mostReserved, block, owned };
}
