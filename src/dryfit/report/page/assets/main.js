// Puts the page together once its data is unpacked.

async function start() {
  if (!CSS.supports('color', 'light-dark(red, red)')) throw new Error('it is from before 2024');
  const data = document.getElementById('data');
  const trace = readTrace(await unpack(data.textContent));
  data.remove(); // megabytes of text nobody needs any more
  const root = document.getElementById('pictures').dataset;
  const footprint = {
    peakEvent: Number(root.peakEvent),
    peakBytes: Number(root.peakBytes),
    limitBytes: Number(root.limitBytes || 0),
    limitName: root.limitName || '',
  };
  const series = createSeries(trace);
  const view = createView(trace, footprint.peakEvent);
  view.setWindow(view.axis.low, view.axis.high);
  const timeline = createTimeline(trace, series, view, footprint);
  const blockMap = createBlockMap(trace, series, view);
  const inspector = createInspector(trace, series, view, footprint);
  const pictures = [timeline, blockMap];
  let theme = readTheme(trace.owners);

  function draw(isWindow) {
    for (const picture of pictures) {
      if (isWindow) picture.draw(theme);
      picture.drawOver(theme);
    }
    inspector.show();
  }
  function drawAll() {
    theme = readTheme(trace.owners);
    for (const { chart } of pictures) chart.measure();
    draw(true);
  }
  view.listen(draw);
  attachActions(trace, series, view, { timeline, blockMap, inspector, footprint });
  createTree(trace);
  watchTheme(drawAll);
  drawAll();
  const resized = new ResizeObserver(() => {
    if (pictures.filter(({ chart }) => chart.measure()).length) draw(true);
  });
  for (const { chart } of pictures) resized.observe(chart.element);
}

function attachActions(trace, series, view, { timeline, blockMap, inspector, footprint }) {
  let peaks = null;
  const actions = {
    peak: () => view.moveTo(footprint.peakEvent),
    reset() {
      view.point({ cursor: footprint.peakEvent, block: -1, isHeld: false });
      highlight(-1);
      blockMap.resetAddresses();
      view.reset();
    },
    // The next or the previous highest moment of a phase.
    phasePeak(direction) {
      peaks = peaks || phasePeaks(trace, series).map(({ event }) => event);
      const before = () => peaks.filter((event) => event < view.cursor).pop();
      const next = direction > 0 ? peaks.find((event) => event > view.cursor) : before();
      if (next !== undefined) view.moveTo(next);
    },
    // Through the blocks of the moment, largest first.
    block(direction) {
      const blocks = blocksAt(trace, series, view.cursor);
      const at = blocks.indexOf(view.block);
      if (blocks.length) view.moveTo(view.cursor, blocks[Math.min(Math.max(at + direction, 0), blocks.length - 1)]);
    },
    say: inspector.say,
  };
  attachPointer(timeline, view, null);
  attachPointer(blockMap, view, blockMap);
  for (const { chart } of [timeline, blockMap]) attachKeys(chart.element, view, actions);

  const onClick = (id, act) => document.getElementById(id).addEventListener('click', act);
  onClick('zoom-in', () => view.zoom(0.5));
  onClick('zoom-out', () => view.zoom(2));
  onClick('zoom-all', actions.reset);
  onClick('to-peak', actions.peak);
  onClick('peak-label', actions.peak);
  document.getElementById('axis').hidden = !trace.hasTime;
  for (const input of document.querySelectorAll('input[name="axis"]')) {
    input.addEventListener('change', () => view.setAxis(input.value));
  }
  const owners = [...document.querySelectorAll('button[data-owner]')];
  function highlight(owner) {
    view.setHighlight(owner);
    for (const button of owners) {
      button.setAttribute('aria-pressed', String(trace.owners[view.highlight] === button.dataset.owner));
    }
  }
  for (const button of owners) {
    button.addEventListener('click', () => highlight(trace.owners.indexOf(button.dataset.owner)));
  }
  const table = document.getElementById('phase-table');
  table.addEventListener('toggle', () => table.open && fillPhaseTable(table, trace, series, view));
}

start().then(
  // The second frame after the first drawing is the first that a person has surely seen.
  () => requestAnimationFrame(() => requestAnimationFrame(() => { window.dryfitReady = performance.now(); })),
  (error) => {
    const place = document.getElementById('failure');
    place.hidden = false;
    const told = 'All figures and the other tables are here.';
    place.textContent = `This browser cannot draw the pictures and the module tree: ${error.message}. ${told}`;
    document.documentElement.dataset.failed = '';
    console.error(error);
  },
);
