// Lines of values under the pointer; without it the report reads the same.
"use strict";
for (const plot of document.querySelectorAll("svg[data-hover]")) {
  const data = JSON.parse(plot.dataset.hover);
  const cross = plot.querySelector(".cross");
  const figure = plot.closest("figure");
  const width = plot.viewBox.baseVal.width;
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  figure.append(tip);

  const nearest = (x) => {
    let low = 0;
    let high = data.x.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (data.x[middle] < x) low = middle;
      else high = middle;
    }
    return x - data.x[low] < data.x[high] - x ? low : high;
  };

  const line = (series, at) => {
    const row = document.createElement("div");
    const key = document.createElement("i");
    key.className = `c${series.colour}`;
    const value = document.createElement("b");
    value.textContent = series.text[at];
    row.append(key, `${series.name} `, value);
    return row;
  };

  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect();
    const at = nearest(((event.clientX - box.left) / box.width) * width);
    const rows = data.series.filter((series) => series.text[at] !== null).map((series) => line(series, at));
    if (!rows.length) return;
    cross.setAttribute("x1", data.x[at]);
    cross.setAttribute("x2", data.x[at]);
    cross.style.visibility = "visible";
    tip.replaceChildren(data.at[at], ...rows);
    tip.hidden = false;
    const x = (data.x[at] / width) * box.width;
    const left = x + tip.offsetWidth + 14 > box.width ? x - tip.offsetWidth - 12 : x + 12;
    tip.style.left = `${left}px`;
    tip.style.top = `${box.top - figure.getBoundingClientRect().top + 10}px`;
  });
  plot.addEventListener("pointerleave", () => {
    cross.style.visibility = "hidden";
    tip.hidden = true;
  });
}
