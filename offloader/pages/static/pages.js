"use strict";
// Everything works without this file. It says times in the reader's zone, and loads a page again that asks for it.
for (const time of document.querySelectorAll("time[datetime]")) {
  const moment = new Date(time.dateTime);
  if (!Number.isNaN(moment.valueOf())) time.title = moment.toLocaleString();
}

document.addEventListener("keydown", (event) => {
  const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
  const search = document.querySelector("input[type=search]");
  if (event.key === "/" && !typing && search) {
    event.preventDefault();
    search.focus();
  }
});

const seconds = Number(document.body.dataset.refresh || 0);
if (seconds > 0) {
  setInterval(() => {
    const busy = document.activeElement instanceof HTMLInputElement || String(document.getSelection());
    if (document.visibilityState === "visible" && !busy) location.reload();
  }, seconds * 1000);
}
