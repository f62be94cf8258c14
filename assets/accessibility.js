// Attributes that parts of gradio's own lack: what scrolls can be reached by the keyboard.

const SCROLLABLE = [
  '#schema .cm-content:not([tabindex])',
  '#benchmark-table [role="grid"]:not(:has([role="gridcell"])) [role="columnheader"]:first-child[tabindex="-1"]',
].join();

whenPageStands(() => {
  new MutationObserver(() => {
    for (const node of document.querySelectorAll(SCROLLABLE)) node.tabIndex = 0;
  }).observe(document.body, { childList: true, subtree: true });
});
