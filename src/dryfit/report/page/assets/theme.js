// Colours come from the style sheet; the canvases read them again whenever dark and light change.

const HATCH = 7; // pixels from line to line
const HATCHED = new Set(['autocast weight copy', 'workspace', 'block remainder', 'unknown']);

function readTheme(owners) {
  const probe = document.getElementById('probe');
  const colour = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const theme = {};
  for (const name of ['ink', 'muted', 'line', 'surface', 'band', 'band-strong', 'segment', 'limit', 'accent']) {
    theme[name.replace(/-./, (dash) => dash[1].toUpperCase())] = colour(name);
  }
  theme.owners = owners.map((_, i) => colour(`owner-${i}`));
  theme.isHatched = owners.map((name) => HATCHED.has(name));
  theme.hatch = hatchTile(colour('hatch'));
  return theme;
}

function hatchTile(colour) {
  const tile = document.createElement('canvas');
  tile.width = tile.height = HATCH;
  const context = tile.getContext('2d');
  context.strokeStyle = colour;
  context.lineWidth = 1.2;
  for (const shift of [-HATCH, 0, HATCH]) {
    context.moveTo(shift, HATCH);
    context.lineTo(shift + HATCH, 0);
  }
  context.stroke();
  return tile;
}

function channels(colour) {
  return colour.match(/[\d.]+/g).slice(0, 3).map(Number);
}

// What a colour looks like under a line of hatching, half as strong as the line's own.
function mixed(colour, other, share) {
  const [a, b] = [channels(colour), channels(other)];
  return `rgb(${a.map((c, i) => Math.round(c * (1 - share) + b[i] * share)).join(', ')})`;
}

// A pixel of an image's data, as one little-endian number.
function pixelOf(colour, alpha = 255) {
  const [red, green, blue] = channels(colour);
  return ((alpha << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

// Black or white, whichever stands out more: at least 4.58 to 1, by the WCAG's formula.
function textOn(colour) {
  const linear = (share) => (share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4);
  const [red, green, blue] = channels(colour).map((channel) => linear(channel / 255));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? '#000000' : '#ffffff';
}

function watchTheme(onChange) {
  const root = document.documentElement;
  const isDark = matchMedia('(prefers-color-scheme: dark)');
  const button = document.getElementById('theme');
  const current = () => root.dataset.theme || (isDark.matches ? 'dark' : 'light');
  const name = () => {
    button.textContent = current() === 'dark' ? 'Light' : 'Dark';
    button.setAttribute('aria-label', `Show the page in ${current() === 'dark' ? 'light' : 'dark'} colours`);
  };
  button.hidden = false;
  button.addEventListener('click', () => {
    root.dataset.theme = current() === 'dark' ? 'light' : 'dark';
    name();
    onChange();
  });
  isDark.addEventListener('change', () => { name(); onChange(); });
  // On paper it is light, and the pictures have a width that fits the paper's before they are drawn for it.
  let before;
  addEventListener('beforeprint', () => {
    before = root.dataset.theme;
    root.dataset.theme = 'light';
    root.dataset.printing = '';
    onChange();
  });
  addEventListener('afterprint', () => {
    if (before) root.dataset.theme = before;
    else delete root.dataset.theme;
    delete root.dataset.printing;
    onChange();
  });
  name();
}
