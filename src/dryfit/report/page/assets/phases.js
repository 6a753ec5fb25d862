// The timeline as a table: the highest moment of each phase. Also what Shift and the arrow keys go through.

const MOST_ROWS = 1000;

function phasePeaks(trace, series) {
  const { bands } = trace;
  if (!bands.length) return [];
  const bounds = [...bands.map(([event]) => Math.max(event, BEFORE)), trace.events];
  const { highest, event, stacks } = series.walk(bounds);
  const owners = trace.owners.length;
  return bands.map(([, step, phase], i) => ({
    step, phase, event: event[i], total: highest[i], owners: stacks.subarray(i * owners, (i + 1) * owners),
  }));
}

// Filled when it is opened: it can have many rows, and most people never look.
function fillPhaseTable(details, trace, series, view) {
  const rows = details.querySelector('tbody');
  if (rows.children.length) return;
  const peaks = phasePeaks(trace, series);
  for (const peak of peaks.slice(0, MOST_ROWS)) {
    const button = make('button', { type: 'button', class: 'link' }, formatCount(peak.event));
    button.addEventListener('click', () => view.moveTo(peak.event));
    const held = [...peak.owners.keys()].filter((o) => peak.owners[o]);
    rows.append(make('tr', {},
      make('th', { scope: 'row' }, stepName(peak.step)),
      make('td', {}, peak.step ? peak.phase : ''),
      make('td', { class: 'number' }, button),
      make('td', { class: 'number' }, formatBytes(peak.total)),
      make('td', { class: 'number' }, formatBytes(series.reservedAt(peak.event))),
      make('td', {}, held.map((o) => `${trace.owners[o]} ${formatBytes(peak.owners[o])}`).join(', '))));
  }
  if (peaks.length > MOST_ROWS) {
    details.append(make('p', {}, `The first ${formatCount(MOST_ROWS)} of ${formatCount(peaks.length)} phases.`));
  }
}
