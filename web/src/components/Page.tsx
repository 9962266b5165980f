// The frame of a screen: its title, which is also the tab's, what it is about in a line, and its actions.
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import type { Line } from "../commands";
import { type Call, CopyAs } from "./CopyAs";

interface Props {
  title: string;
  /** Beside the title: badges, ids. */
  beside?: ComponentChildren;
  /** Below the title, in one line. */
  about?: ComponentChildren;
  actions?: ComponentChildren;
  /** How to get the same in a terminal. */
  copy?: { call: Call; cli: Line | null };
  children: ComponentChildren;
  class?: string;
}

export function Page({ title, beside, about, actions, copy, children, class: name }: Props) {
  useEffect(() => {
    document.title = `${title} · jobtree`;
  }, [title]);
  return (
    <div class={name ? `page ${name}` : "page"}>
      <header class="page-head">
        <div class="page-title">
          <h1>{title}</h1>
          {beside}
        </div>
        <div class="page-actions">
          {actions}
          {copy && <CopyAs {...copy} />}
        </div>
        {about && <p class="page-about">{about}</p>}
      </header>
      {children}
    </div>
  );
}
