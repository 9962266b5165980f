// Keyboard commands. Each part of the page adds its own while it is shown; `?` lists what is there now. A sequence such as "g j"
// is two keys within a second. Keys that are typed into a field are left alone, except Escape.
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

export interface Command {
  /** "j", "Shift+X", "g j", "Escape", "Enter". */
  keys: string;
  /** What it does, for the list: "Next row". */
  label: string;
  /** Under which heading it is listed. */
  group: string;
  run: () => void;
}

const commands = signal<readonly Command[]>([]);

/** All commands that work now. */
export const listed = commands;

/** Adds commands until the returned function is called. */
export function addCommands(add: readonly Command[]): () => void {
  commands.value = [...commands.peek(), ...add];
  return () => {
    commands.value = commands.peek().filter((command) => !add.includes(command));
  };
}

/** Adds a component's commands while it is shown. The list may be made anew at each rendering; its keys may not change. */
export function useCommands(list: readonly Command[]): void {
  const latest = useRef(list);
  latest.current = list;
  const key = list.map((command) => command.keys).join(",");
  useEffect(() => addCommands(latest.current.map((command, index) => ({ ...command, run: () => latest.current[index]?.run() }))), [key]);
}

/** The name of the key of an event, as commands write it. */
export function keyName(event: Pick<KeyboardEvent, "key" | "shiftKey">): string {
  return event.shiftKey && event.key.length === 1 && event.key.toLowerCase() !== event.key.toUpperCase() ? `Shift+${event.key.toUpperCase()}` : event.key;
}

const typing = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && (target.isContentEditable || target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement || (target instanceof HTMLInputElement && !["checkbox", "radio", "button"].includes(target.type)));

/** Follows the keyboard. Called once, at the start. */
export function listenToKeys(): void {
  let before = "";
  let at = 0;
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    // A dialog has the keyboard to itself.
    if (document.querySelector("dialog[open]")) return;
    const name = keyName(event);
    // Enter and the space bar belong to the control that has the focus.
    if ((name === "Enter" || name === " ") && event.target instanceof Element && event.target.closest("a, button, summary, [role=button]")) return;
    const sequence = Date.now() - at < 1000 ? `${before} ${name}` : "";
    // The one that was added last belongs to the innermost part of the page.
    const found = commands.peek().findLast((command) => command.keys === sequence) ?? commands.peek().findLast((command) => command.keys === name);
    before = name;
    at = Date.now();
    if (!found) return;
    event.preventDefault();
    at = 0;
    found.run();
  });
}
