// What both pictures show together: the window on the axis, the cursor, the block under it, a highlighted owner.

const FEWEST_EVENTS = 8; // in the closest zoom

function createView(trace, peakEvent) {
  const axes = { events: eventAxis(trace), time: timeAxis(trace) };
  const listeners = [];
  const view = {
    axis: axes.events, u0: 0, u1: 0, cursor: peakEvent, at: null, block: -1, isHeld: false, highlight: -1,
  };
  let isDirty = false;
  let isWindowDirty = false;

  function changed(isWindow) {
    isWindowDirty = isWindowDirty || isWindow;
    if (isDirty) return;
    isDirty = true;
    requestAnimationFrame(() => {
      const isWindowNow = isWindowDirty;
      isDirty = isWindowDirty = false;
      for (const listener of listeners) listener(isWindowNow);
    });
  }

  function setWindow(u0, u1) {
    const { low, high, eventAt } = view.axis;
    const width = Math.min(u1 - u0, high - low);
    const start = Math.min(Math.max(u0, low), high - width);
    const isCloser = width < view.u1 - view.u0;
    if (isCloser && eventAt(start + width) - eventAt(start) < Math.min(FEWEST_EVENTS, trace.events)) return;
    view.u0 = start;
    view.u1 = start + width;
    changed(true);
  }

  return Object.assign(view, {
    listen: (listener) => listeners.push(listener),
    redraw: () => changed(true),
    setWindow,
    reset: () => setWindow(view.axis.low, view.axis.high),
    isWhole: () => view.u1 - view.u0 >= (view.axis.high - view.axis.low) * 0.999,
    zoom(factor, about = view.axis.of(view.cursor + 0.5)) {
      const u = Math.min(Math.max(about, view.u0), view.u1);
      setWindow(u - (u - view.u0) * factor, u + (view.u1 - u) * factor);
    },
    pan: (share) => setWindow(view.u0 + share * (view.u1 - view.u0), view.u1 + share * (view.u1 - view.u0)),
    setAxis(name) {
      const events = [view.axis.eventAt(view.u0), view.axis.eventAt(view.u1)];
      view.axis = axes[name];
      view.at = null;
      view.u0 = view.axis.low;
      view.u1 = view.axis.high;
      setWindow(view.axis.of(events[0]), view.axis.of(events[1]));
      changed(true);
    },
    // From 0 at the left edge to 1 at the right one, and back.
    share: (event) => (view.axis.of(event) - view.u0) / (view.u1 - view.u0),
    // The cursor is where the pointer is, as long as that is within its event.
    cursorMark(width) {
      const isWithin = view.at !== null && Math.floor(view.axis.eventAt(view.at)) === view.cursor;
      return isWithin ? (view.at - view.u0) / (view.u1 - view.u0) : view.mark(view.cursor, width);
    },
    // Where to mark an event: in the middle of it, or where it is narrower than that, in the column of pixels it is in.
    mark(event, width) {
      const [from, until] = [view.share(event), view.share(event + 1)];
      return (until - from) * width < 2 ? until - 1e-9 : (from + until) / 2;
    },
    eventAt(share) {
      const event = Math.floor(view.axis.eventAt(view.u0 + share * (view.u1 - view.u0)));
      return Math.min(Math.max(event, BEFORE), trace.events - 1);
    },
    point(patch) {
      Object.assign(view, { at: null, ...patch });
      changed(false);
    },
    // Moves the cursor by keyboard: it stays where it is, and the window follows it.
    moveTo(event, block = -1) {
      view.cursor = Math.min(Math.max(event, BEFORE), trace.events - 1);
      Object.assign(view, { at: null, block, isHeld: true });
      const at = view.share(view.cursor + 0.5);
      if (at < 0 || at > 1) view.pan(at - 0.5);
      changed(false);
    },
    setHighlight(owner) {
      view.highlight = view.highlight === owner ? -1 : owner;
      changed(true);
    },
  });
}
