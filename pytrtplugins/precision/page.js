"use strict";
// Search, sort and zoom. The page is complete without: this file only hides, orders and moves what stands there.
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const tools = document.getElementById("tools"), search = tools.querySelector("input"), told = tools.querySelector("output");
  const body = document.querySelector(".layers tbody");
  if (!body) return;
  const layers = [...body.rows];  // in the order of the network, however the table is sorted
  const names = layers.map((row) => row.cells[1].textContent);
  const count = layers.length, whole = [-1, count], svgNS = "http://www.w3.org/2000/svg";
  let range = whole, matches = [];
  tools.hidden = false;

  // sort: numbers by size, text by its letters; what is not there comes last
  const value = (cell) => {
    const text = cell.textContent.replace("%", "");
    if (text === "inf") return Infinity;
    return text === "" || text === "–" || text === "nan" ? null : isNaN(text) ? text : Number(text);
  };
  const compare = (a, b) => {
    if (a === null || b === null) return (a === null) - (b === null);
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return typeof a === "string" ? a.localeCompare(b, undefined, { numeric: true }) : a === b ? 0 : a < b ? -1 : 1;
  };
  for (const head of all("th")) {
    const sort = () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      const table = head.closest("table"), place = head.cellIndex;
      for (const each of all("th", table)) each.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows].map((row) => [value(row.cells[place]), row]);
      rows.sort(([a], [b]) => (down && a !== null && b !== null ? compare(b, a) : compare(a, b)));
      table.tBodies[0].append(...rows.map(([, row]) => row));
    };
    head.setAttribute("aria-sort", "none");
    head.tabIndex = 0;
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => event.key === "Enter" && sort());
  }

  // a chart: the frame's edges tell where each layer stands; marks and lines are moved, names are written anew
  const chart = (svg) => {
    const make = (parent, tag, facts, text = "") => {
      const node = document.createElementNS(svgNS, tag);
      for (const [key, given] of Object.entries(facts)) node.setAttribute(key, given);
      node.textContent = text;
      return parent.appendChild(node);
    };
    const frame = svg.querySelector("[id$=-zoom-frame]").getBBox();
    const left = frame.x, right = frame.x + frame.width, bottom = frame.y + frame.height;
    const marks = all("[id*=-zoom-] use", svg).map((node) => [node, Number(node.getAttribute("x"))]);
    const lines = all("[id*=-zoom-] path", svg).filter((node) => !node.closest("defs, [id$=-zoom-frame]"));
    for (const line of lines) {  // a clip stays where it is while its line moves
      const holder = document.createElementNS(svgNS, "g"), clip = line.getAttribute("clip-path");
      if (clip) holder.setAttribute("clip-path", clip);
      line.removeAttribute("clip-path");
      line.setAttribute("vector-effect", "non-scaling-stroke");
      line.replaceWith(holder);
      holder.append(line);
    }
    const written = all("[id*=-name-]", svg), style = written.length ? written[0].querySelector("text").style : {};
    const labels = make(svg, "g", {}), found = make(svg, "g", {});
    const selection = make(svg, "rect", { class: "selection", y: frame.y, height: frame.height, width: 0, visibility: "hidden" });
    const along = (layer) => left + ((layer - range[0]) / (range[1] - range[0])) * (right - left);
    const layerAt = (event) => {
      const x = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse()).x;
      return range[0] + ((Math.min(Math.max(x, left), right) - left) / (right - left)) * (range[1] - range[0]);
    };
    let start = null;
    svg.addEventListener("pointerdown", (event) => {
      start = layerAt(event);
      svg.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    svg.addEventListener("pointermove", (event) => {
      const layer = layerAt(event);
      tell(Math.round(layer));
      if (start === null) return;
      const ends = [along(start), along(layer)].sort((a, b) => a - b);
      for (const [key, given] of [["x", ends[0]], ["width", ends[1] - ends[0]], ["visibility", "visible"]]) selection.setAttribute(key, given);
    });
    svg.addEventListener("pointerup", (event) => {
      const ends = [start, layerAt(event)].sort((a, b) => a - b);
      selection.setAttribute("visibility", "hidden");
      start = null;
      if (along(ends[1]) - along(ends[0]) > 8) zoom(ends[0], ends[1]);
      else choose(Math.round(ends[0]));
    });
    svg.addEventListener("dblclick", () => zoom(...whole));
    return () => {
      const scale = (whole[1] - whole[0]) / (range[1] - range[0]), shift = along(-1) - left * scale;
      for (const [node, x] of marks) node.setAttribute("x", scale * x + shift);
      for (const line of lines) line.setAttribute("transform", `matrix(${scale} 0 0 1 ${shift} 0)`);
      const spacing = (right - left) / (range[1] - range[0]), step = Math.max(1, Math.ceil(9 / spacing));
      for (const node of written) node.style.display = "none";
      labels.replaceChildren();
      found.replaceChildren();
      for (let layer = Math.max(0, Math.ceil(range[0])); layer < Math.min(count, range[1]); layer += step) {
        const name = names[layer].length > 28 ? `…${names[layer].slice(-27)}` : names[layer];
        const facts = { "text-anchor": "end", transform: `translate(${along(layer) + 2.5} ${bottom + 6}) rotate(-90)` };
        const node = make(labels, "text", facts, name);
        node.style.cssText = `font: ${style.font || "7px sans-serif"}; fill: var(--ink)`;
        make(node, "title", {}, names[layer]);
      }
      for (const layer of matches) {
        if (layer > range[0] && layer < range[1]) make(found, "line", { class: "match", x1: along(layer), x2: along(layer), y1: frame.y, y2: bottom });
      }
    };
  };

  const tell = (layer) => {
    if (!layers[layer]) return;
    const heads = all(".layers th");
    told.textContent = [...layers[layer].cells].map((cell, place) => (place > 1 ? `${heads[place].textContent} ${cell.textContent}` : cell.textContent)).join(" · ");
  };
  const choose = (layer) => {
    for (const row of layers) row.classList.toggle("chosen", row === layers[layer]);
    if (layers[layer]) {
      tell(layer);
      const box = body.closest(".scroll");
      box.scrollTop = layers[layer].offsetTop - box.clientHeight / 2;
    }
  };
  const charts = all("svg.zoom").map(chart);
  const zoom = (from, to) => {
    const width = Math.min(Math.max(to - from, 2), whole[1] - whole[0]);
    const begin = Math.min(Math.max((from + to - width) / 2, whole[0]), whole[1] - width);
    range = [begin, begin + width];
    for (const draw of charts) draw();
  };
  const scaled = (times, shift = 0) => {
    const middle = (range[0] + range[1]) / 2 + shift * (range[1] - range[0]), half = ((range[1] - range[0]) / 2) * times;
    zoom(middle - half, middle + half);
  };
  const actions = { in: () => scaled(0.5), out: () => scaled(2), left: () => scaled(1, -0.5), right: () => scaled(1, 0.5), whole: () => zoom(...whole) };
  for (const button of all("button", tools)) button.addEventListener("click", actions[button.name]);

  // search: rows of every table, and lines in the charts; Enter zooms to the layers that are found
  const find = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const has = (row) => words.every((word) => row.textContent.toLowerCase().includes(word));
    for (const row of all("tbody tr")) row.hidden = !has(row);
    matches = words.length ? layers.flatMap((row, layer) => (row.hidden ? [] : [layer])) : [];
    told.textContent = words.length ? `${matches.length} of ${count} layers` : "";
    zoom(...range);
  };
  search.addEventListener("input", find);
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && matches.length) zoom(matches[0] - 2, matches[matches.length - 1] + 2);
  });
  layers.forEach((row, layer) => row.addEventListener("click", () => {
    choose(layer);
    zoom(layer - 8, layer + 8);
  }));
  find();
})();
