// The keyboard: Ctrl or Cmd with Enter runs, Escape stops, from anywhere on the page.
// Before the editor sees the key, or it would take Enter for a new line.

addEventListener('keydown', (event) => {
  const press = (id) => document.getElementById(id)?.click();
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    event.stopPropagation();
    press('run');
  } else if (event.key === 'Escape' && event.target.ariaExpanded !== 'true') {
    press('stop');
  }
}, { capture: true });
