// The question before what cannot be undone. `confirm` shows it and waits for the answer; the button says what it will do.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

interface Question {
  title: string;
  body?: ComponentChildren;
  /** What the button says: "Cancel 214 jobs". */
  action: string;
  danger?: boolean;
  /** A reason is asked for, which goes into the event log. */
  reason?: boolean;
  /** Must be typed before the button works, for what is very large. */
  typed?: string;
}

/** The answer: null if it was no. */
export type Answer = { reason: string | null } | null;

const asked = signal<{ question: Question; answer: (answer: Answer) => void } | null>(null);

/** Asks, and returns null unless the user agreed. */
export function confirm(question: Question): Promise<Answer> {
  return new Promise((resolve) => {
    asked.peek()?.answer(null);
    asked.value = {
      question,
      answer: (answer) => {
        asked.value = null;
        resolve(answer);
      },
    };
  });
}

/** Where the question is shown: once, in the layout. */
export function ConfirmHost() {
  const open = asked.value;
  return open ? <Dialog key={open.question.title} question={open.question} answer={open.answer} /> : null;
}

function Dialog({ question, answer }: { question: Question; answer: (answer: Answer) => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [reason, setReason] = useState("");
  const [typed, setTyped] = useState("");
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  const ready = !question.typed || typed.trim() === question.typed;
  return (
    <dialog
      ref={dialog}
      class="dialog"
      aria-labelledby="confirm-title"
      onCancel={(event) => {
        event.preventDefault();
        answer(null);
      }}
    >
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (ready) answer({ reason: reason.trim() || null });
        }}
      >
        <h2 id="confirm-title">{question.title}</h2>
        {question.body && <div class="dialog-body">{question.body}</div>}
        {question.reason && (
          <label class="field">
            Reason <span class="muted">(kept in the event log)</span>
            <input type="text" maxLength={1024} value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
          </label>
        )}
        {question.typed && (
          <label class="field">
            Type <strong>{question.typed}</strong> to go on
            <input type="text" value={typed} autocomplete="off" onInput={(event) => setTyped(event.currentTarget.value)} />
          </label>
        )}
        <div class="dialog-buttons">
          <button type="button" class="ghost" onClick={() => answer(null)}>
            Keep as it is
          </button>
          <button type="submit" class={question.danger ? "danger" : "primary"} disabled={!ready}>
            {question.action}
          </button>
        </div>
      </form>
    </dialog>
  );
}
