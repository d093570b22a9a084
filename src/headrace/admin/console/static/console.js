// What pages gain from script: they stay fresh, charts answer the pointer, keys save a hand's way to the mouse.
// Without it everything can still be read and every form still works. Text from the node is put in by the parser that made the
// page or as textContent; nothing here makes markup of it.
"use strict";

const theme = {
  get: () => { try { return localStorage.getItem("headrace-theme"); } catch { return null; } },
  set: (value) => { try { localStorage.setItem("headrace-theme", value); } catch { /* private mode: for this page only */ } },
};
if (theme.get()) document.documentElement.dataset.theme = theme.get();

document.addEventListener("DOMContentLoaded", () => {
  const button = document.querySelector("button[data-theme]");
  button.hidden = false;
  button.addEventListener("click", () => {
    const isDark = getComputedStyle(document.documentElement).colorScheme === "dark";
    document.documentElement.dataset.theme = isDark ? "light" : "dark";
    theme.set(isDark ? "light" : "dark");
  });
  refreshing();
  following();
  drawCursors(document);
});

// -- staying fresh: parts marked with data-live are fetched again with their page and put in its place

function refreshing() {
  const parts = () => [...document.querySelectorAll("[data-live]")];
  if (!parts().length) return;
  const seconds = Math.min(...parts().map((part) => Number(part.dataset.live)));
  setInterval(() => {
    const isBusy = document.hidden || document.querySelector("[data-live] :focus, [data-live] details[open], [data-live] .tip:not([hidden])");
    if (!isBusy) replace(parts, () => {});
  }, seconds * 1000);
}

async function replace(parts, changed) {
  let text;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (!answer.ok) return;
    text = await answer.text();
  } catch {
    document.body.dataset.lost = "1";
    return;
  }
  const fresh = new DOMParser().parseFromString(text, "text/html");
  const selector = parts()[0]?.dataset.live !== undefined ? "[data-live]" : "[data-live-on-follow]";
  const news = [...fresh.querySelectorAll(selector)];
  parts().forEach((part, place) => {
    if (!news[place] || part.isEqualNode(news[place])) return;
    const next = document.importNode(news[place], true);
    changed(part, next);
    part.replaceWith(next);
    drawCursors(next);
  });
  const state = fresh.querySelector(".state");
  if (state) document.querySelector(".state").replaceWith(document.importNode(state, true));
}

// -- following a topic: the newest records, again every second

function following() {
  const button = document.querySelector("[data-follow]");
  if (!button) return;
  button.hidden = false;
  let timer = 0;
  button.addEventListener("click", () => {
    const isOn = !timer;
    button.setAttribute("aria-pressed", String(isOn));
    if (!isOn) { clearInterval(timer); timer = 0; return; }
    const parts = () => [...document.querySelectorAll("[data-live-on-follow]")];
    timer = setInterval(() => {
      if (!document.hidden) replace(parts, (old, next) => {
        const known = new Set([...old.querySelectorAll("tbody a")].map((link) => link.getAttribute("href")));
        next.querySelectorAll("tbody tr").forEach((row) => row.classList.toggle("new", !known.has(row.querySelector("a")?.getAttribute("href"))));
      });
    }, 1000);
  });
}

// -- charts: what was there under the pointer

function drawCursors(scope) {
  scope.querySelectorAll("figure[data-chart]").forEach((figure) => {
    const data = JSON.parse(figure.dataset.chart);
    const svg = figure.querySelector("svg");
    const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
    const tip = figure.appendChild(document.createElement("div"));
    tip.className = "tip"; tip.hidden = true;
    const cursor = svg.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "line"));
    cursor.setAttribute("class", "cursor"); cursor.setAttribute("y1", 0); cursor.setAttribute("y2", height);
    cursor.setAttribute("visibility", "hidden");
    const leave = () => { tip.hidden = true; cursor.setAttribute("visibility", "hidden"); };
    svg.addEventListener("pointerleave", leave);
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const x = (event.clientX - box.left) / box.width * width;
      const time = data.from + x / width * (data.to - data.from);
      const places = data.series.map((each) => nearest(each.times, time));
      if (!data.series.length || places[0] < 0) return leave();
      const when = new Date(data.series[0].times[places[0]]).toISOString().slice(11, 19);
      tip.textContent = [when, ...data.series.map((each, number) => `${each.name}: ${each.texts[places[number]] ?? "–"}`)].join("\n");
      tip.hidden = false;
      const left = event.clientX - figure.getBoundingClientRect().left;
      tip.style.left = `${Math.min(left + 12, figure.clientWidth - tip.offsetWidth - 8)}px`;
      cursor.setAttribute("x1", x); cursor.setAttribute("x2", x); cursor.setAttribute("visibility", "visible");
    });
  });
}

function nearest(times, time) {
  let best = -1;
  times.forEach((each, place) => { if (best < 0 || Math.abs(each - time) < Math.abs(times[best] - time)) best = place; });
  return best;
}

// -- keys: / finds a topic, f the filter, n and p turn pages, l follows, t turns the light on

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
  if (event.key === "t") return document.querySelector("button[data-theme]").click();
  const found = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (!found) return;
  event.preventDefault();
  if (/^(A|BUTTON)$/.test(found.tagName)) found.click(); else found.focus();
});
