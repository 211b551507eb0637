// Copyright 2026 The lagom_xla Authors.
// SPDX-License-Identifier: Apache-2.0
// The curves of a comparison, in the colors of the reader's scheme.

const COLORS = ['kernel', 'slowed', 'collective', 'wait', 'copy', 'accent', 'good', 'faint'];

function show({name, figure}) {
  const place = document.getElementById(name + '-plot');
  const narrow = place.clientWidth < 600;
  const axis = {gridcolor: color('line'), linecolor: color('line'), zeroline: false,
                exponentformat: 'none', separatethousands: true};
  const ticks = figure.layout.xaxis.tickvals;
  const data = figure.data.map(trace => {
    const own = color(COLORS[trace.meta.group % COLORS.length]);
    return {...trace, marker: {...trace.marker, color: own}, line: {...trace.line, color: own},
            error_y: trace.error_y && {...trace.error_y, color: own}};
  });
  return Plotly.react(place, data, {
    ...figure.layout,
    ...theme(), dragmode: isTouch ? false : 'zoom',
    xaxis: {...figure.layout.xaxis, ...axis,
            tickvals: narrow ? ticks.filter((_, i) => i % 2 === 0) : ticks},
    yaxis: {...figure.layout.yaxis, ...axis},
  }, CONFIG);
}

const showAll = () => drawn.forEach(show);
showAll();
keepDrawn(showAll);
