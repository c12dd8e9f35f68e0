// Marks in the answers what stands nowhere in the document. The marks are the browser's own highlights: nothing is put
// into the conversation, which belongs to Gradio and is redrawn at any time.
(() => {
  "use strict";
  const od = window.ondevice;
  const NAME = "od-unfounded";
  let answers = [], watched = null, frame = 0;

  /** The answers on the page with the question of each, the last one first. */
  const groups = () => {
    const found = [];
    for (const message of document.querySelectorAll("#od-chat [data-testid=user], #od-chat [data-testid=bot]")) {
      if (message.dataset.testid === "user") found.unshift({ question: message.textContent.trim(), answer: null });
      else if (found[0]) found[0].answer ??= message; // what comes after it is evidence and account
    }
    return found;
  };

  const rangesIn = (element, texts) => {
    const ranges = [], walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const node = walker.currentNode;
      for (const text of texts) {
        for (let at = node.data.indexOf(text); at >= 0; at = node.data.indexOf(text, at + text.length)) {
          const range = new Range();
          range.setStart(node, at);
          range.setEnd(node, at + text.length);
          ranges.push(range);
        }
      }
    }
    return ranges;
  };

  const mark = () => {
    frame = 0;
    const left = groups(), ranges = [];
    for (const { question, unfounded } of answers) {
      const at = left.findIndex((group) => group.question === question);
      if (at < 0) continue;
      const [group] = left.splice(0, at + 1).slice(-1);
      if (unfounded.length && group.answer) ranges.push(...rangesIn(group.answer, unfounded));
    }
    CSS.highlights.set(NAME, new Highlight(...ranges));
  };

  /** Marks them now, and again whenever the conversation is redrawn. */
  od.markUnfounded = (latest) => {
    if (!globalThis.Highlight) return; // an older browser: the account and the evidence name them all the same
    answers = latest;
    const chat = document.getElementById("od-chat");
    if (chat && chat !== watched) {
      watched = chat;
      new MutationObserver(() => { frame ||= requestAnimationFrame(mark); }).observe(
        chat, { childList: true, subtree: true, characterData: true });
    }
    frame ||= requestAnimationFrame(mark);
  };
})();
