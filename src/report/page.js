/* The script of every page: other axes and hidden runs in plots of curves, values under the pointer, tables that can be
 * sorted, commands to copy. All contents are there without it. */
"use strict";
(function () {
  const all = (selector, inside) => Array.from((inside || document).querySelectorAll(selector));

  /* An element, of a drawing where [name] is one of those. */
  function make(name, attributes, text) {
    const drawing = name === "path" || name === "text" ? document.querySelector("svg").namespaceURI : null;
    const element = drawing ? document.createElementNS(drawing, name) : document.createElement(name);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    if (text !== undefined) element.textContent = text;
    return element;
  }

  /* ---- axes, as src/report/svg.c draws them ---- */

  /* "12k", "2e-5", "95 %" */
  function numberText(value, digits, isPercent) {
    let number = isPercent ? 100 * value : value, suffix = "";
    if (Math.abs(number) >= 1e4 && Math.abs(number) < 1e15)
      for (const next of ["k", "M", "G", "T"]) {
        if (Math.abs(number) < 999.95) break;
        number /= 1000;
        suffix = next;
      }
    number = +number.toPrecision(digits);
    const size = Math.abs(number), isPlain = size === 0 || (size >= 1e-4 && size < Math.pow(10, digits));
    return (isPlain ? String(number) : number.toExponential().replace("+", "")) + suffix + (isPercent ? " %" : "");
  }

  function stepOf(range, wanted) {
    const raw = range / wanted, power = Math.pow(10, Math.floor(Math.log10(raw))), digit = raw / power;
    return power * (digit <= 1.0001 ? 1 : digit <= 2.0001 ? 2 : digit <= 5.0001 ? 5 : 10);
  }

  /* An axis that holds low to high. */
  function fit(low, high, isLog, isRounded, isPercent) {
    const axis = { isLog: isLog, isPercent: isPercent };
    if (isLog) {
      low = Math.max(low, 1e-300);
      if (!(high >= low * 1.0001)) { high = 2 * low; low /= 2; }
      const margin = isRounded ? Math.exp((Math.log(high) - Math.log(low)) * 0.04) : 1;
      low /= margin;
      high *= margin;
    } else {
      if (high - low <= Math.abs(high) * 1e-9) {
        const around = Math.abs(low) * 0.1;
        high += low === high && around === 0 ? 1 : around;
        low -= around;
      }
      if (isRounded) {
        axis.step = stepOf(high - low, 5);
        low = Math.floor(low / axis.step + 1e-9) * axis.step;
        high = Math.ceil(high / axis.step - 1e-9) * axis.step;
      }
    }
    axis.low = low;
    axis.high = high;
    return axis;
  }

  function ticks(axis, wanted) {
    const decades = axis.isLog ? Math.log10(axis.high / axis.low) : 0, found = [];
    if (axis.isLog && decades >= 0.7) {
      const every = Math.max(1, Math.ceil(decades / wanted));
      for (let power = Math.floor(Math.log10(axis.low)); power <= Math.ceil(Math.log10(axis.high)); power++)
        for (const digit of [1, 2, 5]) {
          const value = +(digit + "e" + power), isShown = digit === 1 ? power % every === 0 : decades < 2.5;
          if (isShown && value >= axis.low * 0.9999 && value <= axis.high * 1.0001) found.push([value, 4]);
        }
    } else {
      const step = axis.step || stepOf(axis.high - axis.low, wanted);
      const digits = Math.min(15, Math.max(4, Math.ceil(Math.log10(Math.max(Math.abs(axis.low), Math.abs(axis.high)) / step)) + 1));
      for (let i = Math.ceil(axis.low / step - 1e-6); i * step <= axis.high + step * 1e-6; i++) found.push([i * step, digits]);
    }
    return found.map(tick => ({ value: tick[0], text: numberText(tick[0], tick[1], axis.isPercent) }));
  }

  function placeOf(axis, value) {
    const place = axis.isLog ? Math.log(value / axis.low) / Math.log(axis.high / axis.low)
                             : (value - axis.low) / (axis.high - axis.low);
    return Math.min(1, Math.max(0, place || 0));
  }

  const valueAt = (axis, place) =>
    axis.isLog ? axis.low * Math.pow(axis.high / axis.low, place) : axis.low + (axis.high - axis.low) * place;

  /* ---- plots ---- */

  const PAIR = /([ML])(-?[\d.]+) (-?[\d.]+)/g;

  /* A plot with the values of its curves, which its coordinates have on the axes of the page as it was written. */
  function readPlot(svg) {
    const box = svg.dataset.box.split(",").map(Number);
    const [x, y] = [svg.dataset.x, svg.dataset.y].map(text => {
      const parts = text.split(",").map(Number);
      return { low: parts[0], high: parts[1], isLog: parts[2] === 1 };
    });
    y.isPercent = svg.dataset.percent === "1";
    const valueOf = (px, py) => [valueAt(x, (px - box[0]) / (box[2] - box[0])), valueAt(y, (box[3] - py) / (box[3] - box[1]))];
    const series = all("path[data-name]", svg).map(path => {
      const group = path.closest(".series");
      const drawn = group ? all("path, circle", group) : [path];
      const found = { name: path.dataset.name, group: group, points: [], parts: [] };
      for (const element of drawn) {
        const isPath = element.tagName === "path";
        const d = isPath ? element.getAttribute("d") : "M" + element.getAttribute("cx") + " " + element.getAttribute("cy");
        const values = Array.from(d.matchAll(PAIR), m => valueOf(+m[2], +m[3]));
        found.parts.push({ element: element, d: d, values: values });
        if (element === path) found.points = values;
      }
      [found.first, found.last] = path.dataset.ends.split(",").map(Number);
      return found;
    });
    const frame = svg.querySelector(".frame");
    return { svg: svg, box: box, x: x, y: y, first: { box: box, x: x, y: y, frame: frame.innerHTML }, frame: frame, series: series,
             unit: svg.dataset.unit || "x", isShare: false, isFirst: true };
  }

  const plots = all("svg.plot").map(readPlot).filter(plot => plot.series.length);
  const view = { axis: "linear", hidden: new Set() };
  const isShown = series => !series.group || !view.hidden.has(series.name);
  const xOf = (plot, series, x) => plot.isShare ? x / series.last : x;

  function drawFrame(plot) {
    const [left, top, right, bottom] = plot.box;
    const add = (name, attributes, text) => plot.frame.appendChild(make(name, attributes, text));
    plot.frame.textContent = "";
    for (const tick of ticks(plot.y, 5)) {
      const y = bottom - placeOf(plot.y, tick.value) * (bottom - top);
      add("path", { class: "grid", d: `M${left} ${y}H${right}` });
      add("text", { x: left - 6, y: y + 4, class: "tick end" }, tick.text);
    }
    for (const tick of ticks(plot.x, 6)) {
      const x = left + placeOf(plot.x, tick.value) * (right - left);
      add("path", { class: "grid", d: `M${x} ${top}V${bottom}` });
      add("text", { x: x, y: bottom + 15, class: "tick mid" }, tick.text);
    }
    const label = plot.isShare ? "share of the run" : plot.unit + (plot.x.isLog ? " (logarithmic)" : "");
    add("text", { x: (left + right) / 2, y: bottom + 31, class: "label mid" }, label);
    add("path", { class: "axis", d: `M${left} ${top}V${bottom}H${right}` });
  }

  /* The axes of what is shown, by the state of the page. */
  function fitPlot(plot) {
    const min = values => values.reduce((a, b) => Math.min(a, b)), max = values => values.reduce((a, b) => Math.max(a, b));
    const shown = plot.series.filter(isShown);
    plot.isShare = view.axis === "share";
    if (!shown.length) return;
    const left = min(shown.map(series => series.first)), right = max(shown.map(series => series.last));
    const ys = shown.flatMap(series => series.parts.flatMap(part => part.values.map(value => value[1])));
    plot.x = plot.isShare ? fit(0, 1, false, false, true) : fit(left, right, view.axis === "log" && left > 0, false, false);
    plot.y = fit(min(ys), max(ys), plot.first.y.isLog, true, plot.first.y.isPercent);
    const longest = Math.max(...ticks(plot.y, 5).map(tick => tick.text.length));
    plot.box = [14 + 6.6 * longest, ...plot.first.box.slice(1)];
  }

  function movePart(plot, series, part) {
    const [left, top, right, bottom] = plot.box;
    const place = ([x, y]) => [left + placeOf(plot.x, xOf(plot, series, x)) * (right - left),
                               bottom - placeOf(plot.y, y) * (bottom - top)].map(v => +v.toFixed(2));
    let i = 0;
    const d = plot.isFirst ? part.d : part.d.replace(PAIR, (_, letter) => letter + place(part.values[i++]).join(" "));
    if (part.element.tagName === "path") {
      part.element.setAttribute("d", d);
    } else {
      const [x, y] = d.slice(1).split(" ");
      part.element.setAttribute("cx", x);
      part.element.setAttribute("cy", y);
    }
  }

  function drawPlot(plot) {
    const isFirst = view.axis === "linear" && plot.series.every(isShown);
    if (!plot.series[0].group || (plot.isFirst && isFirst)) return;
    plot.isFirst = isFirst;
    plot.isShare = false;
    Object.assign(plot, { box: plot.first.box, x: plot.first.x, y: plot.first.y });
    if (plot.isFirst) {
      plot.frame.innerHTML = plot.first.frame;
    } else {
      fitPlot(plot);
      drawFrame(plot);
    }
    for (const series of plot.series) {
      series.group.classList.toggle("off", !isShown(series));
      for (const part of series.parts) movePart(plot, series, part);
    }
  }

  /* ---- the state of the page, which is in its address: #axis=log&hide=first&hide=second ---- */

  const buttons = [], radios = [];

  function show() {
    for (const plot of plots) drawPlot(plot);
    for (const button of buttons) button.setAttribute("aria-pressed", String(!view.hidden.has(button.dataset.name)));
    for (const radio of radios) radio.checked = radio.value === view.axis;
  }

  function readAddress() {
    const parts = new URLSearchParams(location.hash.slice(1));
    view.axis = ["log", "share"].includes(parts.get("axis")) ? parts.get("axis") : "linear";
    view.hidden = new Set(parts.getAll("hide"));
    show();
  }

  function writeAddress() {
    const parts = new URLSearchParams();
    if (view.axis !== "linear") parts.append("axis", view.axis);
    for (const name of view.hidden) parts.append("hide", name);
    history.replaceState(null, "", "#" + parts);
    show();
  }

  function addAxisChoice(section, index) {
    const inside = plots.filter(plot => section.contains(plot.svg));
    if (!inside.length) return;
    const hasLengths = inside.some(plot => plot.series.some(series => series.last !== plot.series[0].last));
    const choice = make("fieldset", { class: "choice" });
    choice.append(make("legend", {}, "Horizontal axis"));
    for (const [value, text] of [["linear", "linear"], ["log", "logarithmic"], ["share", "share of each run"]]) {
      if (value === "share" && !hasLengths) continue;
      const label = make("label", {}), radio = make("input", { type: "radio", name: "axis-" + index, value: value });
      radio.addEventListener("change", () => { view.axis = value; writeAddress(); });
      radios.push(radio);
      label.append(radio, " " + text);
      choice.append(label);
    }
    section.prepend(choice);
  }

  all(".curves").forEach(addAxisChoice);
  for (const item of all(".curves .legend li")) {
    const button = make("button", { type: "button", title: "show or hide" });
    button.dataset.name = item.dataset.name;
    button.append(...item.childNodes);
    button.addEventListener("click", () => {
      if (!view.hidden.delete(button.dataset.name)) view.hidden.add(button.dataset.name);
      writeAddress();
    });
    item.append(button);
    buttons.push(button);
  }
  addEventListener("hashchange", readAddress);
  if (location.hash) readAddress();
  else show();

  /* ---- values under the pointer ---- */

  const tip = document.getElementById("tip");
  const shortNumber = v => v !== 0 && (Math.abs(v) >= 1e5 || Math.abs(v) < 1e-3) ? v.toExponential(3) : String(+v.toPrecision(5));
  const valueText = (plot, v) => plot.y.isPercent ? (100 * v).toFixed(2) + " %" : shortNumber(v);

  function hideTip(svg) {
    tip.hidden = true;
    for (const line of all(".cursor", svg)) line.remove();
  }

  function showTip(plot, event) {
    const size = plot.svg.getBoundingClientRect(), [left, top, right, bottom] = plot.box;
    const at = (event.clientX - size.left) * plot.svg.viewBox.baseVal.width / size.width;
    const placed = plot.series.filter(isShown).map(series => ({
      name: series.name, points: series.points.map(p => [left + placeOf(plot.x, xOf(plot, series, p[0])) * (right - left), p[1]])
    }));
    const nearest = (points, x) => points.reduce((a, b) => a && Math.abs(a[0] - x) < Math.abs(b[0] - x) ? a : b, null);
    const best = nearest(placed.flatMap(series => series.points), at);
    hideTip(plot.svg);
    if (!best || at < left - 8 || at > right + 8) return;
    const x = valueAt(plot.x, (best[0] - left) / (right - left));
    const lines = [plot.isShare ? (100 * x).toFixed(0) + " % of the run" : plot.unit + " " + (x > 20 ? Math.round(x) : shortNumber(x))];
    for (const series of placed) {
      const near = nearest(series.points, best[0]);
      if (near && Math.abs(near[0] - best[0]) < 6) lines.push(series.name + ": " + valueText(plot, near[1]));
    }
    tip.textContent = lines.join("\n");
    tip.hidden = false;
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 6)) + "px";
    tip.style.top = Math.max(4, Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 6)) + "px";
    plot.svg.append(make("path", { class: "cursor", d: `M${best[0]} ${top}V${bottom}` }));
  }

  for (const plot of plots) {
    plot.svg.addEventListener("mouseleave", () => hideTip(plot.svg));
    plot.svg.addEventListener("mousemove", event => showTip(plot, event));
  }

  /* ---- tables, commands, paper ---- */

  function sortBy(head) {
    const table = head.closest("table"), body = table.tBodies[0], column = head.cellIndex;
    const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    const key = row => {
      const cell = row.cells[column], text = cell.dataset.v !== undefined ? cell.dataset.v : cell.textContent;
      return text !== "" && isFinite(text) ? Number(text) : text;
    };
    for (const h of all("th", table)) h.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
    body.append(...Array.from(body.rows).sort((a, b) => {
      const x = key(a), y = key(b);
      if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1;
      return (x < y ? -1 : x > y ? 1 : 0) * sign;
    }));
  }

  for (const head of all("table.sortable th")) {
    head.tabIndex = 0;
    head.addEventListener("click", () => sortBy(head));
    head.addEventListener("keydown", event => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      sortBy(head);
    });
  }

  for (const code of all("pre > code")) {
    const button = make("button", { type: "button", class: "copy" }, "Copy");
    const text = code.textContent.replace(/^#.*\n/, "");
    button.addEventListener("click", () => {
      const area = make("textarea", {});
      area.value = text;
      document.body.append(area);
      area.select();
      button.textContent = document.execCommand("copy") ? "Copied" : "Press Ctrl-C";
      area.remove();
    });
    code.before(button);
  }

  addEventListener("beforeprint", () => { for (const details of all("details")) details.open = true; });
})();
