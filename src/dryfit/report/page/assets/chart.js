// A picture: a canvas that is drawn when the window moves, and one over it for the cursor, so that pointing is cheap.

function createChart(element, gutters) {
  const [over, base] = ['over', 'base'].map((name) => {
    const canvas = document.createElement('canvas');
    canvas.className = name;
    canvas.setAttribute('aria-hidden', 'true');
    element.prepend(canvas);
    return canvas;
  });
  const chart = { element, base: base.getContext('2d'), over: over.getContext('2d'), ratio: 1, width: 0, height: 0 };

  // Gives whether the size has changed, and everything has to be drawn again.
  chart.measure = () => {
    const box = element.getBoundingClientRect();
    const ratio = Math.min(window.devicePixelRatio || 1, 3);
    if (chart.width === box.width && chart.height === box.height && chart.ratio === ratio) return false;
    Object.assign(chart, { width: box.width, height: box.height, ratio });
    for (const canvas of [base, over]) {
      canvas.width = Math.round(box.width * ratio);
      canvas.height = Math.round(box.height * ratio);
    }
    const left = box.width < 500 ? gutters.narrowLeft : gutters.left;
    chart.plot = {
      left,
      top: gutters.top,
      width: Math.max(1, box.width - left - gutters.right),
      height: Math.max(1, box.height - gutters.top - gutters.bottom),
    };
    return true;
  };
  chart.begin = (context) => {
    context.setTransform(chart.ratio, 0, 0, chart.ratio, 0, 0);
    context.clearRect(0, 0, chart.width, chart.height);
    context.font = '11px system-ui, -apple-system, "Segoe UI", sans-serif';
    context.textBaseline = 'middle';
    return context;
  };
  // The share of the plot's width and height at a place of the page.
  chart.locate = (clientX, clientY) => {
    const box = element.getBoundingClientRect();
    return {
      x: (clientX - box.left - chart.plot.left) / chart.plot.width,
      y: (clientY - box.top - chart.plot.top) / chart.plot.height,
    };
  };
  return chart;
}

function drawCursor(chart, view, theme) {
  const context = chart.begin(chart.over);
  const share = view.cursorMark(chart.plot.width);
  if (share < 0 || share > 1) return null;
  const { left, top, width, height } = chart.plot;
  const x = Math.round(left + share * width) + 0.5;
  context.strokeStyle = theme.ink;
  context.globalAlpha = view.isHeld ? 0.9 : 0.45;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(x, top);
  context.lineTo(x, top + height);
  context.stroke();
  context.globalAlpha = 1;
  return { context, x };
}
