// Tables of figures can be sorted by a click on a heading; without scripts they just stand there.
for (const table of document.querySelectorAll("table.figures, table.matrix")) {
  const body = table.tBodies[0];
  const original = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const next = { none: "ascending", ascending: "descending", descending: "none" };
      const order = next[head.getAttribute("aria-sort") || "none"];
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      const key = (row) => {
        const cell = row.cells[at];
        return cell.dataset.v === undefined ? NaN : Number(cell.dataset.v);
      };
      const rows = [...original];
      if (order !== "none") {
        head.setAttribute("aria-sort", order);
        const sign = order === "ascending" ? 1 : -1;
        rows.sort((a, b) => {
          const [x, y] = [key(a), key(b)];
          if (Number.isNaN(x) && Number.isNaN(y)) {
            return sign * a.cells[at].textContent.localeCompare(b.cells[at].textContent);
          }
          // What is missing comes last either way.
          if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) ? 1 : -1;
          return sign * (x - y);
        });
      }
      body.append(...rows);
    });
  });
}
