// The tab compare.
(() => {
  "use strict";
  window.ondevice.compare = () => {};
})();
