// Pointer, wheel and touch on a picture. The page's own scrolling stays the page's: the wheel zooms only once the
// picture has been clicked (it has the focus), or with Ctrl or a pinch, which browsers report as Ctrl.

const CLICK_SLACK = 4; // pixels a pointer may move and still be a click

function attachPointer(picture, view, addresses) {
  const { chart } = picture;
  const { element } = chart;
  const pointers = new Map();
  let moved = 0;
  const home = view.cursor; // where the cursor goes back to when the mouse leaves

  element.addEventListener('pointerdown', (event) => {
    if (event.button) return;
    pointers.set(event.pointerId, event);
    moved = 0;
  });

  element.addEventListener('pointermove', (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) {
      if (event.pointerType !== 'touch' && !view.isHeld) hover(event);
      return;
    }
    moved = Math.max(moved, Math.hypot(event.clientX - before.clientX, event.clientY - before.clientY));
    if (moved <= CLICK_SLACK && pointers.size === 1) return;
    element.setPointerCapture(event.pointerId); // from now on it is no click, not even on the peak's label
    if (pointers.size === 2) pinch(event);
    else {
      view.pan((before.clientX - event.clientX) / chart.plot.width);
      if (addresses) addresses.panAddresses((event.clientY - before.clientY) / chart.plot.height);
    }
    pointers.set(event.pointerId, event);
  });

  element.addEventListener('pointerup', (event) => {
    const wasClick = pointers.size === 1 && moved <= CLICK_SLACK;
    if (pointers.delete(event.pointerId) && wasClick && !event.target.closest('button')) click(event);
  });
  element.addEventListener('pointercancel', (event) => pointers.delete(event.pointerId));

  element.addEventListener('pointerleave', (event) => {
    pointers.delete(event.pointerId);
    if (event.pointerType !== 'touch' && !view.isHeld) view.point({ cursor: home, block: -1 });
  });

  element.addEventListener('wheel', (event) => {
    const isMeant = event.ctrlKey || event.metaKey || document.activeElement === element;
    if (!isMeant) return;
    event.preventDefault();
    const { x, y } = chart.locate(event.clientX, event.clientY);
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      view.pan(event.deltaX / chart.plot.width);
      return;
    }
    const factor = Math.exp(Math.min(Math.max(event.deltaY, -240), 240) * (event.ctrlKey ? 0.01 : 0.002));
    zoom(factor, x, y, event.shiftKey);
  }, { passive: false });

  function zoom(factor, x, y, isAddressesOnly) {
    if (!isAddressesOnly) view.zoom(factor, view.u0 + x * (view.u1 - view.u0));
    if (addresses) addresses.zoomAddresses(factor, Math.min(Math.max(y, 0), 1));
  }

  function pinch(event) {
    const [other] = [...pointers.values()].filter((pointer) => pointer.pointerId !== event.pointerId);
    const before = pointers.get(event.pointerId);
    const apart = (one) => Math.max(20, Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY));
    const middle = chart.locate((event.clientX + other.clientX) / 2, (event.clientY + other.clientY) / 2);
    zoom(apart(before) / apart(event), middle.x, middle.y, false);
    moved = CLICK_SLACK + 1;
  }

  function hover(event) {
    const found = picture.pick(chart.locate(event.clientX, event.clientY));
    if (found) view.point(found);
  }

  // A click holds the moment, so that the pointer can leave for the figures; another lets it go.
  function click(event) {
    element.focus({ preventScroll: true });
    const found = picture.pick(chart.locate(event.clientX, event.clientY));
    if (!found) return;
    const isSame = view.isHeld && found.cursor === view.cursor && found.block === view.block;
    view.point({ ...found, isHeld: !isSame });
  }
}

function attachKeys(element, view, actions) {
  const keys = {
    ArrowLeft: (event) => (event.shiftKey ? actions.phasePeak(-1) : view.moveTo(view.cursor - 1)),
    ArrowRight: (event) => (event.shiftKey ? actions.phasePeak(1) : view.moveTo(view.cursor + 1)),
    ArrowUp: () => actions.block(-1),
    ArrowDown: () => actions.block(1),
    PageUp: () => view.moveTo(view.eventAt(view.share(view.cursor + 0.5) - 0.1)),
    PageDown: () => view.moveTo(view.eventAt(view.share(view.cursor + 0.5) + 0.1)),
    Home: () => view.moveTo(BEFORE),
    End: () => view.moveTo(Infinity),
    '+': () => view.zoom(0.5),
    '=': () => view.zoom(0.5),
    '-': () => view.zoom(2),
    p: () => actions.peak(),
    P: () => actions.peak(),
    Escape: () => actions.reset(),
  };
  element.addEventListener('keydown', (event) => {
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey || event.target !== element) return;
    event.preventDefault();
    act(event);
    actions.say();
  });
}
