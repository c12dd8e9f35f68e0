// The drawers: the settings, and what goes on inside. They slide over the page, which stays as it is; Esc closes them, and
// the focus goes back to where it was.
const narrow = matchMedia("(max-width: 760px)");
let opener = null;

const shown = () => document.body.dataset.drawer ?? "";
const buttonOf = (name) => document.querySelector(`[data-drawer-button=${name}]`);

const tell = () => {
  for (const button of document.querySelectorAll("[data-drawer-button]")) {
    button.setAttribute("aria-expanded", String(button.dataset.drawerButton === shown()));
  }
  // On a phone a drawer covers all of the page: what lies beneath is not to be reached by keys.
  for (const id of ["od-header", "od-workbench"]) document.getElementById(id).inert = narrow.matches && Boolean(shown());
};
narrow.addEventListener("change", tell);

od.openDrawer = (name) => {
  opener = document.activeElement === document.body ? buttonOf(name) : document.activeElement;
  document.body.dataset.drawer = name;
  tell();
  document.querySelector(`#od-${name} [data-drawer-close]`).focus();
};

/** Whether there was one to close. */
od.closeDrawer = () => {
  const name = shown();
  if (!name) return false;
  delete document.body.dataset.drawer;
  tell();
  (opener?.checkVisibility() ? opener : buttonOf(name))?.focus();
  return true;
};

// What is wrong with the settings is mended there.
document.addEventListener("click", (event) => {
  if (event.target.closest?.("#od-read") && document.querySelector(".od-note[data-kind=error]:not([hidden])")) {
    od.openDrawer("settings");
  }
});

od.drawers = (element) => element.addEventListener("click", (event) => {
  const name = event.target.closest?.("[data-drawer-button]")?.dataset.drawerButton;
  if (!name) return;
  if (name === shown()) od.closeDrawer(); else od.openDrawer(name);
});

od.drawer_head = (element) => {
  const drawer = element.closest(".od-drawer"), head = element.querySelector("h2");
  head.id = `${drawer.id}-head`;
  drawer.setAttribute("role", "dialog");
  drawer.setAttribute("aria-labelledby", head.id);
  element.querySelector("[data-drawer-close]").addEventListener("click", od.closeDrawer);
};

// Light and dark are the system's, until one of them is chosen.
od.colours = (element) => {
  const list = element.querySelector("select"), system = matchMedia("(prefers-color-scheme: dark)"), KEY = "ondevice-colours";
  const show = () => document.body.classList.toggle("dark", list.value === "dark" || (!list.value && system.matches));
  list.value = localStorage.getItem(KEY) ?? "";
  list.addEventListener("change", () => { localStorage.setItem(KEY, list.value); show(); });
  system.addEventListener("change", show);
  if (list.value) show();
};
