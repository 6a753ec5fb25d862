// The module tree at the peak. Rows are made when their parent opens: a large model has thousands of modules.
// Keys are those of every tree: up and down, right opens, left closes or goes to the parent.

const MOST_ROWS_AT_FIRST = 20;

function createTree(trace) {
  const body = document.getElementById('tree');
  if (!body) return;
  const root = toNode(trace.tree, null, 1);
  const whole = Math.max(root.size, 1);
  addRows(root, null);
  open(root);
  // The way to where the weight is, as far as one module has most of it and the rest of the page stays near.
  for (let node = root; node.children.length; ) {
    const heavy = node.children.find((child) => child.size * 2 > node.size && child.children.length);
    if (!heavy || body.children.length + heavy.children.length > MOST_ROWS_AT_FIRST) break;
    open(heavy);
    node = heavy;
  }
  root.row.tabIndex = 0;

  function toNode([name, kind, size, own, owners, children], parent, level) {
    const path = parent && parent.path ? `${parent.path}.${name}` : name;
    const node = { name, path, kind, size, own, owners, parent, level, isOpen: false, row: null };
    node.children = children.map((child) => toNode(child, node, level + 1));
    return node;
  }

  function addRows(node, after) {
    const { path, kind, size, own, owners, level, children } = node;
    const name = make('td', { role: 'gridcell', class: 'name' },
      make('span', { class: 'caret', 'aria-hidden': 'true' }),
      make('bdi', { title: path }, node.name || 'the model'),
      kind ? make('span', { class: 'kind' }, kind) : null);
    name.style.setProperty('--level', level - 1);
    node.row = make('tr', {
      role: 'row', 'aria-level': level, tabindex: -1, 'data-path': path,
      'aria-expanded': children.length ? 'false' : null,
    },
    name,
    make('td', { role: 'gridcell', class: 'number' }, formatBytes(size)),
    make('td', { role: 'gridcell', class: 'number own' }, own ? formatBytes(own) : '–'),
    make('td', { role: 'gridcell', class: 'number share' }, formatShare(size, whole)),
    make('td', { role: 'gridcell', class: 'weights' }, ownersBar(owners, whole, trace.owners)));
    node.row.node = node;
    if (after) after.after(node.row);
    else body.append(node.row);
    return node.row;
  }

  function open(node) {
    if (node.isOpen || !node.children.length) return;
    node.isOpen = true;
    node.row.setAttribute('aria-expanded', 'true');
    let after = node.row;
    for (const child of node.children) {
      after = addRows(child, after);
    }
  }

  function close(node) {
    for (const child of node.children) {
      if (!child.row) continue;
      close(child);
      child.row.remove();
      child.row = null;
    }
    if (!node.isOpen) return;
    node.isOpen = false;
    node.row.setAttribute('aria-expanded', 'false');
  }

  function focus(row) {
    if (!row) return;
    for (const other of body.querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
    row.tabIndex = 0;
    row.focus();
  }

  body.addEventListener('click', (event) => {
    const row = event.target.closest('tr');
    if (!row) return;
    focus(row);
    if (row.node.isOpen) close(row.node);
    else open(row.node);
  });

  body.addEventListener('keydown', (event) => {
    const row = event.target.closest('tr');
    if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
    const { node } = row;
    const keys = {
      ArrowDown: () => focus(row.nextElementSibling),
      ArrowUp: () => focus(row.previousElementSibling),
      ArrowRight: () => (node.isOpen ? focus(row.nextElementSibling) : open(node)),
      ArrowLeft: () => (node.isOpen ? close(node) : node.parent && focus(node.parent.row)),
      Home: () => focus(body.firstElementChild),
      End: () => focus(body.lastElementChild),
      Enter: () => (node.isOpen ? close(node) : open(node)),
      ' ': () => (node.isOpen ? close(node) : open(node)),
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
}
