
"use strict";
// Filters, groups and sorts the rows of the overview; draws the partition matrix of every array whose row is open, and tells
// what is under the pointer, or at the cursor of the keyboard.
(() => {
  const VIRTUAL = 1, HOLE = 2, INSIDE = -1;
  const LIGHT = { text: "#1b1b1f", muted: "#55555f", line: "#c4c4cc", warn: "#d43f3a", inside: "#888888", mark: "#ffffff" };
  const DARK = { text: "#e8e8ec", muted: "#b4b4be", line: "#55555f", warn: "#ff6b63", inside: "#888888", mark: "#ffffff" };
  const FONT = '12px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const tip = document.body.appendChild(document.createElement("div"));
  tip.id = "tip";
  tip.hidden = true;
  tip.setAttribute("role", "status");
  let printing = false, files = [], colours = [], pictures = [];

  const palette = () => (dark.matches && !printing ? DARK : LIGHT);
  const element = (name, text) => Object.assign(document.createElement(name), text === undefined ? {} : { textContent: text });

  const swatch = () => Object.assign(element("canvas"), { ariaHidden: "true" });

  async function unpacked() {
    const bytes = Uint8Array.from(atob(document.getElementById("data").textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  }

  // What fills a cell beside its colour: lines for virtual partitions, crosses for those that nobody covers.
  function pattern(context, colour, crossed) {
    const tile = element("canvas");
    tile.width = tile.height = 7;
    const own = tile.getContext("2d");
    own.strokeStyle = colour;
    own.lineWidth = crossed ? 1 : 1.5;
    for (const shift of [-7, 0, 7]) {
      own.moveTo(shift - 1, 8), own.lineTo(shift + 8, -1);
      if (crossed) own.moveTo(shift - 1, -1), own.lineTo(shift + 8, 8);
    }
    own.stroke();
    return context.createPattern(tile, "repeat");
  }

  function prepared(context, width, height) {
    const ratio = Math.min(window.devicePixelRatio || 1, 3);
    const canvas = context.canvas;
    canvas.width = Math.round(width * ratio), canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`, canvas.style.height = `${height}px`;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const p = palette();
    return { context, p, lines: pattern(context, p.mark, false), crosses: pattern(context, p.warn, true) };
  }

  function drawCell(pen, box, { file, colour, marks, conformed }) {
    const { context, p } = pen;
    const [x, y, w, h] = [box.x, box.y, Math.max(box.w - (box.w > 3 ? 1 : 0), 0.5), Math.max(box.h - (box.h > 3 ? 1 : 0), 0.5)];
    if (file >= INSIDE) {
      context.fillStyle = file === INSIDE ? p.inside : colours[colour];
      context.fillRect(x, y, w, h);
    }
    if (marks & VIRTUAL) {
      context.fillStyle = pen.lines;
      context.fillRect(x, y, w, h);
    }
    if (marks & HOLE) {
      context.fillStyle = pen.crosses;
      context.fillRect(x, y, w, h);
      context.strokeStyle = p.warn;
      context.lineWidth = 1;
      if (w > 4 && h > 4) context.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
    }
    if (conformed && w > 6 && h > 6) {
      context.beginPath();
      context.arc(x + w - 5, y + 5, 3, 0, 2 * Math.PI);
      context.fillStyle = "#ffffff";
      context.fill();
      context.lineWidth = 1;
      context.strokeStyle = "#1b1b1f";
      context.stroke();
    }
  }

  const SINGLE = { name: "", time: false, up: false, cuts: [0, 1], partitions: 1, places: [], labels: [], gaps: [] };

  // Where the cells of an axis lie between 0 and 1.
  function laid(axis) {
    const begin = axis.places.length ? axis.places[0] : axis.cuts.slice(0, -1);
    const end = axis.places.length ? axis.places[1] : axis.cuts.slice(1);
    const low = begin[0], length = Math.max(end[end.length - 1] - low, 1e-9);
    const at = (value) => (value - low) / length;
    return { begin: begin.map(at), end: end.map(at), at };
  }

  class Picture {
    constructor(section, data) {
      Object.assign(this, { section, data, wanted: null, pressed: null, cursor: null, drawn: false });
      this.figure = section.querySelector("figure");
      this.canvas = this.figure.querySelector("canvas");
      this.context = this.canvas.getContext("2d");
      const [across, up, ...others] = data.order;
      Object.assign(this, { across, up, plane: data.shape.map(() => 0) });
      this.axisX = across === undefined ? SINGLE : data.axes[across];
      this.axisY = up === undefined ? SINGLE : data.axes[up];
      this.columns = this.axisX.cuts.length - 1, this.rows = this.axisY.cuts.length - 1;
      this.strides = data.shape.map((_, axis) => data.shape.slice(axis + 1).reduce((a, b) => a * b, 1));
      this.layX = laid(this.axisX), this.layY = laid(this.axisY);
      const hole = data.marks.findIndex((marks) => marks & HOLE);  // it is seen at first
      if (hole >= 0) this.plane = data.shape.map((size, axis) => Math.floor(hole / this.strides[axis]) % size);
      this.ownFiles = new Set(data.files.filter((f) => f >= 0));
      this.figure.hidden = this.columns < 1 || this.rows < 1 || !data.files.length;
      if (!this.figure.hidden) this.equip(others);
    }

    equip(others) {
      const planes = this.figure.querySelector(".planes");
      for (const axis of others) {
        const { name, labels, cuts } = this.data.axes[axis];
        const label = planes.appendChild(element("label", `${name} `));
        const choice = label.appendChild(element("select"));
        for (let i = 0; i + 1 < cuts.length; i++) choice.add(new Option(labels.length ? labels[0][i] : `${cuts[i]}:${cuts[i + 1]}`, i));
        choice.value = this.plane[axis];
        choice.addEventListener("change", () => ((this.plane[axis] = +choice.value), this.draw()));
      }
      this.canvas.addEventListener("pointermove", (e) => this.point(e));
      this.canvas.addEventListener("pointerdown", (e) => this.point(e));
      this.canvas.addEventListener("pointerleave", () => this.leave());
      this.canvas.addEventListener("blur", () => this.leave());
      this.canvas.addEventListener("keydown", (e) => this.key(e));
      this.section.querySelectorAll(".conformed tbody tr").forEach((row, number) => {
        const button = element("button", row.cells[0].textContent);
        button.type = "button";
        button.setAttribute("aria-pressed", "false");
        button.title = "Show where";
        button.addEventListener("click", () => this.press(button, number));
        row.cells[0].replaceChildren(button);
      });
      this.legend();
    }

    press(button, number) {
      const on = button.getAttribute("aria-pressed") !== "true";
      this.section.querySelectorAll("button[aria-pressed]").forEach((b) => b.setAttribute("aria-pressed", "false"));
      button.setAttribute("aria-pressed", String(on));
      this.pressed = on ? number : null;
      this.draw();
    }

    legend() {
      const { files: cells, marks, templates, axes } = this.data;
      const some = (mark) => marks.some((m) => m & mark);
      const shared = axes.map((a) => Math.ceil(a.partitions / Math.max(a.cuts.length - 1, 1))).reduce((a, b) => a * b, 1);
      const entries = [
        [this.ownFiles.size > 1, "a colour per file", { file: 0, colour: 0, marks: 0 }],
        [cells.includes(INSIDE), "in memory", { file: INSIDE, marks: 0 }],
        [some(VIRTUAL), "virtual: a part of a file's variable", { file: 0, colour: 0, marks: VIRTUAL }],
        [some(HOLE), "missing: no file covers it", { file: -2, marks: HOLE }],
        [templates.some((t) => this.isConverted(t)), "conformed on reading", { file: 0, colour: 0, marks: 0, conformed: true }],
      ];
      const parent = this.figure.querySelector(".legend");
      parent.replaceChildren();
      for (const [there, text, cell] of entries.filter((e) => e[0])) {
        const item = parent.appendChild(element("span"));
        const pen = prepared(item.appendChild(swatch()).getContext("2d"), 24, 14);
        drawCell(pen, { x: 0, y: 0, w: 24, h: 14 }, cell);
        item.append(text);
      }
      if (this.axisX.gaps.length) {
        const item = parent.appendChild(element("span"));
        const { context, p } = prepared(item.appendChild(swatch()).getContext("2d"), 24, 6);
        context.fillStyle = p.warn;
        context.fillRect(0, 1, 24, 4);
        item.append("gap: missing steps");
      }
      if (shared > 1) parent.append(element("span", `neighbours share a cell, ${shared} partitions at most`));
    }

    index(i, j) {
      const place = [...this.plane];
      if (this.across !== undefined) place[this.across] = i;
      if (this.up !== undefined) place[this.up] = j;
      return place.reduce((sum, n, axis) => sum + n * this.strides[axis], 0);
    }

    box(i, j) {
      const g = this.geometry, up = this.axisY.up;
      const low = this.layY.begin[j], high = this.layY.end[j];
      const x = g.left + this.layX.begin[i] * g.width, y = g.top + (up ? 1 - high : low) * g.height;
      return { x, y, w: (this.layX.end[i] - this.layX.begin[i]) * g.width, h: (high - low) * g.height };
    }

    // Whether reading changes values, their order or their precision.
    isConverted(template) {
      return template >= 0 && this.data.conforms[template].some((number) => this.data.matters.includes(number));
    }

    isWanted(cell) {
      const { files: cells, templates, conforms } = this.data;
      if (this.pressed !== null && !(templates[cell] >= 0 && conforms[templates[cell]].includes(this.pressed))) return false;
      return this.wanted === null || this.wanted.has(cells[cell]);
    }

    draw() {
      if (this.figure.hidden || !this.figure.clientWidth) return;
      this.drawn = true;
      const total = this.figure.clientWidth, body = Math.min(Math.max(this.rows * 22, 28), 300);
      this.context.font = FONT;
      const left = this.up === undefined ? 1 : Math.min(this.widest(), total / 4) + 10;
      this.geometry = { left, top: 9, width: total - left - 2, height: body, total };
      const pen = prepared(this.context, total, body + 9 + 38);
      const { files: cells, marks, colours: own, templates } = this.data;
      for (let j = 0; j < this.rows; j++) {
        for (let i = 0; i < this.columns; i++) {
          const cell = this.index(i, j), conformed = this.isConverted(templates[cell]);
          this.context.globalAlpha = this.isWanted(cell) ? 1 : 0.15;
          drawCell(pen, this.box(i, j), { file: cells[cell], colour: own[cell], marks: marks[cell], conformed });
        }
      }
      this.context.globalAlpha = 1;
      this.drawGaps(pen);
      this.drawAxes(pen);
      if (this.cursor) this.drawCursor(pen);
    }

    drawCursor({ context, p }) {
      const { x, y, w, h } = this.box(...this.cursor);
      context.strokeStyle = p.text;
      context.lineWidth = 2;
      context.strokeRect(x, y, Math.max(w - 1, 2), Math.max(h - 1, 2));
    }

    drawGaps({ context, p }) {
      const g = this.geometry;
      context.fillStyle = p.warn;
      for (const [from, to] of this.axisX.gaps) {
        const x = g.left + this.layX.at(from) * g.width;
        context.fillRect(x, 1, Math.max(this.layX.at(to) * g.width + g.left - x, 2), 4);
      }
    }

    // Labels of the up axis, one for each cell, and how wide they are.
    upLabels() {
      const { labels, cuts } = this.axisY;
      return labels.length ? labels[0] : cuts.slice(0, -1).map(String);
    }

    widest() {
      const found = this.upLabels();
      const step = Math.max(1, Math.floor(found.length / 50));
      return found.reduce((most, text, n) => (n % step ? most : Math.max(most, this.context.measureText(text).width)), 20);
    }

    drawAxes({ context, p }) {
      const g = this.geometry, bottom = g.top + g.height;
      context.font = FONT;
      context.strokeStyle = p.muted;
      context.fillStyle = p.text;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(g.left, bottom + 1.5), context.lineTo(g.left + g.width, bottom + 1.5);
      context.stroke();
      this.ticks(context, g, bottom);
      context.fillStyle = p.muted;
      context.textAlign = "center";
      context.fillText(this.axisX.name, g.left + g.width / 2, bottom + 34);
      if (this.up === undefined) return;
      const texts = this.upLabels(), step = Math.ceil((13 * this.rows) / g.height);
      context.textAlign = "right";
      context.fillText(this.axisY.name, g.left - 6, bottom + 18, g.left - 8);
      context.textBaseline = "middle";
      context.fillStyle = p.text;
      for (let j = 0; j < this.rows; j += step) {
        const { y, h } = this.box(0, j);
        context.fillText(texts[j], g.left - 6, y + h / 2, g.left - 8);
      }
      context.textBaseline = "alphabetic";
    }

    ticks(context, g, bottom) {
      const { labels, cuts } = this.axisX, n = this.columns;
      const long = labels.length ? labels[0] : cuts.slice(0, -1).map(String);
      const short = long.map((t) => t.slice(0, 10));
      const days = this.axisX.time && new Set(short).size === new Set(long).size;
      const last = labels.length ? labels[1][n - 1] : String(cuts[n]);
      const end = days ? last.slice(0, 10) : last, edge = g.left + g.width;
      context.textAlign = "right";
      context.fillText(end, edge, bottom + 18);
      let free = g.left - 1;
      const limit = edge - context.measureText(end).width - 12;
      context.textAlign = "left";
      for (let i = 0; i < n; i++) {
        const x = g.left + this.layX.begin[i] * g.width;
        if (x < free) continue;
        const text = days ? short[i] : long[i], width = context.measureText(text).width;
        if (x + width > limit) break;
        context.fillRect(x, bottom + 2, 1, 4);
        context.fillText(text, x, bottom + 18);
        free = x + width + 14;
      }
    }

    // The cell at a place of the canvas, or null.
    hit(x, y) {
      const g = this.geometry, u = (x - g.left) / g.width, v = (y - g.top) / g.height;
      const find = ({ begin, end }, at) => {
        let low = 0, high = begin.length - 1;
        while (low < high) {
          const middle = (low + high + 1) >> 1;
          if (begin[middle] <= at) low = middle;
          else high = middle - 1;
        }
        return at >= begin[low] && at <= end[low] ? low : -1;
      };
      const i = find(this.layX, u), j = find(this.layY, this.axisY.up ? 1 - v : v);
      return i < 0 || j < 0 ? null : [i, j];
    }

    point(event) {
      const bounds = this.canvas.getBoundingClientRect();
      const x = event.clientX - bounds.left, y = event.clientY - bounds.top;
      const cell = this.hit(x, y);
      const gap = cell ? null : this.gapAt(x, y);
      this.move(cell);
      if (cell) this.tell(this.lines(cell), event.clientX, event.clientY);
      else if (gap) this.tell(gap, event.clientX, event.clientY);
      else tip.hidden = true;
    }

    gapAt(x, y) {
      const g = this.geometry, u = (x - g.left) / g.width;
      if (y > g.top + g.height || u < 0 || u > 1) return null;
      const found = this.axisX.gaps.find(([from, to]) => this.layX.at(from) <= u && u <= this.layX.at(to));
      return found ? ["Gap", found[2]] : null;
    }

    move(cell) {
      if (String(cell) === String(this.cursor)) return;
      this.cursor = cell;
      if (this.data.files.length <= 20000) this.draw();
    }

    leave() {
      tip.hidden = true;
      this.move(null);
    }

    key(event) {
      const up = this.axisY.up ? 1 : -1;
      const steps = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, up], ArrowDown: [0, -up], Home: [-1e9, 0], End: [1e9, 0] };
      if (event.key === "Escape") return this.leave();
      const step = steps[event.key];
      if (!step) return;
      event.preventDefault();
      const [i, j] = this.cursor || [step[0] > 0 ? -1 : 0, 0];
      const cell = [Math.min(Math.max(i + step[0], 0), this.columns - 1), Math.min(Math.max(j + step[1], 0), this.rows - 1)];
      this.move(cell);
      const bounds = this.canvas.getBoundingClientRect(), { x, y, w, h } = this.box(...cell);
      this.tell(this.lines(cell), bounds.left + x + w / 2, bounds.top + y + h);
    }

    // What is said of a cell: the file, where it lies in the array, which part of the file it is, what is conformed.
    lines([i, j]) {
      const { files: cells, marks, parts, templates, conforms, axes, variables, shape } = this.data, cell = this.index(i, j);
      const file = cells[cell], found = [];
      found.push(file >= 0 ? files[file].split("/").pop() : file === INSIDE ? "In memory" : "Missing: no file covers this");
      if (file >= 0 && files[file].includes("/")) found.push(files[file]);
      let shared = 1;
      axes.forEach((axis, number) => {
        const at = number === this.across ? i : number === this.up ? j : this.plane[number];
        const ends = axis.labels.length ? [...new Set([axis.labels[0][at], axis.labels[1][at]])].join(" to ") : "";
        if (shape[number] > 1 || number === this.across) found.push(`${axis.name} ${axis.cuts[at]}:${axis.cuts[at + 1]}${ends ? ` (${ends})` : ""}`);
        shared *= Math.max(Math.round(axis.partitions / shape[number]), 1);
      });
      if (shared > 1) found.push(`about ${shared} partitions share this cell`);
      if (parts[cell]) found.push(`part: ${parts[cell]}`);
      else if (marks[cell] & VIRTUAL) found.push("a part of the file's variable");
      if (file >= 0 && marks[cell] & HOLE) found.push("something is missing here");
      if (file >= 0 && variables.length === 1) found.push(`variable ${variables[0]}`);
      const rows = this.section.querySelectorAll(".conformed tbody tr");
      for (const number of templates[cell] >= 0 ? conforms[templates[cell]] : []) {
        if (rows[number] && this.data.matters.includes(number)) found.push(`${rows[number].cells[0].textContent}: ${rows[number].cells[1].textContent} → ${rows[number].cells[2].textContent}`);
      }
      return found;
    }

    tell([first, ...others], x, y) {
      tip.replaceChildren(element("b", first), ...others.map((line) => element("span", line)));
      tip.hidden = false;
      const { width, height } = tip.getBoundingClientRect();
      const left = Math.max(Math.min(x + 12, innerWidth - width - 8), 8);
      const top = y + 16 + height > innerHeight - 8 ? Math.max(y - height - 12, 8) : y + 16;
      tip.style.transform = `translate(${left}px, ${top}px)`;
    }
  }

  // A number of bytes as `info` writes it.
  function amount(bytes) {
    const units = ["B", "kB", "MB", "GB", "TB"];
    let size = bytes, unit = 0;
    for (; size >= 1000 && unit < 4; unit++) size /= 1000;
    return unit ? `${size.toFixed(1)} ${units[unit]}` : `${bytes} B`;
  }

  const plural = (count, what) => `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;

  // The rows of the overview, and the choices above them.
  class Datasets {
    constructor() {
      this.body = document.getElementById("rows");
      this.form = document.getElementById("search"), this.query = document.getElementById("query");
      const elements = this.body ? [...this.body.querySelectorAll(".row")] : [];
      this.rows = elements.map((element) => {
        const [number, start, files, bytes, problems] = element.dataset.sort.split(" ").map(Number);
        const head = element.querySelector("summary") || element;
        const cells = [...head.querySelector(".facets").children].map((cell) => cell.title || cell.textContent);
        return { element, head, cells, number, start, files, bytes, problems, text: element.textContent.toLowerCase() };
      });
      this.rows.sort((a, b) => a.number - b.number);
      this.names = [...document.querySelectorAll("#overview .head .facets > span")].map((name) => name.textContent);
      this.filters = this.names.map(() => null);
      this.group = this.body && this.body.dataset.group !== undefined ? +this.body.dataset.group : -1;
      this.order = "number";
      this.groups = [...document.querySelectorAll(".group")].map((element) => this.known(element));
      if (this.rows.length > 1) this.equip();
      this.form.hidden = false;
      this.form.addEventListener("submit", (event) => event.preventDefault());
      this.query.addEventListener("input", () => this.choose());
      for (const row of this.rows) row.element.addEventListener("toggle", () => row.element.open && this.opened(row));
      for (const row of this.rows) if (row.element.open) this.opened(row);
      const layout = document.getElementById("layout");
      if (layout) this.opened({ element: layout });
      document.addEventListener("click", (event) => {
        const link = event.target.closest('a[href^="#array-"]');
        if (link) this.reveal(link.hash.slice(1));
      });
      addEventListener("hashchange", () => this.reveal(location.hash.slice(1)));
      this.reveal(location.hash.slice(1));
    }

    equip() {
      const values = this.names.map((_, n) => [...new Set(this.rows.map((row) => row.cells[n]))].sort());
      this.names.forEach((name, n) => {
        if (values[n].length < 2 || values[n].length > 300) return;
        const select = this.select(name, ["all", ...values[n].map((value) => value || "(none)")].map((text, i) => [i, text]), 0);
        select.addEventListener("change", () => ((this.filters[n] = select.selectedIndex ? values[n][select.selectedIndex - 1] : null), this.choose()));
      });
      const grouping = this.names.map((name, n) => [n, name]).filter(([n]) => values[n].length > 1 && values[n].length < this.rows.length);
      if (grouping.length) {
        const select = this.select("group by", [[-1, "nothing"], ...grouping], this.group);
        select.addEventListener("change", () => ((this.group = +select.value), this.arrange()));
      }
      const orders = [["number", "name"], ["start", "start"], ["files", "files"], ["bytes", "size"]];
      if (this.rows.some((row) => row.problems)) orders.push(["problems", "problems"]);
      const order = this.select("sort by", orders, this.order);
      order.addEventListener("change", () => ((this.order = order.value), this.arrange()));
    }

    select(name, options, chosen) {
      const label = element("label", `${name} `), select = label.appendChild(element("select"));
      for (const [value, text] of options) select.add(new Option(text, value, false, value === chosen));
      this.form.insertBefore(label, this.form.querySelector("output"));
      return select;
    }

    known(element) {
      return { element, rows: this.rows.filter((row) => element.contains(row.element)) };
    }

    // Rows in their groups and order.
    arrange() {
      const descending = ["files", "bytes", "problems"].includes(this.order);
      const sorted = [...this.rows].sort((a, b) => (descending ? b[this.order] - a[this.order] : a[this.order] - b[this.order]) || a.number - b.number);
      const column = this.group;
      for (const row of [...this.rows.map((r) => r.head), document.querySelector("#overview .head")]) {
        [...row.querySelector(".facets").children].forEach((cell, n) => (cell.hidden = n === column));
      }
      const shown = this.names.map((_, n) => n).filter((n) => n !== column);
      const width = shown.map((n) => `var(--w${n})`).join(" + ");
      document.documentElement.style.setProperty("--facets", `max(${column < 0 ? "14ch" : `var(--g${column})`}, 0ch + ${width || "0ch"} + ${1.5 * shown.length}ch)`);
      this.groups = [];
      if (column < 0) this.body.replaceChildren(...sorted.map((row) => row.element));
      else {
        const values = [...new Set(sorted.map((row) => row.cells[column]))];
        if (this.order === "number") values.sort();
        this.groups = values.map((value) => this.grouped(value, sorted.filter((row) => row.cells[column] === value)));
        this.body.replaceChildren(...this.groups.map((group) => group.element));
      }
      this.choose();
    }

    // A group with the union of its bars.
    grouped(value, rows) {
      const details = element("details"), summary = details.appendChild(element("summary"));
      details.className = "group", details.open = true;
      const facets = summary.appendChild(element("span"));
      facets.className = "facets";
      const name = facets.appendChild(element("span", `${this.names[this.group]} `));
      name.append(element("b", value || "none"));
      facets.appendChild(element("span")).className = "count";
      const bar = summary.appendChild(rows[0].head.querySelector(".bar").cloneNode(true));
      bar.removeAttribute("role"), bar.removeAttribute("aria-label"), bar.setAttribute("aria-hidden", "true");
      bar.querySelectorAll("path:not(.grid)").forEach((path) => path.remove());
      for (const kind of ["data", "overlap", "hole", "gap"]) {
        const paths = rows.flatMap((row) => [...row.head.querySelectorAll(`.bar .${kind}`)]);
        if (!paths.length) continue;
        const path = bar.appendChild(paths[0].cloneNode());
        path.setAttribute("d", paths.map((p) => p.getAttribute("d")).join(""));
      }
      for (const kind of ["flag", "when", "files", "bytes"]) {
        if (kind !== "flag" || rows[0].head.querySelector(".flag")) summary.appendChild(element("span")).className = kind;
      }
      const times = rows.map((row) => row.head.querySelector(".when").textContent).filter(Boolean).flatMap((when) => when.split(" to ")).sort();
      const when = [...new Set([times[0], times[times.length - 1]])].filter(Boolean);
      summary.querySelector(".when").textContent = when.join(" to ");
      const flag = summary.querySelector(".flag");
      if (flag) flag.textContent = rows.some((row) => row.problems) ? "problems" : "";
      details.append(...rows.map((row) => row.element));
      return { element: details, rows };
    }

    // Rows whose words, or one of whose files, hold all words of the query, and that have the chosen facets; of other tables
    // the rows that hold the words.
    choose() {
      const words = this.query.value.toLowerCase().split(/\s+/).filter(Boolean);
      const holds = (text) => words.every((w) => text.includes(w));
      const matching = new Set();
      if (words.length) files.forEach((name, n) => holds(name.toLowerCase()) && matching.add(n));
      const pictured = new Map(pictures.map((picture) => [picture.section, picture]));
      const chosen = this.filters.map((value, n) => [n, value]).filter(([, value]) => value !== null);
      let shown = 0, others = 0;
      for (const row of this.rows) {
        const picture = pictured.get(row.element.querySelector(".array"));
        const own = picture ? [...picture.ownFiles].filter((n) => matching.has(n)) : [];
        const there = chosen.every(([n, value]) => row.cells[n] === value) && (!words.length || own.length > 0 || holds(row.text));
        row.element.hidden = !there;
        shown += there;
        if (picture) {
          picture.wanted = own.length > 0 && own.length < picture.ownFiles.size ? new Set(own) : null;
          if (there && picture.drawn) picture.draw();
        }
      }
      for (const group of this.groups) this.count(group, words.length > 0);
      for (const section of document.querySelectorAll("main > section:not(#overview):not(#shared)")) {
        const all = [...section.querySelectorAll("tbody tr, #problems li, #layout li")];
        for (const row of all) row.hidden = !holds(row.textContent.toLowerCase());
        const left = all.filter((row) => !row.hidden).length;
        section.hidden = !left;
        others += left;
      }
      const said = `${shown} of ${plural(this.rows.length, "array")}${matching.size ? `, ${matching.size} of ${plural(files.length, "file")}` : ""}`;
      document.getElementById("count").textContent = words.length || chosen.length ? said : "";
      document.getElementById("none").hidden = shown + others > 0 || !(words.length || chosen.length);
    }

    count({ element: details, rows }, searching) {
      const left = rows.filter((row) => !row.element.hidden), summary = details.querySelector("summary");
      const sum = (key) => left.reduce((total, row) => total + row[key], 0);
      details.hidden = !left.length;
      if (searching && left.length) details.open = true;
      const of = left.length < rows.length ? `${left.length} of ` : "";
      summary.querySelector(".count").textContent = of + plural(rows.length, "dataset");
      summary.querySelector(".files").textContent = plural(sum("files"), "file");
      summary.querySelector(".bytes").textContent = amount(sum("bytes"));
    }

    // Opens the row that a link names.
    reveal(name) {
      const target = name.startsWith("array-") ? document.getElementById(name) : null;
      if (!target) return;
      for (let e = target; e; e = e.parentElement) {
        if (e.localName === "details") e.open = true;
        if (e.hidden) e.hidden = false;
      }
      (target.closest(".row") || target).scrollIntoView();
    }

    // Buttons that copy the lines of a row, or of the findings.
    opened({ element: row }) {
      for (const line of row.querySelectorAll(".line")) {
        if (line.querySelector("button")) continue;
        const button = line.appendChild(element("button", "Copy")), code = line.querySelector("code");
        button.type = "button";
        button.setAttribute("aria-label", `Copy the line of ${line.querySelector("span").textContent}`);
        button.addEventListener("click", () => copy(code, button));
      }
    }
  }

  async function copy(code, button) {
    getSelection().selectAllChildren(code);
    let done = false;
    try {
      await navigator.clipboard.writeText(code.textContent);
      done = true;
    } catch {
      done = document.execCommand("copy");
    }
    button.textContent = done ? "Copied" : "Selected";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  }

  function redraw(all) {
    for (const picture of pictures) {
      if (!all && !picture.drawn) continue;
      if (!picture.figure.hidden) picture.legend();
      picture.draw();
    }
  }

  function begin(data) {
    ({ files, colours } = data);
    const sections = [...document.querySelectorAll("section.array")];
    pictures = sections.map((section) => new Picture(section, data.arrays[+section.dataset.array]));
    const byNumber = new Map(pictures.map((picture) => [picture.section.dataset.array, picture]));
    const seen = new IntersectionObserver((entries) => {
      for (const { isIntersecting, target } of entries) {
        const picture = byNumber.get(target.dataset.array);
        if (isIntersecting && !picture.drawn) picture.draw();
      }
    }, { rootMargin: "300px" });
    const sized = new ResizeObserver((entries) => {
      for (const { target } of entries) {
        const picture = byNumber.get(target.dataset.array);
        if (picture.drawn && picture.geometry.total !== picture.figure.clientWidth) picture.draw();
      }
    });
    sections.forEach((section) => (seen.observe(section), sized.observe(section)));
    dark.addEventListener("change", () => redraw(false));
    addEventListener("beforeprint", () => ((printing = true), redraw(true)));
    addEventListener("afterprint", () => ((printing = false), redraw(false)));
    const datasets = new Datasets();
    if (datasets.query.value) datasets.choose();
    document.documentElement.dataset.ready = "yes";
  }

  unpacked().then(begin).catch((error) => {
    const note = element("p", `The pictures cannot be drawn: ${error.message}`);
    note.className = "note";
    document.querySelector("main").prepend(note);
  });
})();
