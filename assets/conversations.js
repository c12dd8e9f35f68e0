// Conversations about the document, above the one that is shown: the list slides over it, and goes once one is chosen.
const MANY = 5; // conversations, from which on there is a field to find one

od.conversations = (element, props, watch, send) => {
  const bar = element.querySelector(".od-conversations"), box = bar.querySelector("details");
  let found = null;
  const close = () => { box.open = false; };
  const sift = (find, list) => {
    if (found?.words !== find.value && find.value.trim()) return send.find_conversations({ words: find.value });
    for (const one of list.children) one.hidden = Boolean(find.value.trim()) && !found.ids.includes(one.dataset.id);
  };
  const open_entry = (data) => { close(); send.open_entry(data); };
  const fill = od.entries(element, { ...send, open_entry }, MANY, sift);
  bar.querySelector(".od-begin").addEventListener("click", () => {
    send.begin_conversation({});
    if (od.hasKeys.matches) document.querySelector("#od-question textarea").focus();
  });
  document.addEventListener("click", (event) => {
    if (!box.contains(event.target) && !event.target.closest?.("dialog")) close();
  });
  box.addEventListener("toggle", () => {
    const find = box.querySelector("input");
    if (box.open || !find.value) return;
    find.value = ""; // with another document, too, all are listed then
    find.dispatchEvent(new Event("input"));
  });
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !box.open) return;
    event.preventDefault(); // it stops no answer
    close();
    box.querySelector("summary").focus();
  });
  od.follow(props, watch, (value) => {
    found = value?.found ?? found;
    if (!fill(value)) return;
    bar.hidden = !value.entries.length;
    box.querySelector("summary").append(od.textElement("span", value.title));
  });
};
