// SPDX-License-Identifier: MIT
"use strict";

const root = document.documentElement;
const tip = document.getElementById("tip");
const hidden = new Set();
// With more curves than this, what the pointer shows has no room for ranges.
const RANGES = 5;

function text(value) {
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return size && size < 0.001 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

function toggle(button) {
  const group = button.dataset.group;
  const shown = button.getAttribute("aria-pressed") === "false";
  button.setAttribute("aria-pressed", String(shown));
  if (shown) hidden.delete(group);
  else hidden.add(group);
  for (const line of document.querySelectorAll(".line[data-group]"))
    line.toggleAttribute("hidden", hidden.has(line.dataset.group));
}

function dark() {
  const chosen = root.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

// Index of the point nearest to x; the points rise.
function nearest(xs, x) {
  let low = 0, high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle;
    else high = middle;
  }
  return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
}

function element(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  return made;
}

function row(left, right, colour) {
  const made = document.createElement("div");
  const name = document.createElement("span");
  if (colour) {
    const swatch = document.createElement("span");
    swatch.className = "swatch " + colour;
    name.append(swatch);
  }
  name.append(left);
  const value = document.createElement("span");
  value.textContent = right;
  made.append(name, value);
  return made;
}

function follow(figure) {
  const svg = figure.querySelector("svg");
  const data = JSON.parse(figure.querySelector("script").textContent);
  const pointer = svg.querySelector(".pointer");
  const [left, top, right, bottom] = data.box;
  const across = (x) => left + ((x - data.x[0]) / (data.x[1] - data.x[0])) * (right - left);
  const down = (y) => bottom - ((y - data.y[0]) / (data.y[1] - data.y[0])) * (bottom - top);

  function leave() {
    pointer.replaceChildren();
    tip.hidden = true;
  }

  function move(event) {
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    const lines = data.lines.filter((line) => line.x.length && !hidden.has(String(line.group)));
    if (!lines.length || at < left - 5 || at > right + 5) return leave();
    const wanted = data.x[0] + ((at - left) / (right - left)) * (data.x[1] - data.x[0]);
    const found = lines.map((line) => [line, nearest(line.x, wanted)]);
    const distance = ([line, i]) => Math.abs(line.x[i] - wanted);
    const [near, place] = found.reduce((a, b) => (distance(b) < distance(a) ? b : a));
    const x = near.x[place];
    const rows = [row(figure.dataset.x, text(x))];
    const marks = [element("line", { x1: across(x), x2: across(x), y1: top, y2: bottom })];
    for (const [line, i] of found) {
      // A curve that ends elsewhere has no value here.
      if (Math.abs(across(line.x[i]) - across(x)) > 12) continue;
      const range = line.low && found.length <= RANGES ? `  [${text(line.low[i])}, ${text(line.high[i])}]` : "";
      rows.push(row(line.label, text(line.mean[i]) + range, line.colour));
      marks.push(element("circle", { cx: across(line.x[i]), cy: down(line.mean[i]), r: 4, class: line.colour }));
    }
    pointer.replaceChildren(...marks);
    tip.replaceChildren(...rows);
    tip.hidden = false;
    const beside = event.clientX + 16 + tip.offsetWidth > innerWidth ? -16 - tip.offsetWidth : 16;
    tip.style.left = Math.max(4, event.clientX + beside) + "px";
    tip.style.top = Math.max(4, Math.min(event.clientY + 12, innerHeight - tip.offsetHeight - 4)) + "px";
  }

  svg.addEventListener("pointermove", move);
  svg.addEventListener("pointerdown", move);
  svg.addEventListener("pointerleave", leave);
}

for (const button of document.querySelectorAll("nav button[data-group]"))
  button.addEventListener("click", () => toggle(button));
for (const figure of document.querySelectorAll("figure[data-x]")) follow(figure);

const theme = document.getElementById("theme");
theme.hidden = false;
theme.addEventListener("click", () => {
  root.dataset.theme = dark() ? "light" : "dark";
});
