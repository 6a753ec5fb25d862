// Where an event lies on the horizontal axis: by its number, or by its time. Both ways, both growing all along.

function eventAxis(trace) {
  return {
    name: 'events',
    low: BEFORE,
    high: trace.events,
    of: (event) => event,
    eventAt: (u) => u,
    ticks: (u0, u1, most) => countTicks(u0, u1, most).map((u) => [u, formatCount(u)]),
  };
}

// Times are known at every so many events; between them, on a straight line.
function timeAxis(trace) {
  const knotEvents = [BEFORE];
  const knotTimes = [0];
  const last = trace.time.length ? trace.time[trace.time.length - 1] : 0;
  const least = Math.max(last, 1) * 1e-9; // events of one moment still follow each other
  for (let k = 0; k < trace.time.length; k++) {
    const event = Math.min(k * trace.timeEvery, trace.events - 1);
    if (event <= knotEvents[knotEvents.length - 1]) continue;
    knotEvents.push(event);
    knotTimes.push(Math.max(trace.time[k], knotTimes[knotTimes.length - 1] + least));
  }
  knotEvents.push(trace.events);
  knotTimes.push(knotTimes[knotTimes.length - 1] + Math.max(least, last / Math.max(1, trace.events)));
  return {
    name: 'time',
    low: 0,
    high: knotTimes[knotTimes.length - 1],
    of: (event) => between(knotEvents, knotTimes, event),
    eventAt: (u) => between(knotTimes, knotEvents, u),
    ticks: (u0, u1, most) => countTicks(u0, u1, most).map((u) => [u, roundTime(u)]),
  };
}

// A time of a tick, which is a round one: "1.5 s", not "1.500 s".
function roundTime(microseconds) {
  const [figure, unit] = formatTime(microseconds).split('\u00a0');
  return `${Number(figure)} ${unit}`;
}

function between(xs, ys, x) {
  const i = Math.min(Math.max(countUpTo(xs, x), 1), xs.length - 1);
  return ys[i - 1] + ((ys[i] - ys[i - 1]) * (x - xs[i - 1])) / (xs[i] - xs[i - 1]);
}

function countTicks(low, high, most) {
  let step = 1;
  for (let i = 0; (high - low) / step > most; i++) step *= [2, 2.5, 2][i % 3];
  const ticks = [];
  for (let tick = Math.max(0, Math.ceil(low / step) * step); tick <= high; tick += step) ticks.push(tick);
  return ticks;
}
