// Puts pieces of the page that have changed in their places, as the server tells of them. Without it the page is as
// good, and shows how things stood when it was loaded.
"use strict";

function put(id, html) {
  const place = document.getElementById(id);
  if (!place) return;
  const fresh = place.cloneNode(false);
  fresh.innerHTML = html; // of our own server, which has escaped what is in it; and the page may run no script of it
  const open = [...place.querySelectorAll("details")].map((each) => each.open);
  const before = said(place);
  keepFocus(place, () => renew(place, fresh));
  place.querySelectorAll("details").forEach((each, number) => { each.open = open[number] || false; });
  const now = said(place);
  if (now && now !== before) document.getElementById("said").textContent = now;
}

// Makes old as fresh is. What is alike from the start on, and from the end, stays: so it keeps the focus and what is
// selected, and a click on it that has begun counts.
function renew(old, fresh) {
  const was = [...old.childNodes];
  const now = [...fresh.childNodes];
  let end = null;
  while (alike(was[0], now[0])) renew(was.shift(), now.shift());
  while (alike(was.at(-1), now.at(-1))) renew(end = was.pop(), now.pop());
  was.forEach((each) => each.remove());
  now.forEach((each) => old.insertBefore(each, end));
}

function alike(one, other) {
  return one && other && one.cloneNode(false).isEqualNode(other.cloneNode(false));
}

// Where what has the focus is new, the same link, button or summary gets it; where there is none any more, the place:
// nobody has to begin at the top of the page, and who has scrolled on stays there.
function keepFocus(place, change) {
  const focused = place.contains(document.activeElement) ? document.activeElement : null;
  const number = focused ? likes(place, focused).indexOf(focused) : 0;
  change();
  if (!focused || focused.isConnected) return;
  const like = likes(place, focused)[number];
  if (!like) place.tabIndex = -1;
  (like || place).focus({ preventScroll: true });
}

function likes(place, element) {
  return [...place.querySelectorAll(element.localName)].filter((each) => each.id === element.id && each.href === element.href);
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

// A page that waits for a look asks for itself, and is loaded anew only when there is something else: nobody's reading
// is interrupted.
async function wait() {
  try {
    const text = await (await fetch(location.href)).text();
    const now = new DOMParser().parseFromString(text, "text/html");
    if (!now.body.dataset.waits) return location.reload();
    document.querySelector(".looking").textContent = now.querySelector(".looking").textContent;
  } catch { /* the next time, perhaps */ }
  setTimeout(wait, 1000);
}
if (document.body.dataset.waits) wait();
