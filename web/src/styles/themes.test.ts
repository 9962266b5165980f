import { expect, test } from "vitest";
import css from "./app.css?raw";

const block = (selector: string): Record<string, string> => {
  const at = css.indexOf(`${selector} {`);
  expect(at, selector).toBeGreaterThan(-1);
  const body = css.slice(css.indexOf("{", at) + 1, css.indexOf("}", at));
  return Object.fromEntries([...body.matchAll(/(--[\w-]+):\s*([^;]+);/g)].map(([, name, value]) => [name, value]));
};

test("dark by the system and dark by the switch are the same", () => {
  const system = block(':root:not([data-theme="light"])');
  expect(Object.keys(system).length).toBeGreaterThan(20);
  expect(block(':root[data-theme="dark"]')).toEqual(system);
});

/** The contrast of two colours by WCAG 2. */
const contrast = (a: string, b: string): number => {
  const luminance = (hex: string) => {
    const [r = 0, g = 0, b = 0] = [1, 3, 5].map((at) => {
      const value = Number.parseInt(hex.slice(at, at + 2), 16) / 255;
      return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [light = 0, dark = 0] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (light + 0.05) / (dark + 0.05);
};

test.each([":root", ':root[data-theme="dark"]'])("text is legible in %s", (selector) => {
  const tokens = block(selector);
  const need: [string, string][] = [["--text", "--surface"], ["--muted", "--surface"], ["--muted", "--bg"], ["--muted", "--sunken"], ["--muted", "--hover"], ["--accent", "--surface"], ["--accent", "--accent-soft"], ["--muted", "--accent-soft"], ["--on-accent", "--accent"]];
  for (const state of ["queued", "dispatching", "running", "done", "failed", "canceled", "warn"]) need.push([`--${state}`, `--${state}-soft`], [`--${state}`, "--surface"]);
  for (const json of ["key", "string", "number"]) need.push([`--json-${json}`, "--surface"], [`--json-${json}`, "--sunken"]);
  for (const [front, back] of need) expect(contrast(tokens[front] ?? "", tokens[back] ?? ""), `${front} on ${back}`).toBeGreaterThanOrEqual(4.5);
});
