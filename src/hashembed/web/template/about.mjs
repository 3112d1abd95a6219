// How many training texts each class had.
import { byId, count, element, isolated, measured } from "./dom.mjs";

const FEW = 8;

export function showCounts(model) {
  const counts = model.info.class_counts;
  const order = model.labels.map((_, i) => i).sort((a, b) => counts[b] - counts[a]);
  const most = counts[order[0]] || 1;
  const table = byId("counts");
  const button = byId("all-counts");
  const draw = (shown) => {
    const rows = order.slice(0, shown).map((i) => {
      return element(
        "tr",
        {},
        element("th", { scope: "row" }, isolated(model.labels[i], { class: "clamp" })),
        element("td", { class: "number" }, count(counts[i])),
        element("td", { class: "bar" }, measured({}, "--share", counts[i] / most)),
      );
    });
    const caption = `Training texts of ${model.multilabel ? "each label" : "each class"}`;
    table.replaceChildren(element("caption", {}, caption), element("tbody", {}, ...rows));
    button.hidden = order.length <= FEW;
    button.textContent = shown === FEW ? `Show all ${count(order.length)}` : "Show fewer";
  };
  let shown = FEW;
  button.addEventListener("click", () => draw((shown = shown === FEW ? order.length : FEW)));
  draw(shown);
}
