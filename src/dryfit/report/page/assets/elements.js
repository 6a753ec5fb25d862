// Elements with text. Recordings hold whatever a program named its things: nothing here ever reads text as HTML.

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name === 'class') element.className = value;
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function swatch(owner) {
  return make('i', { class: `swatch owner-${owner}`, 'aria-hidden': 'true' });
}

// A bar of parts, each of an owner, as wide as its share of the whole.
function ownersBar(parts, whole, names) {
  const label = parts.map(([owner, bytes]) => `${names[owner]} ${formatBytes(bytes)}`).join(', ');
  const bar = make('span', { class: 'minibar', role: 'img', 'aria-label': label, title: label });
  for (const [owner, bytes] of parts) {
    const part = make('i', { class: `owner-${owner}` });
    part.style.width = `${(100 * bytes) / whole}%`;
    bar.append(part);
  }
  return bar;
}
