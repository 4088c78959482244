'use strict';

// The page draws the Report of package launcher/report, which is in the element #data. Texts are
// the program's: they get into the page as text alone.

const SVG = 'http://www.w3.org/2000/svg';
const page = document.getElementById('page');
let report = JSON.parse(document.getElementById('data').textContent);
let view = null;     // what the time line shows: {from, to} in seconds; null: all
let selected = null; // of the time line: {row, slice}

// make returns an element with attributes and children, which are elements or text.
function make(name, attributes = {}, ...children) {
  const [tag, ...classes] = name.split('.');
  const svg = ['svg', 'path', 'line', 'rect', 'text', 'circle'].includes(tag);
  const e = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  if (classes.length) e.setAttribute('class', classes.join(' '));
  for (const [key, value] of Object.entries(attributes)) {
    if (key === 'style') e.style.cssText = value;
    else if (key.startsWith('on')) e.addEventListener(key.slice(2), value);
    else e.setAttribute(key, value);
  }
  e.append(...children);
  return e;
}

const color = name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();

function time(s) {
  const a = Math.abs(s);
  if (a === 0) return '0 s';
  if (a < 1e-3) return digits(s * 1e6) + ' µs';
  if (a < 1) return digits(s * 1e3) + ' ms';
  return digits(s) + ' s';
}

function size(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];
  let i = 0;
  for (; n >= 999.5 && i < units.length - 1; i++) n /= 1024;
  return digits(n) + ' ' + units[i];
}

function digits(x) {
  if (x !== 0 && (Math.abs(x) < 1e-3 || Math.abs(x) >= 1e6)) return x.toExponential(2);
  return String(Number(x.toPrecision(3)));
}

const percent = x => (100 * x).toFixed(x > 0 && x < 0.0995 ? 1 : 0) + ' %';
const sum = (list, f) => list.reduce((s, x) => s + f(x), 0);

// The parts of a rank's time: field, colour, words.
const parts = [['Compute', 'compute', 'computing'], ['Wait', 'wait', 'waiting for others'],
  ['Communicate', 'communicate', 'communicating'], ['Input', 'input', 'taking input']];

function section(id, title, ...children) {
  return make('section', {id, 'aria-labelledby': id + '-title'}, make('h2', {id: id + '-title'}, title), ...children);
}

function legend(entries) {
  return make('div.legend', {}, ...entries.map(([name, text]) =>
    make('span', {}, make('i', {style: 'background:' + (name.startsWith('hsl') ? name : `var(--${name})`)}), text)));
}

// head is what the reader is to know first.
function head() {
  const s = report.Slowest;
  const total = sum(report.Ranks, r => r.Seconds) || 1;
  const tiles = [[time(report.Seconds), report.Running ? 'so far' : 'from start to end'], [String(report.Ranks.length), 'ranks']];
  for (const [field, , text] of parts) tiles.push([percent(sum(report.Ranks, r => r[field]) / total), text]);
  const memory = Math.max(0, ...report.Ranks.map(r => r.Memory));
  if (memory > 0) tiles.push([size(memory), 'most memory of a rank']);
  const links = [...page.querySelectorAll('section[id]')].map(e => make('a', {href: '#' + e.id}, e.querySelector('h2').textContent));
  const first = s
    ? make('section.slowest', {role: 'status'}, make('strong', {}, `Rank ${s.Rank} was the slowest`),
      `: the others waited ${time(s.Seconds)} for it, ${percent(s.Share)} of all waiting.`,
      s.Ratio > 0 ? make('p', {}, `It computed and took input ${digits(s.Ratio)} times as long as the median of the other ranks.`) : '')
    : make('section.slowest.none', {role: 'status'}, report.Ranks.length > 1 ? 'No rank was much slower than the others.' : 'The job has one rank.');
  return [make('h1', {}, report.Title || 'gorun report'), make('div.live', {id: 'live'}), first,
    make('section', {}, make('div.tiles', {}, ...tiles.map(([big, small]) => make('div.tile', {}, make('b', {}, big), make('span', {}, small))))),
    make('nav', {'aria-label': 'sections'}, ...links)];
}

// ranks is a bar a rank: where its time went.
function ranks() {
  const most = Math.max(...report.Ranks.map(r => r.Seconds), 1e-9);
  const heads = ['rank', '', 'computing', 'waiting', 'communicating', 'input', 'others waited for it', 'most memory', 'host'];
  const rows = report.Ranks.map(r => {
    const bar = make('div.share', {role: 'img', 'aria-label': parts.map(([f, , text]) => `${time(r[f])} ${text}`).join(', ')});
    for (const [field, name, text] of parts) {
      if (r[field] > 0) bar.append(make('i', {style: `background:var(--${name});width:${100 * r[field] / most}%`, title: `${time(r[field])} ${text}`}));
    }
    const cells = [...parts.map(([field]) => time(r[field])), time(r.Blamed), r.Memory ? size(r.Memory) : ''];
    return make('tr', {}, make('td.n', {'data-head': 'rank'}, String(r.Rank)), make('td.bar', {style: 'width:40%'}, bar),
      ...cells.map((text, i) => make('td.n', {'data-head': heads[i + 2]}, text)),
      make('td.where', {'data-head': 'host'}, r.Host + (r.Ended || report.Live ? '' : ' (did not end)')));
  });
  return section('time', 'Where the time went', legend(parts.map(p => [p[1], p[2]])), make('div.scroll', {}, make('table.stack', {},
    make('thead', {}, make('tr', {}, ...heads.map((h, i) => make(i === 1 || i === heads.length - 1 ? 'th' : 'th.n', {scope: 'col'}, h)))),
    make('tbody', {}, ...rows))));
}

// ticks are about n round numbers from lo to hi.
function ticks(lo, hi, n) {
  const raw = (hi - lo) / n || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(m => m * power).find(s => s >= raw);
  const list = [];
  for (let t = Math.ceil(lo / step) * step; t <= hi + step * 1e-9; t += step) list.push(Math.abs(t) < step * 1e-9 ? 0 : t);
  return list;
}

// chart draws curves over steps, if these are known, or seconds.
function chart(title, curves, form, zero) {
  const w = 420, h = 214, right = 10, top = 8, bottom = 38;
  const points = curves.flatMap(c => c.Points);
  const bySteps = !zero && points.every(p => p[1] >= 0) && new Set(points.map(p => p[1])).size > 1;
  const x = p => bySteps ? p[1] : p[0];
  const xs = points.map(x), ys = points.map(p => p[2]);
  const bound = (f, list) => list.reduce((a, b) => f(a, b));
  let [x0, x1, y0, y1] = [bound(Math.min, xs), bound(Math.max, xs), zero ? 0 : bound(Math.min, ys), bound(Math.max, ys)];
  if (x1 === x0) x1 = x0 + 1;
  if (y1 === y0) [y0, y1] = [y0 - Math.abs(y0 || 1) / 2, y1 + Math.abs(y1 || 1) / 2];
  const unit = form === size ? 1024 ** Math.floor(Math.log(Math.max(1, y1)) / Math.log(1024)) : 1;
  const values = ticks(y0 / unit, y1 / unit, 4).map(t => t * unit);
  const left = Math.max(54, ...values.map(t => 10 + 8.5 * form(t).length));
  const px = v => left + (v - x0) / (x1 - x0) * (w - left - right), py = v => top + (y1 - v) / (y1 - y0) * (h - top - bottom);
  const svg = make('svg', {viewBox: `0 0 ${w} ${h}`, role: 'img', tabindex: '0', 'aria-label': `${title}: left and right keys read points`});
  for (const t of values) {
    svg.append(make('line.grid', {x1: left, x2: w - right, y1: py(t), y2: py(t)}), make('text', {x: left - 6, y: py(t) + 4, 'text-anchor': 'end'}, form(t)));
  }
  for (const t of ticks(x0, x1, 5)) svg.append(make('text', {x: px(t), y: h - 22, 'text-anchor': 'middle'}, digits(t)));
  svg.append(make('text', {x: (left + w - right) / 2, y: h - 6, 'text-anchor': 'middle'}, bySteps ? 'step' : 'seconds'));
  curves.forEach((c, i) => svg.append(make('path.curve', {
    d: c.Points.map((p, k) => (k ? 'L' : 'M') + px(x(p)).toFixed(1) + ' ' + py(p[2]).toFixed(1)).join(''),
    style: 'stroke:' + (curves.length === 1 ? 'var(--compute)' : hue(i, curves.length))})));
  const mark = make('line.grid', {y1: top, y2: h - bottom, visibility: 'hidden', style: 'stroke:var(--soft)'});
  svg.append(mark);
  const out = make('output', {});
  const base = curves.reduce((a, b) => b.Points.length > a.Points.length ? b : a);
  const nearest = (list, v) => list.reduce((a, b) => Math.abs(x(b) - v) < Math.abs(x(a) - v) ? b : a);
  let at = base.Points.length - 1;
  function read(v) {
    mark.setAttribute('x1', px(v)); mark.setAttribute('x2', px(v)); mark.setAttribute('visibility', 'visible');
    const some = curves.map(c => [c.Name, nearest(c.Points, v)[2]]).sort((a, b) => b[1] - a[1]);
    out.textContent = (bySteps ? 'step ' : '') + digits(v) + (bySteps ? ': ' : ' s: ') +
      (some.length === 1 ? form(some[0][1]) : some.slice(0, 4).map(([n, y]) => `${n} ${form(y)}`).join(', ') + (some.length > 4 ? ', …' : ''));
  }
  function last() {
    mark.setAttribute('visibility', 'hidden');
    const ends = curves.map(c => [c.Name, c.Points[c.Points.length - 1][2]]).sort((a, b) => b[1] - a[1]);
    out.textContent = 'last: ' + (ends.length === 1 ? form(ends[0][1])
      : `${ends[0][0]} has most, ${form(ends[0][1])}, ${ends[ends.length - 1][0]} least, ${form(ends[ends.length - 1][1])}`);
  }
  svg.addEventListener('pointermove', e => {
    const box = svg.getBoundingClientRect();
    const v = x0 + ((e.clientX - box.left) / box.width * w - left) / (w - left - right) * (x1 - x0);
    at = base.Points.indexOf(nearest(base.Points, v));
    read(x(base.Points[at]));
  });
  svg.addEventListener('pointerleave', last);
  svg.addEventListener('keydown', e => {
    const by = {ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity}[e.key];
    if (by === undefined) return;
    e.preventDefault();
    at = Math.min(base.Points.length - 1, Math.max(0, at + by));
    read(x(base.Points[at]));
  });
  last();
  return make('div.chart', {}, make('h3', {}, title), out, svg);
}

const dark = () => matchMedia('(prefers-color-scheme: dark)').matches;
const hue = (i, n) => `hsl(${Math.round(210 + 360 * i / n) % 360} 60% ${dark() ? 60 : 45}%)`;

function metrics() {
  const metric = (report.Metrics || []).filter(m => m.Points.length > 0);
  const charts = metric.map(m => chart(m.Name, [m], digits, false));
  const memory = (report.Memory || []).filter(m => m.Points.length > 0);
  if (memory.length) charts.push(chart('memory of each rank', memory, size, true));
  if (!charts.length) return [];
  const note = metric.length > (metric.some(m => m.Name === 'steps/s') ? 1 : 0) ? ''
    : make('p', {}, 'The program has told no metric; runtime.Metric does, and so does package train.');
  return [section('metrics', 'Curves', note, make('div.charts', {}, ...charts))];
}

// Kinds of slices of the time line, as Go has them, and the line of a rank's row they are on.
const OPERATOR = 0, GRADIENT = 1, SPAN = 2, CALL = 3, ASYNC = 4, WAIT = 5, STEP = 6;
const UNIT = 1e-7; // seconds
const bands = {[SPAN]: 0, [OPERATOR]: 1, [GRADIENT]: 1, [CALL]: 2, [WAIT]: 2, [ASYNC]: 2};

function timeLine() {
  const rows = report.TimeLine.Rows.filter(r => r.Slices.length);
  if (!rows.length) return [];
  const starts = rows.flatMap(r => [r.Slices[0][0]]), ends = rows.flatMap(r => r.Slices.map(s => s[0] + s[1]));
  const all = {from: starts.reduce((a, b) => Math.min(a, b)) * UNIT, to: ends.reduce((a, b) => Math.max(a, b)) * UNIT};
  if (all.to <= all.from) all.to = all.from + 1e-6;
  if (!view) view = {...all};
  const rowHeight = rows.length <= 16 ? 34 : 20, axis = 20, left = 52;
  const canvas = make('canvas', {tabindex: '0', role: 'application',
    'aria-label': 'time line: plus and minus zoom, left and right move, n and p select a slice, up and down another rank'});
  const detail = make('div.detail', {'aria-live': 'polite'}, 'Point at a slice, or press n.');
  const shown = name => report.TimeLine.Texts[name] || '';

  function draw() {
    const width = canvas.clientWidth || 800, height = axis + rows.length * rowHeight, ratio = devicePixelRatio || 1;
    canvas.style.height = height + 'px';
    canvas.width = width * ratio; canvas.height = height * ratio;
    const g = canvas.getContext('2d');
    g.scale(ratio, ratio);
    const ink = color('soft'), line = color('line');
    const fill = [color('compute'), color('backward'), color('span'), color('communicate'), color('communicate'), color('wait')];
    const px = s => left + (s - view.from) / (view.to - view.from) * (width - left);
    g.font = '11px system-ui, sans-serif';
    g.fillStyle = ink;
    g.textAlign = 'center';
    for (const t of ticks(view.from, view.to, Math.max(2, width / 100))) {
      if (px(t) < left + 20 || px(t) > width - 24) continue;
      g.fillText(tickText(t), px(t), 12);
      g.fillRect(px(t), 16, 1, 4);
    }
    rows.forEach((row, k) => {
      const y = axis + k * rowHeight, h = (rowHeight - 5) / 3;
      g.textAlign = 'left';
      g.fillStyle = ink;
      g.fillText(rowHeight > 25 ? 'rank ' + row.Rank : String(row.Rank), 2, y + rowHeight / 2 + 3);
      g.fillStyle = line;
      g.fillRect(0, y + rowHeight - 1, width, 1);
      // Below the calls: what the rank does outside of them.
      const first = Math.max(left, px(row.Slices[0][0] * UNIT)), end = Math.min(width, px(all.to));
      g.fillStyle = fill[OPERATOR];
      g.globalAlpha = 0.28;
      if (end > first) g.fillRect(first, y + 1 + 2 * (h + 1), end - first, h);
      g.globalAlpha = 1;
      const until = {}; // the last pixel that was drawn, by band and kind: what is narrower than one is drawn once
      for (const s of row.Slices) {
        const a = px(s[0] * UNIT), b = px((s[0] + s[1]) * UNIT);
        if (b < left || a > width) continue;
        if (s[2] === STEP) {
          g.fillStyle = line;
          g.fillRect(Math.max(left, a), y, 1, rowHeight - 1);
          continue;
        }
        const key = s[2] + (s[5] > 0 ? 10 : 0), from = Math.max(left, a), to = Math.max(from + 0.6, Math.min(width, b));
        if (to < (until[key] || -1) + 0.3) continue;
        until[key] = to;
        const top = y + 1 + bands[s[2]] * (h + 1);
        g.fillStyle = fill[s[2]];
        g.globalAlpha = s[2] === ASYNC ? 0.45 : 1;
        g.fillRect(from, top, to - from, h);
        g.globalAlpha = 1;
        if (s[5] > 0) {
          g.fillStyle = fill[WAIT];
          const w = Math.min(width, px((s[0] + s[5]) * UNIT)) - from;
          if (w > 0) g.fillRect(from, top, Math.max(w, 0.6), h);
        }
        if (to - from > 60 && h > 8 && s[2] !== STEP) label(g, shown(s[3]), from, top, to - from, h);
      }
    });
    if (selected && rows[selected.row]) {
      const s = rows[selected.row].Slices[selected.slice];
      if (s) {
        const h = (rowHeight - 5) / 3, y = axis + selected.row * rowHeight + 1 + (bands[s[2]] || 0) * (h + 1);
        g.strokeStyle = color('ink');
        g.lineWidth = 2;
        g.strokeRect(px(s[0] * UNIT), y, Math.max(2, s[1] * UNIT / (view.to - view.from) * (width - left)), h);
      }
    }
  }
  const tickText = t => {
    const span = view.to - view.from, places = Math.max(0, Math.min(7, 1 - Math.floor(Math.log10(span / 5))));
    return span < 0.5 ? (t * 1e3).toFixed(Math.max(0, places - 3)) + ' ms' : t.toFixed(places) + ' s';
  };
  function label(g, text, x, y, w, h) {
    g.save();
    g.beginPath();
    g.rect(x, y, w - 3, h);
    g.clip();
    g.fillStyle = '#fff';
    g.font = '9px system-ui, sans-serif';
    g.textAlign = 'left';
    g.fillText(text, x + 3, y + h - 1.5);
    g.restore();
  }
  function show(row, slice) {
    selected = {row, slice};
    const s = rows[row].Slices[slice], lines = [`rank ${rows[row].Rank}, at ${time(s[0] * UNIT)}: `];
    if (s[2] === STEP) lines.push(`step ${s[3]} begins`);
    else {
      lines.push(`${s[2] === ASYNC ? 'asynchronous ' : ''}${shown(s[3])}, ${time(s[1] * UNIT)}`);
      if (s[5] > 0) lines.push(`, of which it waited ${time(s[5] * UNIT)} for others`);
      if (shown(s[4])) lines.push(` — ${shown(s[4])}`);
    }
    detail.textContent = lines.join('');
  }
  function find(e) {
    const box = canvas.getBoundingClientRect(), row = Math.floor((e.clientY - box.top - axis) / rowHeight);
    if (!rows[row]) return;
    const perPixel = (view.to - view.from) / (box.width - left);
    const t = view.from + (e.clientX - box.left - left) * perPixel;
    const band = Math.min(2, Math.floor((e.clientY - box.top - axis - row * rowHeight) / ((rowHeight - 5) / 3 + 1)));
    let best = -1, off = 3 * perPixel;
    rows[row].Slices.forEach((s, i) => {
      if (bands[s[2]] !== band) return;
      const d = Math.max(s[0] * UNIT - t, t - (s[0] + s[1]) * UNIT, 0);
      if (d <= off) { best = i; off = d; }
    });
    if (best >= 0) { show(row, best); draw(); }
  }
  function zoom(factor, at = (view.from + view.to) / 2) {
    const span = Math.min(all.to - all.from, Math.max(1e-6, (view.to - view.from) * factor));
    const share = (at - view.from) / (view.to - view.from);
    move(at - share * span - view.from, span);
  }
  function move(by, span = view.to - view.from) {
    const from = Math.min(Math.max(all.from, view.from + by), all.to - span);
    view = {from, to: from + span};
    draw();
  }
  function step(by) { // to the next slice that is no step
    const row = selected ? selected.row : 0;
    let i = selected ? selected.slice + by : rows[row].Slices.findIndex(s => s[0] * UNIT >= view.from);
    while (rows[row].Slices[i] && rows[row].Slices[i][2] === STEP) i += by;
    const s = rows[row].Slices[i];
    if (!s) return;
    show(row, i);
    if (s[0] * UNIT < view.from || (s[0] + s[1]) * UNIT > view.to) move(s[0] * UNIT - view.from - (view.to - view.from) / 4);
    else draw();
  }
  function rank(by) {
    const row = Math.min(rows.length - 1, Math.max(0, (selected ? selected.row : -1) + by));
    const t = selected ? rows[selected.row].Slices[selected.slice][0] : view.from / UNIT;
    const i = rows[row].Slices.findIndex(s => s[0] + s[1] >= t && s[2] !== STEP);
    if (i >= 0) { show(row, i); draw(); }
  }
  const keys = {'+': () => zoom(0.6), '=': () => zoom(0.6), '-': () => zoom(1 / 0.6), ArrowLeft: () => move(-(view.to - view.from) / 8),
    ArrowRight: () => move((view.to - view.from) / 8), n: () => step(1), p: () => step(-1), ArrowUp: () => rank(-1), ArrowDown: () => rank(1),
    '0': () => { view = {...all}; draw(); }};
  canvas.addEventListener('keydown', e => {
    if (!keys[e.key] || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    keys[e.key]();
  });
  let drag = null;
  canvas.addEventListener('pointerdown', e => { drag = {x: e.clientX, moved: false}; canvas.setPointerCapture(e.pointerId); });
  canvas.addEventListener('pointerup', () => { drag = null; });
  canvas.addEventListener('pointermove', e => {
    if (!drag) return find(e);
    const by = (drag.x - e.clientX) * (view.to - view.from) / (canvas.clientWidth - left);
    drag.x = e.clientX;
    move(by);
  });
  canvas.addEventListener('wheel', e => {
    if (!e.ctrlKey && !e.shiftKey) return; // else the page scrolls
    e.preventDefault();
    const box = canvas.getBoundingClientRect();
    zoom(e.deltaY > 0 || e.deltaX > 0 ? 1.25 : 0.8, view.from + (e.clientX - box.left - left) * (view.to - view.from) / (box.width - left));
  }, {passive: false});
  new ResizeObserver(draw).observe(canvas);
  const button = (text, key, title) => make('button', {type: 'button', title, onclick: keys[key]}, text);
  return [section('timeline', 'Time line', legend([['span', 'span of the program'], ['compute', 'operator'], ['backward', 'its gradient'],
    ['between', 'between calls'], ['communicate', 'communicating'], ['wait', 'waiting for others']]),
    make('div.tools', {}, button('zoom in', '+', 'key +'), button('zoom out', '-', 'key −'), button('←', 'ArrowLeft', 'key left'),
      button('→', 'ArrowRight', 'key right'), button('previous slice', 'p', 'key p'), button('next slice', 'n', 'key n'), button('rank above', 'ArrowUp', 'key up'),
      button('rank below', 'ArrowDown', 'key down'), button('all', '0', 'key 0')),
    canvas, detail, make('p', {}, 'Thin lines are where steps begin. Drag to move; Ctrl or Shift and the wheel zoom.'))];
}

// traffic is a table of who sent how much to whom.
function traffic() {
  const t = report.Traffic, n = t.Names.length;
  if (n < 2) return [];
  const most = Math.max(...t.Bytes.flat());
  if (most <= 0) return [];
  const detail = make('div.detail', {'aria-live': 'polite'}, 'Point at a cell, or press an arrow key in the table.');
  const cell = (bytes, i, k) => {
    const text = `from ${t.Names[i]} to ${t.Names[k]}: ${size(bytes)}`, say = () => { detail.textContent = text; };
    return make('td', {style: bytes > 0 ? `background:color-mix(in oklab, var(--heat) ${Math.round(8 + 62 * bytes / most)}%, var(--card))` : '',
      title: text, 'aria-label': text, tabindex: i + k ? '-1' : '0', onfocus: say, onpointerenter: say},
    bytes > 0 ? size(bytes) : i === k ? '' : '0');
  };
  const table = make(n > 12 ? 'table.heat.many' : 'table.heat', {},
    make('thead', {}, make('tr', {}, make('th', {scope: 'col'}, 'from \\ to'), ...t.Names.map(name => make('th', {scope: 'col'}, name)))),
    make('tbody', {}, ...t.Bytes.map((row, i) => make('tr', {}, make('th', {scope: 'row'}, t.Names[i]), ...row.map((b, k) => cell(b, i, k))))));
  // One cell at a time is in the order of Tab; the arrow keys move it.
  table.addEventListener('keydown', e => {
    const by = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -n], End: [0, n]}[e.key];
    const row = e.target.parentElement, at = [row.sectionRowIndex, e.target.cellIndex - 1];
    if (!by || e.target.tagName !== 'TD') return;
    e.preventDefault();
    const [i, k] = at.map((v, d) => Math.min(n - 1, Math.max(0, v + by[d])));
    const next = table.tBodies[0].rows[i].cells[k + 1];
    e.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  return [section('traffic', 'Who sent how much to whom', make('p.narrow', {}, 'The table scrolls sideways.'), make('div.scroll', {}, table), detail,
    make('p', {}, 'Of collectives: what has to go if all parts are of one size; how it is sent may differ.'))];
}

function table(id, title, note, heads, rows) {
  if (!rows.length) return [];
  return [section(id, title, note ? make('p', {}, note) : '', make('div.scroll', {tabindex: '0', role: 'region', 'aria-label': title}, make('table.stack', {},
    make('thead', {}, make('tr', {}, ...heads.map(([h, kind]) => make(kind === 'n' ? 'th.n' : 'th', {scope: 'col'}, h)))),
    make('tbody', {}, ...rows.map(row => make('tr', {}, ...row.map((text, i) =>
      make('td.' + heads[i][1], heads[i][1] === 'n' ? {'data-head': heads[i][0]} : {}, text))))))))];
}

function tables() {
  const n = report.Ranks.length || 1;
  return make('div.half', {},
    ...table('causes', 'Communication by cause', 'Time is the mean of the ranks.',
      [['call', 'name'], ['for', 'what'], ['calls', 'n'], ['bytes', 'n'], ['communicating', 'n'], ['waiting', 'n'], ['line', 'where']],
      (report.Causes || []).map(c => [c.Call, c.Cause, String(c.Calls), size(c.Bytes), time(c.Communicate / n), time(c.Wait / n), c.Site])),
    ...table('operators', 'Operators and spans', 'Time is the mean of the ranks, of operators without calls. On a GPU it is that of asking for kernels.',
      [['operator', 'what'], ['pass', 'name'], ['calls', 'n'], ['time', 'n'], ['line', 'where']],
      (report.Operators || []).map(o => [o.Name, o.Kind, String(o.Calls), time(o.Seconds / n), o.Site])));
}

// layouts draws which ranks hold which part of each parameter.
function layouts() {
  const list = report.Layouts || [];
  if (!list.length) return [];
  return [section('layouts', 'Layout of each parameter', make('div.layouts', {}, ...list.map(picture)))];
}

function picture(l) {
  // The two dimensions that are divided, else the last ones.
  const cut = l.shape.map((_, d) => d).filter(d => new Set((l.regions || []).map(r => r.offset[d])).size > 1);
  const last = l.shape.map((_, d) => d).reverse().filter(d => !cut.includes(d));
  const dims = [...cut, ...last].slice(0, 2).sort((a, b) => a - b);
  const w = 220, rows = dims.length > 1 ? dims[0] : -1, columns = dims[dims.length - 1];
  const height = rows >= 0 ? Math.max(44, Math.min(130, w * l.shape[rows] / Math.max(1, l.shape[columns]))) : 32;
  const svg = make('svg', {viewBox: `0 0 ${w} ${height}`, role: 'img', 'aria-label': l.title, style: 'max-width:320px'});
  const labels = [...new Set((l.regions || []).map(r => r.label))];
  const scale = (v, d, length) => d === undefined || d < 0 ? 0 : v / Math.max(1, l.shape[d]) * length;
  for (const r of l.regions || []) {
    const x = scale(r.offset[columns], columns, w), y = scale(r.offset[rows], rows, height);
    const dx = columns === undefined ? w : scale(r.size[columns], columns, w), dy = rows < 0 ? height : scale(r.size[rows], rows, height);
    svg.append(make('rect', {x, y, width: dx, height: dy, style: `stroke:var(--card);fill:hsl(${(200 + 137.5 * labels.indexOf(r.label)) % 360} 60% 76%)`}));
    const text = (dx > 60 ? (/[,+]/.test(r.label) ? 'ranks ' : 'rank ') : '') + r.label;
    if (dy >= 11 && dx >= 5.6 * text.length) svg.append(make('text', {x: x + dx / 2, y: y + dy / 2 + 4, 'text-anchor': 'middle'}, text));
  }
  const more = cut.length > 2 ? `; drawn: dimensions ${dims.join(' and ')}` : '';
  return make('figure', {}, make('figcaption', {}, l.name, make('span', {}, `${l.title} ${l.type}, ${size(l.bytes).replace(' ', '\u00a0')}${more}`)), svg);
}

function notes() {
  const list = report.Notes || [];
  return list.length ? [section('notes', 'What is left out', ...list.map(n => make('p', {}, n)))] : [];
}

function drawAll() {
  const at = scrollY, focus = document.activeElement && document.activeElement.tagName === 'CANVAS';
  page.replaceChildren(ranks(), ...metrics(), ...timeLine(), ...traffic(), tables(), ...layouts(), ...notes());
  page.prepend(...head());
  document.title = (report.Title ? report.Title + ' – ' : '') + 'gorun report';
  scrollTo(0, at);
  if (focus) page.querySelector('canvas').focus({preventScroll: true});
}

// follow asks for news of a running job, of which the page is served by gorun.
async function follow() {
  const say = text => { document.getElementById('live').textContent = text; };
  try {
    const answer = await fetch('data.json', {cache: 'no-store'});
    if (!answer.ok) throw new Error(String(answer.status));
    const held = page.contains(document.activeElement) && document.activeElement !== document.body;
    const next = await answer.json();
    if (!held) {
      const wasAll = !view || view.to >= report.To - 1e-6;
      report = next;
      if (wasAll) { view = null; selected = null; }
      drawAll();
    }
    say(held ? 'Paused while something here has the focus; press Escape to go on.' : 'The job runs; the page is drawn anew every 2 seconds.');
    setTimeout(follow, 2000);
  } catch (e) {
    say('gorun does not answer any more: the job has ended. This is what was known last.');
  }
}

addEventListener('keydown', e => { if (e.key === 'Escape' && document.activeElement) document.activeElement.blur(); });
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', drawAll);
drawAll();
if (report.Live) follow();
