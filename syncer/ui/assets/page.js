// Puts pieces of the page that have changed in their places, as the server tells of them. Without it the page is as
// good, and shows how things stood when it was loaded.
"use strict";

function put(id, html) {
  const place = document.getElementById(id);
  if (!place || place.dataset.html === html) return;
  place.dataset.html = html;
  const focused = place.contains(document.activeElement) ? document.activeElement.id : "";
  const open = [...place.querySelectorAll("details")].map((each) => each.open);
  const before = said(place);
  place.innerHTML = html; // of our own server, which has escaped what is in it; and the page may run no script of it
  place.querySelectorAll("details").forEach((each, number) => { each.open = open[number] || false; });
  if (focused) document.getElementById(focused)?.focus();
  const now = said(place);
  if (now && now !== before) document.getElementById("said").textContent = now;
}

function said(place) {
  return place.querySelector("[data-said]")?.dataset.said || "";
}

const events = document.body.dataset.events;
if (events) {
  const source = new EventSource(events);
  let away = 0;
  source.onmessage = (event) => {
    for (const [id, html] of Object.entries(JSON.parse(event.data))) put(id, html);
  };
  source.onopen = () => { clearTimeout(away); away = 0; document.body.classList.remove("away"); document.getElementById("gone")?.remove(); };
  source.onerror = () => {
    if (away) return;
    away = setTimeout(() => {
      if (document.getElementById("gone")) return;
      const told = document.createElement("p");
      told.id = "gone";
      told.className = "notice bad";
      told.setAttribute("role", "status");
      told.textContent = "The page does not answer any more: what you see is how things stood. `blocksync ui` gives a new link.";
      document.getElementById("main").prepend(told);
    }, 3000);
  };
}
