// How much room there is, for what CSS alone cannot decide: which columns a table has.
import { signal } from "@preact/signals";

export type Width = "narrow" | "medium" | "wide";
export const width = signal<Width>("wide");

if (typeof matchMedia !== "undefined") {
  const narrow = matchMedia("(max-width: 640px)");
  const medium = matchMedia("(max-width: 1080px)");
  const settle = () => {
    width.value = narrow.matches ? "narrow" : medium.matches ? "medium" : "wide";
  };
  narrow.addEventListener("change", settle);
  medium.addEventListener("change", settle);
  settle();
}
