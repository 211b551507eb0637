// Copyright 2026 The lagom_xla Authors.
// SPDX-License-Identifier: Apache-2.0
// What the scripts of all pages share; Plotly draws.
'use strict';

const drawn = JSON.parse(document.getElementById('drawn').textContent);
const isTouch = matchMedia('(pointer: coarse)').matches;
const CONFIG = {displayModeBar: false, responsive: true, doubleClick: 'reset', scrollZoom: false};

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
}

function theme() {
  return {
    paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)',
    font: {color: color('text'), size: 12, family: 'system-ui, sans-serif'},
    hoverlabel: {bgcolor: color('raised'), bordercolor: color('line'), font: {color: color('text'), size: 13}, align: 'left'},
  };
}

function keepDrawn(again) {
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', again);
  addEventListener('resize', again);
}
