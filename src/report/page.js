/* The script of every page: values under the pointer, tables that can be sorted, commands to copy. All contents are there
 * without it. */
"use strict";
(function () {
  var tip = document.getElementById("tip");
  function number(v) {
    return v !== 0 && (Math.abs(v) >= 1e5 || Math.abs(v) < 1e-3) ? v.toExponential(3) : String(+v.toPrecision(5));
  }
  function axis(text) {
    var p = text.split(",").map(Number);
    return p[2] ? function (t) { return p[0] * Math.pow(p[1] / p[0], t); } : function (t) { return p[0] + (p[1] - p[0]) * t; };
  }
  function points(path) {
    if (!path.points)
      path.points = (path.getAttribute("d").match(/[ML][^ML]+/g) || []).map(function (s) { return s.slice(1).split(" ").map(Number); });
    return path.points;
  }
  function hide(svg) {
    tip.hidden = true;
    var line = svg.querySelector(".cursor");
    if (line) line.remove();
  }
  document.querySelectorAll("svg.plot").forEach(function (svg) {
    var paths = Array.prototype.slice.call(svg.querySelectorAll("path[data-name]"));
    if (!paths.length) return;
    var box = svg.dataset.box.split(",").map(Number), toX = axis(svg.dataset.x), toY = axis(svg.dataset.y);
    svg.addEventListener("mouseleave", function () { hide(svg); });
    svg.addEventListener("mousemove", function (event) {
      var size = svg.getBoundingClientRect(), at = (event.clientX - size.left) * svg.viewBox.baseVal.width / size.width;
      var best = null, lines = [];
      paths.forEach(function (path) {
        points(path).forEach(function (p) {
          if (best === null || Math.abs(p[0] - at) < Math.abs(best - at)) best = p[0];
        });
      });
      if (best === null || at < box[0] - 8 || at > box[2] + 8) { hide(svg); return; }
      paths.forEach(function (path) {
        var near = null;
        points(path).forEach(function (p) { if (near === null || Math.abs(p[0] - best) <= Math.abs(near[0] - best)) near = p; });
        if (near && Math.abs(near[0] - best) < 6) lines.push(path.dataset.name + ": " + number(toY((box[3] - near[1]) / (box[3] - box[1]))));
      });
      var x = toX((best - box[0]) / (box[2] - box[0]));
      tip.textContent = (svg.dataset.unit || "x") + " " + (x > 20 ? Math.round(x) : number(x)) + "\n" + lines.join("\n");
      tip.hidden = false;
      tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 6)) + "px";
      tip.style.top = Math.max(4, Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 6)) + "px";
      var line = svg.querySelector(".cursor");
      if (!line) {
        line = document.createElementNS(svg.namespaceURI, "path");
        line.setAttribute("class", "cursor");
        svg.appendChild(line);
      }
      line.setAttribute("d", "M" + best + " " + box[1] + "V" + box[3]);
    });
  });
  document.querySelectorAll("table.sortable th").forEach(function (head) {
    head.addEventListener("click", function () {
      var table = head.closest("table"), body = table.tBodies[0], column = head.cellIndex;
      var sign = head.dataset.d === "1" ? -1 : 1;
      table.querySelectorAll("th").forEach(function (h) { delete h.dataset.d; });
      head.dataset.d = sign;
      function key(row) {
        var cell = row.cells[column], text = cell.dataset.v !== undefined ? cell.dataset.v : cell.textContent;
        return text !== "" && isFinite(text) ? Number(text) : text;
      }
      Array.prototype.slice.call(body.rows).sort(function (a, b) {
        var x = key(a), y = key(b);
        if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1;
        return (x < y ? -1 : x > y ? 1 : 0) * sign;
      }).forEach(function (row) { body.appendChild(row); });
    });
  });
  document.querySelectorAll("pre > code").forEach(function (code) {
    var button = document.createElement("button"), text = code.textContent.replace(/^#.*\n/, "");
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", function () {
      var area = document.createElement("textarea");
      area.value = text;
      document.body.appendChild(area);
      area.select();
      button.textContent = document.execCommand("copy") ? "Copied" : "Press Ctrl-C";
      area.remove();
    });
    code.parentNode.insertBefore(button, code);
  });
  addEventListener("beforeprint", function () { document.querySelectorAll("details").forEach(function (d) { d.open = true; }); });
})();
