// Figures as text, exactly as dryfit.units.format_bytes prints them in Python.

const UNITS = [['TiB', 2 ** 40], ['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]];

function formatBytes(bytes) {
  const size = Math.abs(bytes);
  const sign = bytes < 0 ? '-' : '';
  for (const [name, unit] of UNITS) {
    if (size >= unit) return `${sign}${hundredths(size, unit)} ${name}`;
  }
  return `${sign}${size} B`;
}

// Python rounds 8.125 to 8.12 (half to even), toFixed would give 8.13: so whole numbers, which are exact here.
function hundredths(size, unit) {
  let parts = Math.floor(size / unit) * 100;
  const rest = (size % unit) * 100;
  parts += Math.floor(rest / unit);
  const left = rest % unit;
  if (left * 2 > unit || (left * 2 === unit && parts % 2 === 1)) parts += 1;
  return `${Math.floor(parts / 100)}.${String(parts % 100).padStart(2, '0')}`;
}

function formatCount(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, ',');
}

function plural(count, noun) {
  return `${formatCount(count)} ${noun}${count === 1 ? '' : 's'}`;
}

function formatTime(microseconds) {
  if (microseconds >= 1e6) return `${(microseconds / 1e6).toFixed(3)}\u00a0s`;
  if (microseconds >= 1e3) return `${(microseconds / 1e3).toFixed(3)}\u00a0ms`;
  return `${Math.round(microseconds)}\u00a0µs`;
}

function stepName(step) {
  return step ? `step ${step}` : 'setup';
}

// A share of a whole, for people: never "0 %" of something, never "100 %" of less than all.
function formatShare(part, whole) {
  if (!whole || !part) return '0 %';
  const percent = (100 * part) / whole;
  if (percent < 0.1) return '< 0.1 %';
  if (part < whole && percent > 99.9) return '> 99.9 %';
  return `${percent.toFixed(1)} %`;
}

// Round steps for an axis of bytes: 1, 2 and 4 times powers of two within a unit, so that labels are whole.
function byteTicks(low, high, most) {
  let step = 512;
  while ((high - low) / step > most) step *= 2;
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) ticks.push(tick);
  return ticks;
}

function formatTick(bytes) {
  for (const [name, unit] of UNITS) {
    if (bytes >= unit) return `${Number((bytes / unit).toFixed(2))} ${name}`;
  }
  return bytes ? `${bytes} B` : '0';
}
