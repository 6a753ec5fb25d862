// Where in memory each block lay, over the same events as the timeline. Drawn pixel by pixel: a million blocks are many
// more than there are pixels.

const BLOCKMAP_GUTTERS = { left: 68, narrowLeft: 52, right: 8, top: 6, bottom: 22 };

function createBlockMap(trace, series, view) {
  const chart = createChart(document.getElementById('blockmap'), BLOCKMAP_GUTTERS);
  const window_ = { low: 0, high: trace.units }; // of addresses, in units from the first
  let image = null; // the pixels of the last drawing
  let rows = null; // which rows of pixels each block takes; the same as long as only time is zoomed
  const unitsOf = series.block.map((bytes) => bytes / trace.unit);

  function draw(theme) {
    const context = chart.begin(chart.base);
    const { plot, ratio } = chart;
    drawAddressAxis(context, theme);
    const width = Math.max(1, Math.round(plot.width * ratio));
    const height = Math.max(1, Math.round(plot.height * ratio));
    if (!image || image.width !== width || image.height !== height) image = context.createImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    pixels.fill(0);
    paint(pixels, width, height, theme);
    context.putImageData(image, Math.round(plot.left * ratio), Math.round(plot.top * ratio));
    drawSegments(context, theme);
    drawEventAxis(context, chart, view, theme);
  }

  function paint(pixels, width, height, theme) {
    const { site, begin, completed, end, segments, events } = trace;
    const xs = pixelsOfEvents(width);
    const top = rowAt(height);
    const { upper, lower } = rowsOfBlocks(height);
    const segmentPixel = pixelOf(theme.segment);
    for (let i = 0; i < segments.begin.length; i++) {
      const [low, high] = [segments.place[i], segments.place[i] + segments.size[i]];
      solid(xs(segments.begin[i]), xs(segments.end[i]), top(high), top(low), segmentPixel);
    }
    const colours = theme.owners.map((colour, o) => pixelOf(colour, isDimmed(o) ? 46 : 255));
    const waiting = pixelOf(theme.muted);
    const lines = theme.owners.map((colour, o) => pixelOf(mixed(colour, theme.surface, 0.45), isDimmed(o) ? 46 : 255));
    const first = view.eventAt(0);
    const last = view.eventAt(1);

    forEachAlive(trace, first, last, completed, (i) => {
      const y0 = upper[i];
      const y1 = lower[i];
      if (y1 < 0 || y0 > height) return;
      const x0 = xs(begin[i]);
      const x1 = xs(end[i]);
      const owner = trace.sites.owner[site[i]];
      const colour = colours[owner];
      // Blocks next to each other stay apart where there is room for a line between them.
      const gapX = x1 - x0 > 4 ? 1 : 0;
      const gapY = y1 - y0 > 4 ? 1 : 0;
      if (theme.isHatched[owner]) hatched(x0, x1 - gapX, y0 + gapY, y1, colour, lines[owner]);
      else solid(x0, x1 - gapX, y0 + gapY, y1, colour);
      if (completed[i] - end[i] > 1) solid(x1, xs(Math.min(completed[i], events)), y0 + gapY, y1, waiting);
    });

    // At least a pixel each way, but a block smaller than a pixel takes none that a larger one has.
    function solid(x0, x1, y0, y1, colour) {
      const isTiny = x1 <= x0 || y1 <= y0;
      const right = Math.min(width, Math.max(x1, x0 + 1));
      const bottom = Math.min(height, Math.max(y1, y0 + 1));
      for (let y = Math.max(0, y0); y < bottom; y++) {
        if (isTiny) {
          for (let x = Math.max(0, x0); x < right; x++) {
            const at = y * width + x;
            if (pixels[at] === 0 || pixels[at] === segmentPixel) pixels[at] = colour;
          }
        } else pixels.fill(colour, y * width + Math.max(0, x0), y * width + right);
      }
    }
    function hatched(x0, x1, y0, y1, colour, line) {
      solid(x0, x1, y0, y1, colour);
      const period = Math.round(HATCH * chart.ratio);
      const left = Math.max(0, x0);
      for (let y = Math.max(0, y0); y < Math.min(height, y1); y++) {
        const first = left + ((period - ((left + y) % period)) % period);
        for (let x = first; x < Math.min(width, x1); x += period) pixels[y * width + x] = line;
      }
    }
  }

  // The row of pixels that an address begins, or one just out of sight.
  function rowAt(height) {
    const { low, high } = window_;
    const scale = height / (high - low);
    return (units) => Math.min(Math.max(Math.round((high - units) * scale), -1), height + 1);
  }

  function rowsOfBlocks(height) {
    const { low, high } = window_;
    if (rows && rows.low === low && rows.high === high && rows.height === height) return rows;
    const { site, place } = trace;
    const row = rowAt(height);
    rows = rows || { upper: new Int32Array(site.length), lower: new Int32Array(site.length) };
    for (let i = 0; i < site.length; i++) {
      rows.lower[i] = row(place[i]);
      rows.upper[i] = row(place[i] + unitsOf[site[i]]);
    }
    return Object.assign(rows, { low, high, height });
  }

  function isDimmed(owner) {
    return view.highlight >= 0 && view.highlight !== owner;
  }

  // Pixels of whole events; at the edges, beyond them.
  function pixelsOfEvents(width) {
    const scale = width / (view.u1 - view.u0);
    if (view.axis.name === 'events') return (event) => Math.round((event - view.u0) * scale);
    return (event) => Math.round((view.axis.of(event) - view.u0) * scale);
  }

  function yOf(units) {
    return chart.plot.top + (chart.plot.height * (window_.high - units)) / (window_.high - window_.low);
  }

  function drawAddressAxis(context, theme) {
    const low = window_.low * trace.unit;
    const high = window_.high * trace.unit;
    context.textAlign = 'right';
    context.fillStyle = theme.muted;
    for (const tick of byteTicks(low, high, chart.plot.height / 44)) {
      context.fillText(formatTick(tick), chart.plot.left - 8, yOf(tick / trace.unit));
    }
  }

  function drawSegments(context, theme) {
    const { plot } = chart;
    const { segments } = trace;
    context.save();
    context.beginPath();
    context.rect(plot.left, plot.top, plot.width, plot.height);
    context.clip();
    context.strokeStyle = theme.ink;
    context.globalAlpha = 0.35;
    context.lineWidth = 1;
    context.beginPath();
    for (let i = 0; i < segments.begin.length; i++) {
      const y0 = yOf(segments.place[i] + segments.size[i]);
      const y1 = yOf(segments.place[i]);
      if (y1 - y0 < 3) continue; // an outline would hide what is in it
      const x0 = plot.left + view.share(segments.begin[i]) * plot.width;
      const x1 = plot.left + view.share(segments.end[i]) * plot.width;
      context.rect(Math.round(x0) + 0.5, Math.round(y0) + 0.5, Math.round(x1 - x0) - 1, Math.round(y1 - y0));
    }
    context.stroke();
    context.restore();
  }

  function drawOver(theme) {
    const cursor = drawCursor(chart, view, theme);
    const i = view.block;
    if (i < 0) return;
    const { plot } = chart;
    const context = cursor ? cursor.context : chart.begin(chart.over);
    const x0 = plot.left + Math.max(-0.01, view.share(trace.begin[i])) * plot.width;
    const x1 = plot.left + Math.min(1.01, view.share(trace.completed[i])) * plot.width;
    const y0 = yOf(trace.place[i] + unitsOf[trace.site[i]]);
    const y1 = yOf(trace.place[i]);
    context.save();
    context.beginPath();
    context.rect(plot.left, plot.top, plot.width, plot.height);
    context.clip();
    for (const [colour, wide] of [[theme.surface, 4], [theme.ink, 2]]) {
      context.strokeStyle = colour;
      context.lineWidth = wide;
      context.strokeRect(x0, y0, Math.max(1, x1 - x0), Math.max(1, y1 - y0));
    }
    context.restore();
  }

  function pick({ x, y }) {
    if (x < 0 || x >= 1) return null;
    const event = view.eventAt(x);
    const at = view.u0 + x * (view.u1 - view.u0);
    if (y < 0 || y > 1) return { cursor: event, at, block: -1 };
    const place = window_.high - y * (window_.high - window_.low);
    return { cursor: event, at, block: blockAtAddress(trace, series, event, place) };
  }

  function setAddresses(low, high) {
    const height = Math.min(trace.units, Math.max(high - low, 16));
    window_.low = Math.min(Math.max(low, 0), trace.units - height);
    window_.high = window_.low + height;
    view.redraw();
  }

  return {
    chart, draw, drawOver, pick,
    zoomAddresses(factor, y) {
      const at = window_.high - y * (window_.high - window_.low);
      setAddresses(at - (at - window_.low) * factor, at + (window_.high - at) * factor);
    },
    panAddresses(share) {
      const units = share * (window_.high - window_.low);
      setAddresses(window_.low + units, window_.high + units);
    },
    resetAddresses: () => setAddresses(0, trace.units),
  };
}
