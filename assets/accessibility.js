// What parts of gradio's own lack: what scrolls can be reached by the keyboard, and left again.

const SCROLLABLE = [
  '#schema .cm-content:not([tabindex])',
  '#benchmark-table [role="grid"]:not(:has([role="gridcell"])) [role="columnheader"]:first-child[tabindex="-1"]',
].join();

whenPageStands(() => {
  new MutationObserver(() => {
    for (const node of document.querySelectorAll(SCROLLABLE)) node.tabIndex = 0;
  }).observe(document.body, { childList: true, subtree: true });
});

// Tab would indent, and the keyboard would never get out of the editor.
addEventListener('keydown', (event) => {
  if (event.key === 'Tab' && event.target.closest?.('#schema .cm-content')) event.stopImmediatePropagation();
}, { capture: true });
