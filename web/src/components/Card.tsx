// A part of a screen with a heading of its own.
import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

interface Props {
  title: ComponentChildren;
  /** Right of the title. */
  beside?: ComponentChildren;
  children: ComponentChildren;
  /** The children reach the edges: tables. */
  flush?: boolean;
  class?: string;
}

export function Card({ title, beside, children, flush = false, class: name }: Props) {
  const id = useId();
  return (
    <section class={name ? `card ${name}` : "card"} aria-labelledby={id}>
      <header>
        <h2 id={id}>{title}</h2>
        {beside && <div class="push">{beside}</div>}
      </header>
      <div class={flush ? "card-flush" : "card-body"}>{children}</div>
    </section>
  );
}
