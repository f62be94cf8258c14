// The screen: draws one moment of a run, wherever that comes from.

function createScreen(board, parts) {
  const panes = { pcd: parts['pcd.raw'], ar: parts['ar.raw'] };
  const showClocks = createClocks({ pcd: face(parts, 'pcd'), ar: face(parts, 'ar') });
  const showPhases = Object.fromEntries(
    ['pcd', 'ar'].map((name) => [name, createPhases(parts[`${name}.phases`], parts[`${name}.legend`])]),
  );
  const threshold = createThreshold(parts);
  const changes = createChanges(parts);
  const showRows = createRows(parts.row, parts.rows, parts.invented, (node, row, state) => {
    threshold.mark(node, row);
    changes.mark(node, row, state);
  });
  const drawStrip = createStrip(parts);
  const showRaw = { pcd: createRaw(panes.pcd, false), ar: createRaw(panes.ar, true) };
  const inspector = createInspector(parts);
  let drawn = blankState();
  let milestone; // as it was told last
  const highlight = createHighlight(board, [parts.rows, parts.invented, panes.pcd, panes.ar], (field) => {
    inspector.draw(drawn, field);
  });

  // A moment of a replay has a caption, the length of the whole, and what PCD does in it.
  function draw(state, { caption = '', length, doing = '' } = {}) {
    board.dataset.phase = state.phase;
    board.dataset.doing = doing;
    showClocks(state.lanes, length);
    for (const name of ['pcd', 'ar']) {
      drawLane(parts, name, state.lanes[name], state.run);
      showPhases[name](state.lanes[name], state.run);
      showRaw[name](state.lanes[name]);
    }
    drawSummary(parts, state);
    if (state.milestone !== milestone) setText(parts.live, milestone = state.milestone);
    drawStrip();
    setCut(parts['replay.caption'], caption || 'A finished run can be played again, as fast or as slowly as you like.');
    showRows(state);
    threshold.draw(state);
    changes.draw(state);
    drawn = state;
    highlight.paint();
    inspector.draw(state, highlight.selected);
  }

  return { draw, changes, clear: highlight.clear };
}
