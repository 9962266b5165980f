// Short messages about what was just done, read aloud by screen readers. They leave by themselves, errors only when closed.
import { signal } from "@preact/signals";
import { ApiError } from "../api";
import { Icon } from "./Icon";

interface Message {
  id: number;
  text: string;
  hint: string | null;
  bad: boolean;
}

const messages = signal<readonly Message[]>([]);
let next = 0;

const drop = (id: number) => {
  messages.value = messages.peek().filter((message) => message.id !== id);
};

/** Says what was done. */
export function say(text: string): void {
  const id = next++;
  messages.value = [...messages.peek().slice(-3), { id, text, hint: null, bad: false }];
  setTimeout(drop, 5000, id);
}

/** Says what went wrong, and what to do next. */
export function complain(error: unknown): void {
  if (error instanceof DOMException && error.name === "AbortError") return;
  const text = error instanceof Error ? error.message : String(error);
  messages.value = [...messages.peek().slice(-3), { id: next++, text, hint: error instanceof ApiError ? error.hint : null, bad: true }];
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {messages.value.map(({ id, text, hint, bad }) => (
        <div key={id} class={bad ? "toast bad" : "toast"}>
          <Icon name={bad ? "warning" : "check"} />
          <div>
            {text}
            {hint && <div class="hint">{hint}</div>}
          </div>
          <button type="button" class="ghost small" aria-label="Close message" onClick={() => drop(id)}>
            <Icon name="close" size={14} />
          </button>
        </div>
      ))}
    </div>
  );
}
