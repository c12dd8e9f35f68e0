// The tab library.
(() => {
  "use strict";
  window.ondevice.library = () => {};
})();
