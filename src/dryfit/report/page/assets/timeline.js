// Allocated memory over events, stacked by owner; each column of pixels shows its highest moment, so no peak is lost.

const TIMELINE_GUTTERS = { left: 68, narrowLeft: 52, right: 8, top: 40, bottom: 22 };
const LIMIT_IN_SIGHT = 1.6; // a card's limit further above the peak than this is named, but not to scale
const PEAK_PULLS = 3; // pixels beside the peak that still point at it, while it is narrower than one

function createTimeline(trace, series, view, footprint) {
  const chart = createChart(document.getElementById('timeline'), TIMELINE_GUTTERS);
  const label = document.getElementById('peak-label');
  const highest = Math.max(footprint.peakBytes, series.mostReserved, 1);
  const showsLimit = footprint.limitBytes && footprint.limitBytes < highest * LIMIT_IN_SIGHT;
  const top = Math.max(highest, showsLimit ? footprint.limitBytes : 0) * 1.14;
  let columns = null; // what is drawn, for picking
  let taken = []; // where labels are

  const yOf = (bytes) => chart.plot.top + chart.plot.height * (1 - bytes / top);

  function draw(theme) {
    const context = chart.begin(chart.base);
    const { plot } = chart;
    const count = Math.max(1, Math.round(plot.width * chart.ratio));
    const bounds = new Int32Array(count + 1);
    for (let c = 0; c <= count; c++) bounds[c] = view.eventAt(c / count);
    columns = { count, ...series.walk(bounds) };
    taken = [];
    drawBands(context, chart, trace, view, theme);
    drawByteAxis(context, theme);
    drawEventAxis(context, chart, view, theme);
    context.save();
    context.beginPath();
    context.rect(plot.left, plot.top, plot.width, plot.height);
    context.clip();
    const labels = drawStack(context, theme);
    drawReserved(context, theme, bounds);
    drawLimit(context, theme);
    drawOutOfMemory(context, theme);
    for (const draw of labels) draw();
    context.restore();
    drawPeak(context, theme);
    nameReserved(context, theme, bounds);
  }

  function drawByteAxis(context, theme) {
    const { left, width } = chart.plot;
    context.textAlign = 'right';
    for (const tick of byteTicks(0, top, chart.plot.height / 44)) {
      const y = Math.round(yOf(tick)) + 0.5;
      context.fillStyle = theme.line;
      context.fillRect(left, y - 0.5, width, 1);
      context.fillStyle = theme.muted;
      context.fillText(formatTick(tick), left - 8, y);
    }
  }

  // From the top owner down, each one's area from zero up: neighbours then share an edge without a seam.
  function drawStack(context, theme) {
    const owners = trace.owners.length;
    const { left, width } = chart.plot;
    const { count, stacks } = columns;
    const scale = width / count;
    const upper = new Float64Array(count);
    for (let c = 0; c < count; c++) for (let o = 0; o < owners; o++) upper[c] += stacks[c * owners + o];
    const labels = [];
    for (let o = owners - 1; o >= 0; o--) {
      let isThere = false;
      for (let c = 0; c < count && !isThere; c++) isThere = stacks[c * owners + o] > 0;
      if (!isThere) continue;
      context.beginPath();
      context.moveTo(left, yOf(0));
      let y = -1;
      for (let c = 0; c < count; c++) {
        const next = yOf(upper[c]);
        if (next !== y) {
          if (c) context.lineTo(left + c * scale, y);
          context.lineTo(left + c * scale, next);
          y = next;
        }
      }
      context.lineTo(left + width, y);
      context.lineTo(left + width, yOf(0));
      const isDimmed = view.highlight >= 0 && view.highlight !== o;
      context.fillStyle = theme.surface;
      context.fill();
      context.globalAlpha = isDimmed ? 0.18 : 1;
      context.fillStyle = theme.owners[o];
      context.fill();
      if (theme.isHatched[o]) {
        context.fillStyle = context.createPattern(theme.hatch, 'repeat');
        context.fill();
      }
      context.globalAlpha = 1;
      const bands = { upper: upper.slice(), lower: upper };
      for (let c = 0; c < count; c++) upper[c] = Math.max(0, upper[c] - stacks[c * owners + o]);
      bands.lower = upper.slice();
      if (!isDimmed) labels.push(() => drawOwnerName(context, theme, o, bands, scale));
    }
    return labels;
  }

  // The owner's name inside its band, where the band is thick enough for long enough; none where it is not.
  function drawOwnerName(context, theme, owner, { upper, lower }, scale) {
    const text = trace.owners[owner];
    const wide = Math.ceil((context.measureText(text).width + 16) / scale);
    const stride = Math.max(1, Math.round(8 / scale));
    const { count } = columns;
    let best = null;
    for (let from = 0; from + wide <= count; from += stride) {
      let high = Infinity;
      let low = -1;
      for (let c = from; c < from + wide; c += Math.max(1, stride >> 1)) {
        high = Math.min(high, upper[c]);
        low = Math.max(low, lower[c]);
      }
      const thick = ((high - low) / top) * chart.plot.height;
      if (thick >= 15 && (!best || thick > best.thick * 1.05)) best = { thick, from, middle: (high + low) / 2 };
    }
    if (!best) return;
    context.textAlign = 'center';
    context.fillStyle = textOn(theme.owners[owner]);
    const x = chart.plot.left + (best.from + wide / 2) * scale;
    if (theme.isHatched[owner]) {
      context.fillStyle = theme.owners[owner];
      context.fillRect(x - (wide * scale) / 2 + 4, yOf(best.middle) - 7, wide * scale - 8, 14);
      context.fillStyle = textOn(theme.owners[owner]);
    }
    context.fillText(text, x, yOf(best.middle) + 0.5);
  }

  function drawReserved(context, theme, bounds) {
    const { left, width } = chart.plot;
    const { count } = columns;
    context.beginPath();
    let at = countUpTo(trace.reservedEvent, bounds[0]);
    let now = at ? trace.reserved[at - 1] : trace.before_reserved;
    for (let c = 0; c < count; c++) {
      let most = now;
      for (; at < trace.reserved.length && trace.reservedEvent[at] < Math.max(bounds[c + 1], bounds[c] + 1); at++) {
        now = trace.reserved[at];
        most = Math.max(most, now);
      }
      context.lineTo(left + (c * width) / count, yOf(most));
      context.lineTo(left + ((c + 1) * width) / count, yOf(most));
    }
    context.strokeStyle = theme.surface;
    context.lineWidth = 3.5;
    context.stroke();
    context.strokeStyle = theme.ink;
    context.lineWidth = 1.25;
    context.stroke();
  }

  // On its line, from the right, where no other label is.
  function nameReserved(context, theme, bounds) {
    const { left, width } = chart.plot;
    const wide = context.measureText('reserved').width + 8;
    context.textAlign = 'right';
    for (let x = left + width - 6; x - wide > left; x -= 20) {
      const columnAt = (place) => bounds[Math.max(0, Math.floor(((place - left) / width) * columns.count))];
      const line = yOf(series.reservedAt(columnAt(x)));
      if (yOf(series.reservedAt(columnAt(x - wide))) !== line) continue; // a step of the line goes through it
      const isFree = (y) => taken.every(
        (box) => x < box.left || x - wide > box.right || y + 8 < box.top || y - 8 > box.bottom);
      const y = [line - 9, line + 10].find(isFree);
      if (y === undefined) continue;
      labelText(context, theme, 'reserved', x, y, theme.ink);
      return;
    }
  }

  function drawLimit(context, theme) {
    if (!footprint.limitBytes) return;
    const { left, width } = chart.plot;
    const bytes = formatBytes(footprint.limitBytes);
    const arrow = showsLimit ? '' : ' ↑';
    const texts = [`${footprint.limitName}: ${bytes}${arrow}`, `usable: ${bytes}${arrow}`];
    const text = texts.find((each) => context.measureText(each).width < width * 0.6) || texts[1];
    const y = showsLimit ? Math.round(yOf(footprint.limitBytes)) + 0.5 : chart.plot.top + 19;
    context.textAlign = 'left';
    taken.push({ left, right: left + context.measureText(text).width + 10, top: y - 17, bottom: y });
    if (!showsLimit) {
      labelText(context, theme, text, left + 6, y - 9, theme.limit);
      return;
    }
    context.strokeStyle = theme.limit;
    context.lineWidth = 1.25;
    context.setLineDash([6, 4]);
    context.beginPath();
    context.moveTo(left, y);
    context.lineTo(left + width, y);
    context.stroke();
    context.setLineDash([]);
    labelText(context, theme, text, left + 6, y - 9, theme.limit);
  }

  function drawOutOfMemory(context, theme) {
    const { left, top: upper, width, height } = chart.plot;
    const shares = [...trace.oom].map((event) => view.mark(event, width)).filter((share) => share >= 0 && share <= 1);
    context.fillStyle = theme.limit;
    for (const share of shares) context.fillRect(left + share * width - 0.75, upper, 1.5, height);
    if (!shares.length) return;
    const last = shares[shares.length - 1];
    const x = left + last * width + (last > 0.8 ? -8 : 8);
    context.textAlign = last > 0.8 ? 'right' : 'left';
    labelText(context, theme, 'out of memory', x, upper + height - 12, theme.limit);
  }

  // The label is text of the page, not of the canvas: it can be read, copied and clicked.
  function drawPeak(context, theme) {
    const { plot } = chart;
    const share = view.mark(footprint.peakEvent, plot.width);
    const isInSight = share >= 0 && share <= 1;
    label.hidden = false;
    const x = plot.left + Math.min(Math.max(share, 0), 1) * plot.width;
    const y = yOf(footprint.peakBytes);
    label.dataset.side = isInSight ? '' : share < 0 ? 'left' : 'right';
    const half = label.offsetWidth / 2;
    const centre = Math.min(Math.max(x, plot.left + half), plot.left + plot.width - half);
    label.style.left = `${centre}px`;
    label.style.top = `${y - 14}px`;
    taken.push({ left: centre - half, right: centre + half, top: y - 14 - label.offsetHeight, bottom: y - 14 });
    if (!isInSight) return;
    context.beginPath();
    context.arc(x, y, 4, 0, 2 * Math.PI);
    context.fillStyle = theme.ink;
    context.fill();
    context.lineWidth = 2;
    context.strokeStyle = theme.surface;
    context.stroke();
  }

  function drawOver(theme) {
    const cursor = drawCursor(chart, view, theme);
    if (!cursor) return;
    const { context, x } = cursor;
    const y = yOf(series.at(view.cursor).total);
    context.beginPath();
    context.arc(x, y, 3.5, 0, 2 * Math.PI);
    context.fillStyle = theme.surface;
    context.fill();
    context.lineWidth = 2;
    context.strokeStyle = theme.ink;
    context.stroke();
  }

  // The event that a column of pixels shows, which is its highest; and the block at that height of the stack.
  function pick({ x, y }) {
    if (!columns || x < 0 || x >= 1) return null;
    const fromPeak = Math.abs(x - view.mark(footprint.peakEvent, chart.plot.width)) * chart.plot.width;
    const isPeak = fromPeak < PEAK_PULLS && columns.count < view.eventAt(1) - view.eventAt(0);
    const column = Math.min(columns.count - 1, Math.floor(x * columns.count));
    const event = isPeak ? footprint.peakEvent : columns.event[column];
    const block = y >= 0 && y <= 1 ? blockAtHeight(trace, series, event, (1 - y) * top) : -1;
    return { cursor: event, at: view.u0 + x * (view.u1 - view.u0), block };
  }

  return { chart, draw, drawOver, pick };
}

// Text that stays readable on whatever it lies on.
function labelText(context, theme, text, x, y, colour) {
  const wide = context.measureText(text).width;
  context.fillStyle = theme.surface;
  context.fillRect(context.textAlign === 'right' ? x - wide - 4 : x - 4, y - 7.5, wide + 8, 15);
  context.fillStyle = colour;
  context.fillText(text, x, y);
}
