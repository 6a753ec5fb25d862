// Allocated memory by owner after any event, and the highest moment of any range of events. All of it is whole bytes.

const CHECKPOINT = 128; // changes between two stored sums: to know a moment's owners, never more are added up

function createSeries(trace) {
  const { sites, site, change, changeEvent } = trace;
  const owners = trace.owners.length;
  const remainderOwner = trace.owners.indexOf('block remainder');
  const block = sites.requested.map((asked, s) => asked + sites.rounding[s]);
  const owned = block.map((bytes, s) => bytes - sites.remainder[s]);
  const totals = new Float64Array(change.length + 1); // after so many changes
  const checkpoints = new Float64Array((Math.floor(change.length / CHECKPOINT) + 1) * owners);

  const sums = new Float64Array(owners);
  function apply(k) {
    const sign = change[k] < 0 ? -1 : 1;
    const s = site[sign * change[k] - 1];
    sums[sites.owner[s]] += sign * owned[s];
    sums[remainderOwner] += sign * sites.remainder[s];
    return sign * block[s];
  }
  for (let k = 0; k < change.length; k++) {
    if (k % CHECKPOINT === 0) checkpoints.set(sums, (k / CHECKPOINT) * owners);
    totals[k + 1] = totals[k] + apply(k);
  }
  if (change.length % CHECKPOINT === 0) checkpoints.set(sums, (change.length / CHECKPOINT) * owners);

  // Leaves `sums` as they are after so many changes.
  function restore(changes) {
    const from = Math.floor(changes / CHECKPOINT);
    sums.set(checkpoints.subarray(from * owners, (from + 1) * owners));
    for (let k = from * CHECKPOINT; k < changes; k++) apply(k);
  }

  function at(event) {
    const changes = countUpTo(changeEvent, event);
    restore(changes);
    return { owners: sums.slice(), total: totals[changes] };
  }

  // Of each range between neighbouring bounds: its highest moment (event, total, owners). A range holds the states
  // after the events from its own bound up to the next one; an empty range, that of its bound.
  function walk(bounds) {
    const ranges = bounds.length - 1;
    const stacks = new Float64Array(ranges * owners);
    const highest = new Float64Array(ranges);
    const event = new Int32Array(ranges);
    let k = countUpTo(changeEvent, bounds[0]);
    for (let r = 0; r < ranges; r++) {
      const last = Math.max(bounds[r], bounds[r + 1] - 1);
      while (k < change.length && changeEvent[k] <= bounds[r]) k++;
      let best = k;
      event[r] = bounds[r];
      while (k < change.length && changeEvent[k] <= last) {
        const now = changeEvent[k];
        do k++; while (k < change.length && changeEvent[k] === now);
        if (totals[k] > totals[best]) {
          best = k;
          event[r] = now;
        }
      }
      highest[r] = totals[best];
      restore(best);
      stacks.set(sums, r * owners);
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
