// What stands where nothing is to be shown yet: why, and what to type next.
import type { ComponentChildren } from "preact";
import type { Line } from "../commands";
import { CopyLine } from "./CopyAs";

interface Props {
  title: string;
  children?: ComponentChildren;
  /** Commands to type, each with a button to copy it. */
  commands?: readonly Line[];
}

export function EmptyState({ title, children, commands = [] }: Props) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children && <div class="empty-text">{children}</div>}
      {commands.map((command) => (
        <CopyLine key={command} text={command} />
      ))}
    </div>
  );
}
