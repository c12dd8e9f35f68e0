// A scan of the whole document: the offer beside the question, how far it is, and a table of what was found, whose
// pages lead into the text. Questions, findings and sentences are somebody else's: textContent only.
const FIELD = "#od-question textarea";

od.scan = (element, props, watch, send) => {
  const find = (selector) => element.querySelector(selector);
  const offer = find(".od-offer"), found = find(".od-found"), body = find("tbody"), bar = find(".od-track");
  let value = null, drawn = "";

  // Typed, or asked just now: what is in the field comes first.
  const wanted = () => {
    const typed = document.querySelector(FIELD)?.value.trim() ?? "";
    if (!value?.can_scan) return "";
    if (typed) return new RegExp(value.pattern, "i").test(typed) ? typed : "";
    return value.asked;
  };
  const offerScan = () => {
    offer.hidden = !wanted();
    find(".od-scan").hidden = offer.hidden && !value?.scan;
  };
  document.addEventListener("input", (event) => { if (event.target.matches?.(FIELD)) offerScan(); });
  find(".od-scan-all").addEventListener("click", () => {
    const question = wanted();
    if (question) send.scan_all({ question });
  });
  find(".od-scan-stop").addEventListener("click", () => send.stop_scan({}));
  find(".od-scan-close").addEventListener("click", () => send.close_scan({}));
  find(".od-scan-save").addEventListener("click", () => send.save_found({}));

  const row = (one) => {
    const pages = one.places.map(([page, start, stop]) => od.button({
      className: "od-place", ariaLabel: `${value.scan.unit} ${page}: show ${one.text} in the document`,
      onclick: () => od.showSpan?.(start, stop),
    }, od.number(page)));
    if (one.more) pages.push(od.textElement("span", one.more));
    return od.make("tr", {},
      od.make("th", { scope: "row" }, one.text), od.make("td", {}, ...pages), od.textElement("td", one.passage));
  };

  od.follow(props, watch, (next) => {
    value = next;
    offerScan();
    const scan = value?.scan;
    found.hidden = !scan;
    if (!scan) return;
    find("h2").textContent = scan.question;
    od.tell(find("[role=status]"), `${scan.state}: ${scan.found}`);
    find(".od-scan-stop").hidden = !scan.is_running;
    find(".od-scan-close").hidden = scan.is_running;
    find(".od-scan-save").hidden = !scan.rows.length;
    bar.hidden = find(".od-scan-detail").hidden = !scan.is_running;
    od.setBar(bar, "Tokens looked at", scan.done, scan.total);
    find(".od-scan-detail").textContent = scan.detail;
    find("table").hidden = !scan.rows.length;
    find("thead th:nth-child(2)").textContent = `${scan.unit}s`;
    const now = JSON.stringify(scan.rows);
    if (now !== drawn) body.replaceChildren(...scan.rows.map(row)); // a button that has the focus stays
    drawn = now;
    find(".od-more").textContent = scan.more;
    find(".od-scan-account").replaceChildren(...scan.account.map((line) => od.textElement("li", line)));
  });
};
