// The page for the password: its form says nothing where too many passwords are being tried. Run by an image in it.
const place = this.parentElement, ask = window.fetch;
place.setAttribute("role", "status");
window.fetch = async (...given) => {
  const answer = await ask(...given);
  if (answer.url.endsWith("/login")) {
    const reason = answer.status === 429 ? (await answer.clone().json()).detail : "";
    place.textContent = reason && `${reason} Try again in ${answer.headers.get("Retry-After")} seconds.`;
  }
  return answer;
};
