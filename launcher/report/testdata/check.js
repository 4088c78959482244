// Tells the page around this one what a reader finds who has no mouse.
const all = selector => [...document.querySelectorAll(selector)];
const press = (e, ...keys) => keys.forEach(key => e.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true})));
const stops = all('a, button, [tabindex]').filter(e => e.tabIndex === 0);
const root = document.documentElement;
const found = {
  slowest: document.querySelector('.slowest').textContent,
  layout: document.querySelector('figcaption').textContent,
  width: innerWidth,
  overflow: root.scrollWidth - root.clientWidth,
  sections: all('section').length,
  'cut tables': all('.stack').filter(t => t.parentElement.scrollWidth > t.parentElement.clientWidth).length,
  'in the order of Tab': stops.map(e => e.tagName + (/application|region/.test(e.getAttribute('role')) ? ' ' + e.getAttribute('role') : '')).join(', '),
  'without a ring': stops.filter(e => { e.focus({focusVisible: true}); return document.activeElement !== e || getComputedStyle(e).outlineStyle === 'none'; }).length,
  'without a name': stops.filter(e => !e.getAttribute('aria-label') && !e.textContent).length,
  'keep Tab': stops.filter(e => !e.dispatchEvent(new KeyboardEvent('keydown', {key: 'Tab', bubbles: true, cancelable: true}))).length,
};
const curve = document.querySelector('.chart svg');
press(curve, 'ArrowLeft');
found.curve = curve.parentElement.querySelector('output').textContent;
const canvas = document.querySelector('canvas'), detail = document.querySelector('#timeline .detail'), told = [];
for (const keys of [['n'], ['ArrowDown'], ['ArrowUp', 'n', '+', '+', 'ArrowRight', '0']]) {
  press(canvas, ...keys);
  told.push(detail.textContent);
}
found['time line'] = told.join(' | ');
const heat = [];
document.querySelector('.heat td').focus();
for (const keys of [['ArrowRight'], ['End', ...Array(9).fill('ArrowDown')]]) {
  for (const key of keys) press(document.activeElement, key);
  heat.push(document.querySelector('#traffic .detail').textContent);
}
found.heat = heat.concat(all('.heat [tabindex="0"]').length === 1 ? 'one in the order of Tab' : 'several in the order of Tab').join(', ');
parent.postMessage(Object.entries(found).map(([k, v]) => `${k}: ${v}`).join('; ') + ';', '*');
