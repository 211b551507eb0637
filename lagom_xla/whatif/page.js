// Copyright 2026 The lagom_xla Authors.
// SPDX-License-Identifier: Apache-2.0
// The curves of a comparison, in the colours of the scheme that the reader has.
'use strict';

const figures = JSON.parse(document.getElementById('figures').textContent);
const COLORS = ['kernel', 'slowed', 'collective', 'wait', 'copy', 'accent', 'good', 'faint'];
const CONFIG = {displayModeBar: false, responsive: true, doubleClick: 'reset', scrollZoom: false};

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
}

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
    dragmode: matchMedia('(pointer: coarse)').matches ? false : 'zoom',
    paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)',
    font: {color: color('text'), size: 12, family: 'system-ui, sans-serif'},
    hoverlabel: {bgcolor: color('raised'), bordercolor: color('line'),
                 font: {color: color('text'), size: 13}, align: 'left'},
    xaxis: {...figure.layout.xaxis, ...axis,
            tickvals: narrow ? ticks.filter((_, i) => i % 2 === 0) : ticks},
    yaxis: {...figure.layout.yaxis, ...axis},
  }, CONFIG);
}

const showAll = () => figures.forEach(show);
showAll();
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', showAll);
addEventListener('resize', showAll);
