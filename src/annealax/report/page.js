// Reads numbers off charts, and enlarges them. All that it needs is in the page.
"use strict";
(() => {
  const label = document.createElement("output");
  label.className = "reading";
  label.hidden = true;
  document.body.append(label);

  const digits = (value, width) =>
    value.toFixed(Math.min(12, Math.max(0, 2 - Math.floor(Math.log10(width || 1)))));

  // A share of the way along a scale, as text.
  function reading(scale, share) {
    const [low, high] = scale.ends;
    const at = scale.log ? low * (high / low) ** share : low + share * (high - low);
    const name = scale.name ? `${scale.name}: ` : "";
    if (!scale.words) return name + digits(at, scale.log ? at : high - low);
    const place = Math.round(at) - Math.ceil(low);
    return name + scale.words[Math.max(0, Math.min(scale.words.length - 1, place))];
  }

  // The numbers under a point of the window, or nothing.
  function read(chart, event) {
    const inside = new DOMPoint(event.clientX, event.clientY)
      .matrixTransform(chart.getScreenCTM().inverse());
    const [left, top, width, height] = chart.whole;
    const x = (inside.x - left) / width, y = (inside.y - top) / height;
    for (const axes of chart.axes) {
      const [x0, y0, w, h] = axes.box;
      const across = (x - x0) / w, up = 1 - (y - y0) / h;
      if (across < 0 || across > 1 || up < 0 || up > 1) continue;
      const parts = [];
      if (axes.x) parts.push(reading(axes.x, across));
      if (axes.y) parts.push(reading(axes.y, up));
      return parts.join("\n");
    }
    return "";
  }

  function tell(event) {
    const text = read(event.currentTarget, event);
    label.hidden = !text;
    if (!text) return;
    label.textContent = text;
    event.currentTarget.parentNode.closest("dialog, body").append(label);
    const right = Math.min(event.clientX + 14, innerWidth - label.offsetWidth - 4);
    const below = Math.min(event.clientY + 16, innerHeight - label.offsetHeight - 4);
    label.style.left = `${Math.max(4, right)}px`;
    label.style.top = `${Math.max(4, below)}px`;
  }

  function prepare(chart) {
    chart.axes = JSON.parse(chart.dataset.axes);
    chart.whole = chart.getAttribute("viewBox").split(" ").map(Number);
    chart.addEventListener("pointermove", tell);
    chart.addEventListener("pointerleave", () => { label.hidden = true; });
  }

  // One chart over the whole window: a wheel, keys and buttons zoom, a drag moves.
  function enlarge(chart) {
    const dialog = document.createElement("dialog");
    const bar = document.createElement("div");
    const hint = document.createElement("p");
    const large = chart.cloneNode(true);
    hint.className = "note";
    hint.textContent = "Wheel, + and -: zoom. Drag: move. 0: all of it.";
    prepare(large);
    let box = [...large.whole];
    const show = () => large.setAttribute("viewBox", box.join(" "));
    const zoom = (factor, x, y) => {
      const scale = Math.min(large.whole[2] / box[2],
        Math.max(large.whole[2] / 40 / box[2], factor));
      box = [x + (box[0] - x) * scale, y + (box[1] - y) * scale,
        box[2] * scale, box[3] * scale];
      show();
    };
    const middle = () => [box[0] + box[2] / 2, box[1] + box[3] / 2];
    large.addEventListener("wheel", (event) => {
      event.preventDefault();
      const at = new DOMPoint(event.clientX, event.clientY)
        .matrixTransform(large.getScreenCTM().inverse());
      zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, at.x, at.y);
    }, { passive: false });
    large.addEventListener("pointerdown", (event) => {
      large.setPointerCapture(event.pointerId);
    });
    large.addEventListener("pointermove", (event) => {
      if (!large.hasPointerCapture(event.pointerId)) return;
      const scale = 1 / large.getScreenCTM().a;
      box[0] -= event.movementX * scale;
      box[1] -= event.movementY * scale;
      show();
    });
    const nearer = () => zoom(1 / 1.4, ...middle());
    const farther = () => zoom(1.4, ...middle());
    const all = () => { box = [...large.whole]; show(); };
    const keys = { "+": nearer, "=": nearer, "-": farther, "0": all };
    dialog.addEventListener("keydown", (event) => keys[event.key]?.());
    const buttons = [["+", nearer, "Zoom in"], ["−", farther, "Zoom out"],
      ["All", all, "All of it"], ["Close", () => dialog.close(), "Close"]];
    for (const [text, act, name] of buttons) {
      const button = document.createElement("button");
      button.textContent = text;
      button.setAttribute("aria-label", name);
      button.addEventListener("click", act);
      bar.append(button);
    }
    dialog.addEventListener("close", () => {
      document.body.append(label);
      label.hidden = true;
      dialog.remove();
      chart.focus();
    });
    dialog.append(bar, large, hint);
    document.body.append(dialog);
    dialog.showModal();
  }

  for (const chart of document.querySelectorAll("svg.chart")) {
    prepare(chart);
    chart.tabIndex = 0;
    chart.classList.add("opens");
    chart.setAttribute("role", "button");
    chart.addEventListener("click", () => enlarge(chart));
    chart.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      enlarge(chart);
    });
  }
})();
