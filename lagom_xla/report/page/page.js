// Copyright 2026 The lagom_xla Authors.
// SPDX-License-Identifier: Apache-2.0
// The timelines: slices too short to see are drawn together, and apart again
// once a reader zooms in. Plotly draws; this only chooses what.

const pictures = drawn;
const LEAST_PX = 2;      // Shorter slices are drawn together.
const LEAST_TEXT_PX = 48;
const SLOWED = 0.02;     // Share of its time from which a kernel counts as slowed.
const PARTS = [['kernels alone', 'kernel_us', 'kernel'],
               ['slowed by collectives and copies', 'slowdown_us', 'slowed'], ['waits', 'wait_us', 'wait']];

function ms(us) {
  const value = us / 1e3;
  const size = Math.abs(value), digits = size >= 100 ? 1 : size >= 10 ? 2 : size >= .1 ? 3 : 4;
  return value.toLocaleString('en', {minimumFractionDigits: digits, maximumFractionDigits: digits}) + ' ms';
}

function escaped(text) {
  return text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;');
}

function rowsOf(spans) {
  // Streams from the top down, with room between before and after. Of each
  // picture, only a span of time is drawn; the axis begins where it begins.
  const rows = [];
  let y = 0;
  pictures.forEach((picture, p) => {
    const [offset, end] = spans[p];
    for (const stream of picture.streams) rows.push({picture, stream, y: y--, offset, end});
    y -= 0.4;
  });
  return rows;
}

function lost(row, i) {
  return row.stream.beside[i].reduce((sum, [, us]) => sum + us, 0);
}

function partsOf(row, i) {
  // Kernels alone, slowdowns, waits.
  const s = row.stream;
  return [s.kind[i] === 'wait' ? 0 : s.lone_us[i], lost(row, i), s.wait_us[i]];
}

function category(row, i) {
  const kind = row.stream.kind[i];
  if (kind !== 'kernel') return kind;
  const time = row.stream.end_us[i] - row.stream.begin_us[i];
  return lost(row, i) > SLOWED * time ? 'slowed' : 'kernel';
}

function words(row, index) {
  const label = row.picture.labels[index];
  const about = [label.what, label.moves, label.source].filter(Boolean).map(escaped).join('<br>');
  return '<b>' + escaped(label.name) + '</b>' + (about ? '<br>' + about : '');
}

function describe(row, i) {
  const s = row.stream, kind = s.kind[i], time = s.end_us[i] - s.begin_us[i];
  if (kind === 'folded') {
    const n = s.num[i].toLocaleString('en');
    let text = `<b>${n} more trip${n === '1' ? '' : 's'} like the one before</b><br>${ms(time)}, ` +
        `${ms(time / s.num[i])} each`;
    if (s.name === 'compute') {
      text += `<br>kernels alone ${ms(s.lone_us[i])}<br>slowed by ${ms(lost(row, i))}` +
          `<br>waiting ${ms(s.wait_us[i])}`;
    }
    return text;
  }
  if (kind === 'several') {
    const what = s.name === 'compute' ? 'kernels and waits' : s.name === 'communication' ? 'collectives' : 'copies';
    let text = `<b>${s.num[i].toLocaleString('en')} ${what}</b>, too short to be kept apart<br>${ms(time)} together`;
    if (s.name === 'compute') text += `<br>slowed by ${ms(lost(row, i))}<br>waiting ${ms(s.wait_us[i])}`;
    return text;
  }
  const name = words(row, s.label[i]);
  if (kind === 'wait') return `Kernels wait ${ms(time)} for<br>${name}`;
  let text = `${name}<br>${ms(time)}`;
  if (time > s.lone_us[i] * 1.001) text += `, alone ${ms(s.lone_us[i])}`;
  for (const [other, us] of s.beside[i]) {
    text += `<br>beside ${escaped(row.picture.labels[other].name)}`;
    if (us > 0) text += `, slowed by ${ms(us)}`;
  }
  return text;
}

function firstAfter(ends, at) {
  let low = 0, high = ends.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ends[middle] > at) high = middle; else low = middle + 1;
  }
  return low;
}

function draw(rows, from, to, width) {
  // from and to are milliseconds on the axis, width is in pixels.
  const pxPerUs = width / ((to - from) * 1e3);
  const found = {};
  const seen = row => [from * 1e3 + row.offset, Math.min(to * 1e3 + row.offset, row.end)];
  function bar(name, row, begin, end, text, more = {}) {
    const trace = found[name] ??= {
      type: 'bar', orientation: 'h', name, base: [], x: [], y: [], width: [],
      customdata: [], text: [], textposition: 'inside', insidetextanchor: 'start',
      textangle: 0, cliponaxis: true, constraintext: 'none', hovertemplate: '%{customdata}<extra></extra>',
      marker: {color: color(more.color ?? name), line: {width: [], color: color('ground')}},
      insidetextfont: {color: (more.color ?? name) === 'slowed' ? '#1c1f24' : '#ffffff', size: 11},
    };
    const [first, last] = seen(row);
    begin = Math.max(begin, first);
    end = Math.min(end, last);
    if (more.striped) trace.marker.pattern = {shape: '/', size: 7, solidity: .25, fillmode: 'overlay'};
    trace.base.push((begin - row.offset) / 1e3);
    trace.x.push((end - begin) / 1e3);
    trace.y.push(row.y + (more.dy ?? 0));
    trace.width.push(more.height ?? .8);
    trace.customdata.push(text);
    const px = (end - begin) * pxPerUs;
    trace.marker.line.width.push(px > 8 ? .8 : 0);
    const fits = more.title && px >= LEAST_TEXT_PX;
    const long = more.title?.length * 6.6 > px - 6;
    trace.text.push(fits ? (long ? more.title.slice(0, Math.max(1, Math.floor(px / 6.6) - 2)) + '…' : more.title) : '');
  }
  function shares(row, parts, begin, end, text, {striped = false, title = ''} = {}) {
    const of = striped ? 'folded ' : 'several ';
    if (row.stream.name !== 'compute') {
      const kind = row.stream.name.startsWith('communication') ? 'collective' : 'copy';
      return bar(of + kind, row, begin, end, text, {color: kind, striped, title});
    }
    // By height: what kernels take alone, slowdowns, waits.
    const all = parts.reduce((sum, us) => sum + us, 0) || 1;
    let top = .4;
    ['kernel', 'slowed', 'wait'].forEach((name, k) => {
      const height = .8 * parts[k] / all;
      if (height * 58 > .5) {
        bar(of + name, row, begin, end, text,
            {color: name, striped, height, dy: top - height / 2, title: height > .3 ? title : ''});
      }
      top -= height;
    });
  }
  for (const row of rows) {
    const s = row.stream, [first, last] = seen(row);
    let together = null;
    const flush = () => {
      if (!together) return;
      const {begin, end, num, busy, parts, only} = together;
      together = null;
      if (only >= 0) return single(only);
      const text = `<b>${num.toLocaleString('en')} short ones</b><br>${ms(busy)} together` +
          (parts[1] > 0 ? `<br>slowed by ${ms(parts[1])}` : '') +
          (parts[2] > 0 ? `<br>waiting ${ms(parts[2])}` : '') + '<br>zoom in to see them';
      shares(row, parts, begin, end, text);
    };
    const single = i => {
      const kind = s.kind[i], label = row.picture.labels[s.label[i]];
      if (kind !== 'folded' && kind !== 'several') {
        return bar(category(row, i), row, s.begin_us[i], s.end_us[i], describe(row, i), {title: label?.name});
      }
      const striped = kind === 'folded', title = striped ? '× ' + s.num[i].toLocaleString('en') : '';
      shares(row, partsOf(row, i), s.begin_us[i], s.end_us[i], describe(row, i), {striped, title});
    };
    for (let i = firstAfter(s.end_us, first); i < s.end_us.length; i++) {
      const begin = s.begin_us[i], end = s.end_us[i];
      if (begin >= last) break;
      if ((end - begin) * pxPerUs >= LEAST_PX) {
        flush();
        single(i);
        continue;
      }
      if (together && (end - together.begin) * pxPerUs >= LEAST_PX) flush();
      if (!together) {
        together = {begin, end, num: 0, busy: 0, parts: [0, 0, 0], only: i};
      } else {
        together.only = -1;
      }
      together.end = end;
      together.busy += end - begin;
      together.num += s.kind[i] === 'several' ? s.num[i] : 1;
      partsOf(row, i).forEach((us, k) => { together.parts[k] += us; });
    }
    flush();
  }
  return Object.values(found);
}

function timeline(id, spans, whole) {
  const place = document.getElementById(id);
  const rows = rowsOf(spans);
  let range = whole.slice();
  const narrow = () => place.clientWidth < 600;
  const label = row => {
    const stream = narrow() ? row.stream.name.replace('communication', 'comm.') : row.stream.name;
    return pictures.length === 1 ? stream : row.picture.name + (narrow() ? ':<br>' : ': ') + stream;
  };
  const pen = document.createElement('canvas').getContext('2d');
  function left() {
    const {size, family} = theme().font;
    pen.font = `${size}px ${family}`;
    const lines = rows.flatMap(row => label(row).split('<br>'));
    return Math.max(...lines.map(line => pen.measureText(line).width)) + 12;
  }
  function layout() {
    return {
      ...theme(), height: 58 * rows.length + 70, bargap: 0, barmode: 'overlay', showlegend: false,
      dragmode: isTouch ? false : 'zoom', hovermode: 'closest',
      margin: {l: left(), r: 12, t: 8, b: 42},
      xaxis: {range: range.slice(), minallowed: whole[0], maxallowed: whole[1], ticksuffix: ' ms',
              exponentformat: 'none', separatethousands: true, gridcolor: color('line'), zeroline: false, nticks: narrow() ? 4 : 10},
      yaxis: {fixedrange: true, range: [rows[rows.length - 1].y - .6, .6], showgrid: false, zeroline: false, ticks: 'outside', ticklen: 6, tickcolor: 'rgba(0,0,0,0)',
              tickvals: rows.map(r => r.y), ticktext: rows.map(label)},
    };
  }
  function show() {
    const width = Math.max(place.clientWidth - left() - 12, 100);
    return Plotly.react(place, draw(rows, range[0], range[1], width), layout(), CONFIG);
  }
  function zoom(begin, end) {
    const size = Math.min(end - begin, whole[1] - whole[0]);
    begin = Math.min(Math.max(begin, whole[0]), whole[1] - size);
    range = [begin, begin + size];
    return show();
  }
  function scale(factor) {
    const middle = (range[0] + range[1]) / 2, half = (range[1] - range[0]) * factor / 2;
    zoom(middle - half, middle + half);
  }
  function move(share) {
    const by = (range[1] - range[0]) * share;
    zoom(range[0] + by, range[1] + by);
  }
  show();
  place.on('plotly_relayout', change => {
    if (change['xaxis.range[0]'] !== undefined) zoom(change['xaxis.range[0]'], change['xaxis.range[1]']);
    else if (change['xaxis.range']) zoom(...change['xaxis.range']);
    else if (change['xaxis.autorange']) zoom(...whole);
  });
  place.on('plotly_doubleclick', () => { zoom(...whole); return false; });
  const tools = document.querySelector(`.tools[data-for="${id}"]`);
  for (const [text, action] of [
    ['Zoom in', () => scale(1 / 3)], ['Zoom out', () => scale(3)],
    ['←', () => move(-.5)], ['→', () => move(.5)], ['Reset', () => zoom(...whole)],
  ]) {
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = text;
    button.onclick = action;
    tools.append(button);
  }
  return show;
}

function showParts() {
  const place = document.getElementById('parts-plot');
  const bound = Number(place.dataset.boundUs) / 1e3;
  const data = PARTS.map(([name, field, shade]) => ({
    type: 'bar', orientation: 'h', name, marker: {color: color(shade)},
    y: pictures.map(picture => pictures.length === 1 ? 'step' : picture.name), x: pictures.map(picture => picture[field] / 1e3),
    hovertemplate: `%{y}: ${name} %{x:,.2f} ms<extra></extra>`,
  }));
  const axis = {gridcolor: color('line'), zeroline: false, exponentformat: 'none', separatethousands: true, fixedrange: true};
  return Plotly.react(place, data, {
    ...theme(), barmode: 'stack', margin: {l: 70, r: 12, t: 24, b: 40}, showlegend: false,
    xaxis: {...axis, ticksuffix: ' ms', rangemode: 'tozero', nticks: place.clientWidth < 600 ? 4 : 10},
    yaxis: {...axis, autorange: 'reversed', showgrid: false, ticks: 'outside', ticklen: 6, tickcolor: 'rgba(0,0,0,0)'},
    shapes: [{type: 'line', x0: bound, x1: bound, xref: 'x', y0: 0, y1: 1, yref: 'paper',
              line: {dash: 'dot', width: 2, color: color('text')}}],
    annotations: [{text: 'lower bound', x: bound, y: 1, yref: 'paper', yanchor: 'bottom', xanchor: 'right', showarrow: false}],
  }, CONFIG);
}

const shown = [showParts];
showParts();
const length = Math.max(...pictures.map(p => p.step_us)) / 1e3;
shown.push(timeline('whole', pictures.map(p => [0, p.step_us]), [0, length * 1.005]));
if (document.getElementById('detail')) {
  const trips = pictures.map(p => p.detail_us ?? [0, 0]);
  const size = Math.max(...trips.map(([begin, end]) => end - begin)) / 1e3;
  shown.push(timeline('detail', trips, [0, size * 1.005]));
}
keepDrawn(() => shown.forEach(show => show()));

for (const button of document.querySelectorAll('.command button')) {
  button.onclick = async () => {
    const text = button.parentElement.querySelector('pre');
    getSelection().selectAllChildren(text);
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = 'Copied';
    } catch {
      button.textContent = document.execCommand('copy') ? 'Copied' : 'Selected';
    }
  };
}
