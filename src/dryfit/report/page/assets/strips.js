// What stands around both pictures: steps and phases above, the axis below.

const STEP_STRIP = { top: 0, height: 19 };
const PHASE_STRIP = { top: 20, height: 16 };

function drawBands(context, chart, trace, view, theme) {
  const { plot } = chart;
  const { bands } = trace;
  const edges = [];
  for (let i = 0; i < bands.length; i++) edges.push(plot.left + view.share(bands[i][0]) * plot.width);
  edges.push(plot.left + view.share(trace.events) * plot.width);
  const right = plot.left + plot.width;

  context.textAlign = 'left';
  // Steps and phases narrower than a pixel are only drawn where nothing else of that pixel is.
  let drawnTo = -Infinity;
  for (let i = 0, from = 0; i < bands.length; i++) {
    if (i + 1 < bands.length && bands[i + 1][1] === bands[i][1]) continue;
    const step = bands[i][1];
    const x0 = Math.max(plot.left, edges[from]);
    const x1 = Math.min(right, edges[i + 1]);
    from = i + 1;
    if (x1 <= x0 || x1 < drawnTo + 0.5) continue;
    drawnTo = x1;
    if (step % 2) {
      context.fillStyle = theme.band;
      context.fillRect(x0, plot.top, x1 - x0, plot.height);
    }
    context.fillStyle = step % 2 ? theme.bandStrong : theme.band;
    context.fillRect(x0, STEP_STRIP.top, x1 - x0, STEP_STRIP.height);
    context.font = '600 11px system-ui, -apple-system, "Segoe UI", sans-serif';
    fitText(context, [stepName(step), String(step || '')], x0, x1, STEP_STRIP.top + 10, theme.ink);
  }
  context.font = '11px system-ui, -apple-system, "Segoe UI", sans-serif';
  drawnTo = -Infinity;
  for (let i = 0; i < bands.length; i++) {
    const x0 = Math.max(plot.left, edges[i]);
    const x1 = Math.min(right, edges[i + 1]);
    if (x1 <= x0 || x1 < drawnTo + 0.5) continue;
    drawnTo = x1;
    context.fillStyle = i % 2 ? theme.bandStrong : theme.band;
    context.fillRect(x0, PHASE_STRIP.top, x1 - x0, PHASE_STRIP.height);
    if (x1 - x0 > 28) {
      context.fillStyle = theme.line;
      context.fillRect(Math.round(x0), PHASE_STRIP.top, 1, chart.height - PHASE_STRIP.top - 22);
    }
    if (bands[i][1]) fitText(context, phaseNames(bands[i][2]), x0, x1, PHASE_STRIP.top + 8.5, theme.muted);
  }
}

const SHORT_PHASES = {
  'optimizer step': ['optimizer', 'optim'], forward: ['fwd'], backward: ['bwd'], evaluation: ['eval'],
};

function phaseNames(phase) {
  return [phase, ...(SHORT_PHASES[phase] || [])];
}

const LEAST_ROOM = 16; // pixels that a figure takes

// The first of the texts that fits between two places; none if none does.
function fitText(context, texts, x0, x1, y, colour) {
  if (x1 - x0 < LEAST_ROOM) return; // measuring text is slow
  const text = texts.find((each) => each && context.measureText(each).width + 10 <= x1 - x0);
  if (!text) return;
  context.fillStyle = colour;
  context.fillText(text, x0 + 5, y);
}

function drawEventAxis(context, chart, view, theme) {
  const { plot } = chart;
  const y = plot.top + plot.height;
  context.fillStyle = theme.line;
  context.fillRect(plot.left, y, plot.width, 1);
  context.textAlign = 'center';
  for (const [u, text] of view.axis.ticks(view.u0, view.u1, plot.width / 95)) {
    const x = plot.left + ((u - view.u0) / (view.u1 - view.u0)) * plot.width;
    const half = context.measureText(text).width / 2;
    context.fillStyle = theme.muted;
    context.fillRect(Math.round(x), y, 1, 4);
    context.fillText(text, Math.min(Math.max(x, plot.left + half), plot.left + plot.width - half), y + 13);
  }
}
