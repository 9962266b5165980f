// Light, dark, or as the system says. The choice is a setting of this browser, not of the session.
import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
const KEY = "jobtree.theme";

const stored = (): Theme => {
  try {
    const value = localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : "system";
  } catch {
    // A browser may forbid storage.
    return "system";
  }
};

export const theme = signal<Theme>(stored());

/** True if the page is dark now, for canvases that take no CSS. */
export const dark = signal(false);

export function listenToTheme(): void {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const settle = () => {
    const root = document.documentElement;
    if (theme.value === "system") delete root.dataset.theme;
    else root.dataset.theme = theme.value;
    dark.value = theme.value === "dark" || (theme.value === "system" && system.matches);
    try {
      if (theme.value === "system") localStorage.removeItem(KEY);
      else localStorage.setItem(KEY, theme.value);
    } catch {
      // Then it lasts as long as the page.
    }
  };
  effect(settle);
  system.addEventListener("change", settle);
}
