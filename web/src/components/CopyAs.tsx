// The same as this screen shows, or this button does, for a terminal: as curl, and as our own command. The token is the
// terminal's own, `$JOBTREE_TOKEN`: none is known here.
import { useState } from "preact/hooks";
import { address } from "../api";
import { type Line, quoted } from "../commands";
import { base } from "../router";
import { Icon } from "./Icon";
import { complain, say } from "./Toast";

export interface Call {
  method?: "GET" | "POST" | "PUT" | "DELETE";
  /** The path below `/api/system/scheduler`, filled in. */
  path: string;
  query?: Record<string, unknown>;
  body?: unknown;
}

/** Writes the call as a command line for curl. */
export function curl({ method = "GET", path, query, body }: Call, origin: string): string {
  const words = ["curl"];
  if (method !== "GET") words.push("-X", method);
  words.push("-H", '"Authorization: Bearer $JOBTREE_TOKEN"');
  if (body !== undefined) words.push("-H", "'Content-Type: application/json'", "-d", quoted(JSON.stringify(body)));
  words.push(quoted(origin + address(path, {}, query)));
  return words.join(" ");
}

export async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    say("Copied.");
  } catch {
    complain(new Error("The browser does not allow copying here: it needs HTTPS or localhost."));
  }
}

/** A line to copy. */
export function CopyLine({ text }: { text: string }) {
  return (
    <div class="copy-line">
      <code>{text}</code>
      <button type="button" class="ghost small" aria-label={`Copy: ${text}`} onClick={() => copy(text)}>
        <Icon name="copy" size={14} />
      </button>
    </div>
  );
}

/** A menu with both forms. `cli` is null where our own command has nothing that shows the same. */
export function CopyAs({ call, cli }: { call: Call; cli: Line | null }) {
  const [open, setOpen] = useState(false);
  const text = open ? curl(call, new URL(base, location.href).href) : "";
  return (
    <details
      class="menu copy-as"
      open={open}
      onToggle={(event) => setOpen(event.currentTarget.open)}
      onFocusOut={(event) => {
        if (event.relatedTarget instanceof Node && !event.currentTarget.contains(event.relatedTarget)) setOpen(false);
      }}
      onKeyDown={(event) => {
        if (event.key === "Escape") setOpen(false);
      }}
    >
      <summary class="button ghost" aria-label={cli === null ? "Copy as curl" : "Copy as curl or command line"}>
        <Icon name="copy" /> <span class="wide-only">Copy as</span>
      </summary>
      <div class="menu-body">
        {cli !== null && (
          <>
            <div class="menu-label">Command line</div>
            <CopyLine text={cli} />
          </>
        )}
        <div class="menu-label">curl</div>
        <CopyLine text={text} />
      </div>
    </details>
  );
}
