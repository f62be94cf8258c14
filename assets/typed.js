// What stands in the inputs, read from the page itself: gradio tells of no change any more once
// its connection is lost.

// `noted`: what gradio told last, in the order of the page (core/ui/wiring.py): preset, context,
// schema, mode, style, cache, order, temperature.
function typedOver(noted) {
  const [preset, context, schema, mode, style, cache, order, temperature] = noted;
  return [
    preset,
    document.querySelector('#context textarea')?.value ?? context,
    editedText() ?? schema,
    picked('mode') ?? mode,
    picked('style') ?? style,
    document.querySelector('#cache input')?.checked ?? cache,
    picked('order') ?? order,
    numberIn('#temperature input') ?? temperature,
  ];
}

// All of the editor's text: its page holds only the lines that are in sight.
function editedText() {
  const content = document.querySelector('#schema .cm-content');
  const { view } = content?.cmTile ?? content?.cmView ?? {};
  return view?.state.doc.toString();
}

function picked(id) {
  return document.querySelector(`#${id} input:checked`)?.value;
}

function numberIn(place) {
  const value = document.querySelector(place)?.valueAsNumber;
  return Number.isFinite(value) ? value : undefined;
}
