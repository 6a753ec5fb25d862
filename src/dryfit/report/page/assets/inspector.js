// The figures of the moment under the cursor, and of the block, beside the pictures.

function createInspector(trace, series, view, footprint) {
  const element = document.getElementById('inspector');
  const live = document.getElementById('live');
  let spoken = 0;

  function show() {
    const { owners, total } = series.at(view.cursor);
    const reserved = series.reservedAt(view.cursor);
    element.dataset.event = view.cursor;
    element.dataset.bytes = total;
    element.dataset.block = view.block;
    element.replaceChildren(...[
      make('h3', {}, view.cursor === footprint.peakEvent ? 'At the peak' : 'At this moment'),
      view.isHeld && make('p', { class: 'held' }, 'Held, so that you can leave it. A click there, or Esc, lets go.'),
      make('p', { class: 'when' }, whenText(trace, view.cursor), make('br'), timeText()),
      make('p', { class: 'total' },
        make('strong', {}, formatBytes(total)), ' allocated', make('br'),
        make('span', { class: 'exact' }, `${formatCount(total)} bytes`)),
      ownerRows(owners, total),
      make('p', { class: 'reserved' },
        `${formatBytes(reserved)} reserved, ${formatBytes(reserved - total)} of it not allocated`),
      blockFacts(),
    ].filter(Boolean));
  }

  function timeText() {
    return view.cursor >= 0 && trace.hasTime ? `about ${formatTime(timeOf(trace, view.cursor))} after the first` : '';
  }

  function ownerRows(owners, total) {
    const rows = make('tbody');
    for (let o = owners.length - 1; o >= 0; o--) { // as they lie on each other in the picture
      if (!owners[o]) continue;
      rows.append(make('tr', { 'data-owner': trace.owners[o], 'data-bytes': owners[o] },
        make('th', { scope: 'row' }, swatch(o), trace.owners[o]),
        make('td', {}, formatBytes(owners[o])),
        make('td', { class: 'share' }, formatShare(owners[o], total))));
    }
    return make('table', { class: 'owners' }, make('caption', { class: 'unseen' }, 'Owners at this moment'), rows);
  }

  function blockFacts() {
    if (view.block < 0) {
      return make('p', { class: 'hint' },
        'Point at a block, or tap it, for its owner, module, line, size and lifetime. A click holds it.');
    }
    const list = make('dl', { class: 'block' });
    for (const [name, text] of describeBlock(trace, series, view.block)) {
      list.append(make('dt', {}, name), make('dd', { 'data-fact': name }, text));
    }
    const owner = trace.sites.owner[trace.site[view.block]];
    const frames = stackOf(trace, view.block);
    return make('section', { class: 'facts' },
      make('h3', {}, swatch(owner), 'Block'),
      list,
      frames.length && view.isHeld
        ? make('details', {}, make('summary', {}, `Stack, ${plural(frames.length, 'frame')}`),
          make('ol', { class: 'stack' }, ...frames.map((frame) => make('li', {}, frame))))
        : null);
  }

  // Said after keys only: what a pointer passes over is not worth interrupting anybody for.
  function say() {
    clearTimeout(spoken);
    spoken = setTimeout(() => {
      const { owners, total } = series.at(view.cursor);
      const largest = [...owners.keys()].filter((o) => owners[o]).sort((a, b) => owners[b] - owners[a]).slice(0, 3);
      const held = largest.map((o) => `${trace.owners[o]} ${formatBytes(owners[o])}`).join(', ');
      const moment = `${whenText(trace, view.cursor)}: ${formatBytes(total)} allocated${held ? `; ${held}` : ''}.`;
      const facts = view.block < 0 ? [] : describeBlock(trace, series, view.block).map((fact) => fact.join(' '));
      live.textContent = facts.length ? `Block: ${facts.join(', ')}.` : moment;
    }, 120);
  }

  return { show, say };
}
