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

// A note of ours at the top of the page, once; without a text it goes.
function note(id, text) {
  const known = document.getElementById(id);
  if (known || !text) { if (!text) known?.remove(); return; }
  const told = document.createElement("p");
  told.id = id;
  told.className = "notice bad";
  told.setAttribute("role", "status");
  told.textContent = text;
  document.getElementById("main").prepend(told);
}

const events = document.body.dataset.events;
let source = null;
let away = 0;

function follow() {
  if (!events || source || document.hidden) return;
  source = new EventSource(events);
  source.onmessage = (event) => {
    for (const [id, html] of Object.entries(JSON.parse(event.data))) put(id, html);
  };
  source.onopen = () => { clearTimeout(away); away = 0; note("gone", ""); note("full", ""); };
  source.onerror = () => {
    if (away) return;
    away = setTimeout(() => note("gone",
      "The page does not answer any more: what you see is how things stood. `blocksync ui` gives a new link."), 3000);
  };
  source.addEventListener("full", () => {
    leave();
    note("full", "The page is open in too many places: here you see how things stood. Come back to this tab, and it goes on.");
  });
}

function leave() {
  source?.close();
  source = null;
  clearTimeout(away);
  away = 0;
}

// Nobody sees a hidden tab, and a browser has six connections for all tabs of the page.
document.addEventListener("visibilitychange", () => { if (document.hidden) leave(); else follow(); });
window.addEventListener("focus", follow);
follow();
