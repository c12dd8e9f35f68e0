// Run before Gradio's scripts. The timer of its loading page goes on for ever, a frame each: it takes this for the
// browser's own function, which everybody else gets back with our page, and has no frames any more where that stands.
const frame = window.requestAnimationFrame;
window.requestAnimationFrame = (step) => document.getElementById("od-workbench") ? 0 : frame(step);
window.ondevice = { giveFramesBack: () => { window.requestAnimationFrame = frame; } };
