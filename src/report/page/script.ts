/** The script of the report. It zooms the timeline, filters tasks and saves the data. */

import { escapeControls, numberText, secondsText, shortName } from '../../views/readable.ts'

/** Runs in a browser, even offline or from a file. Therefore, it uses only data in the page. */
export const script = `
const data = JSON.parse(document.getElementById('data').textContent);
const byId = (id) => document.getElementById(id);
const seconds = ${secondsText.toString()};
const numberText = ${numberText.toString()};
const visible = ${escapeControls.toString()};
const shortName = ${shortName.toString()};

const lanes = byId('lanes');
if (lanes) {
  let from = 0, width = 1000;
  const draw = () => {
    width = Math.min(1000, Math.max(1, width));
    from = Math.min(1000 - width, Math.max(0, from));
    lanes.setAttribute('viewBox', from + ' 0 ' + width + ' ' + lanes.viewBox.baseVal.height);
    const all = Number(lanes.dataset.seconds);
    [...byId('axis').children].forEach((tick, at) => {
      tick.textContent = seconds(all * (from + width * at / 4) / 1000);
    });
  };
  const zoom = (factor, middle) => {
    from += (width - width * factor) * middle;
    width *= factor;
    draw();
  };
  const onClick = (selector, act) => document.querySelectorAll(selector).forEach((button) =>
    button.addEventListener('click', () => { act(button.dataset); draw(); }));
  onClick('[data-zoom]', (to) => {
    if (to.zoom === 'all') { from = 0; width = 1000; } else zoom(Number(to.zoom), 0.5);
  });
  onClick('[data-move]', (to) => { from += width * Number(to.move); });
  lanes.addEventListener('wheel', (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    const box = lanes.getBoundingClientRect();
    zoom(event.deltaY < 0 ? 0.8 : 1.25, (event.clientX - box.left) / box.width);
  }, { passive: false });
}

const body = byId('task-rows');
if (body) {
  const most = 50;
  const hasScopes = data.tasks.some((task) => task[7] !== '');
  const show = () => {
    const words = byId('task-filter').value.toLowerCase();
    const state = byId('task-state').value;
    const has = (text) => text.toLowerCase().includes(words);
    const found = data.tasks.filter((task) => (state === '' || task[2] === state) &&
      (words === '' || has(task[0]) || has(task[1]) || has(task[3]) || has(task[7])));
    body.replaceChildren(...found.slice(0, most).map((task) => {
      const row = document.createElement('tr');
      task.slice(0, hasScopes ? 8 : 7).forEach((value, at) => {
        const cell = document.createElement('td');
        const shown = at === 1 ? shortName(value) : value;
        const isTime = at >= 4 && at < 7;
        cell.textContent = isTime ? seconds(value) : visible(shown);
        if (at === 1) cell.title = visible(value);
        if (isTime) cell.className = 'n';
        row.append(cell);
      });
      return row;
    }));
    const shown = Math.min(most, found.length);
    byId('task-count').textContent = numberText(shown) + ' of ' +
      numberText(found.length) + ' shown';
  };
  byId('task-filter').addEventListener('input', show);
  byId('task-state').addEventListener('change', show);
  show();
}

byId('save')?.addEventListener('click', () => {
  const link = document.createElement('a');
  const text = JSON.stringify(data, null, 1);
  link.href = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
  link.download = 'report.json';
  link.click();
  URL.revokeObjectURL(link.href);
});
`
