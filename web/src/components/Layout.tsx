// What surrounds every screen: navigation, the state of the live stream, theme, session, dialogs and messages.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { type Command, useCommands } from "../keys";
import { hold, held, liveState } from "../live";
import { go, href, match, path } from "../router";
import { screens } from "../screens";
import { can, ended, session, signInAddress, signOut } from "../session";
import { type Theme, theme } from "../theme";
import { ConfirmHost } from "./Confirm";
import { Icon, type IconName } from "./Icon";
import { KeyboardHelp, helpOpen } from "./KeyboardHelp";
import { Toasts, complain } from "./Toast";

const nav = screens.flatMap(({ pattern, nav }) => (nav ? [{ to: pattern, ...nav }] : []));

const isHere = (to: string): boolean => (to === "/" ? path.value === "/" : path.value === to || path.value.startsWith(`${to}/`));

/** The one place where a screen's search field is found: an element with `data-search`. */
const focusSearch = () => {
  const field = document.querySelector<HTMLInputElement>("[data-search]");
  if (field) {
    field.focus();
    field.select();
  } else if (nav.some(({ to }) => to === "/jobs")) go(href("/jobs"));
};

export function Layout({ children }: { children: ComponentChildren }) {
  const [menu, setMenu] = useState(false);
  const main = useRef<HTMLElement>(null);
  const here = path.value;
  useEffect(() => setMenu(false), [here]);
  const global: Command[] = [
    { keys: "?", label: "This list", group: "Everywhere", run: () => (helpOpen.value = true) },
    { keys: "/", label: "Search", group: "Everywhere", run: focusSearch },
    { keys: "p", label: "Pause or go on with live updates", group: "Everywhere", run: () => hold(!held.value) },
    ...nav.map(({ key, label, to }) => ({ keys: `g ${key}`, label, group: "Go to", run: () => go(href(to)) })),
  ];
  useCommands(global);
  return (
    <>
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          main.current?.focus();
        }}
      >
        Skip to content
      </a>
      <div class={menu ? "shell menu-open" : "shell"}>
        <header class="top">
          <button type="button" class="ghost narrow-only" aria-label="Menu" aria-expanded={menu} aria-controls="nav" onClick={() => setMenu(!menu)}>
            <Icon name={menu ? "close" : "menu"} size={18} />
          </button>
          <a class="brand" href={href("/")} aria-label="jobtree, first screen">
            <img src="favicon.svg" alt="" width="22" height="22" />
            <span>jobtree</span>
          </a>
        </header>
        <nav class="side" id="nav" aria-label="Screens">
          <ul>
            {nav.map(({ to, label, icon }) => (
              <li key={to}>
                <a href={href(to)} class="nav-link" aria-current={isHere(to) ? (here === to ? "page" : "true") : undefined}>
                  <Icon name={icon} />
                  <span>{label}</span>
                </a>
              </li>
            ))}
          </ul>
          <div class="side-foot">
            <LiveSign />
            <div class="side-tools">
              <ThemeSwitch />
              <button type="button" class="ghost small" aria-label="Keyboard commands" title="Keyboard (?)" onClick={() => (helpOpen.value = true)}>
                <Icon name="keyboard" />
              </button>
              {session.value?.kind === "session" && (
                <button type="button" class="ghost small" aria-label="Sign out" title="Sign out" onClick={() => signOut().catch(complain)}>
                  <Icon name="out" />
                </button>
              )}
            </div>
            <Who />
          </div>
        </nav>
        <main id="main" ref={main} tabIndex={-1}>
          {ended.value && (
            <div class="note bad session-ended" role="alert">
              <Icon name="warning" />
              <div>
                <strong>The session has ended.</strong> What you see is from before.
              </div>
              <a class="button" href={signInAddress.value}>
                Sign in again
              </a>
            </div>
          )}
          {children}
        </main>
      </div>
      <Toasts />
      <ConfirmHost />
      <KeyboardHelp />
    </>
  );
}

const LIVE_WORDS = { off: "Live", connecting: "Connecting…", live: "Live", paused: "Paused", lost: "Reconnecting…" } as const;

function LiveSign() {
  const state = liveState.value;
  return (
    <button type="button" class={`live live-${state}`} aria-pressed={held.value} title={held.value ? "Go on with live updates (p)" : "Pause live updates (p)"} onClick={() => hold(!held.value)}>
      <Icon name={held.value ? "play" : "pause"} size={12} />
      <span aria-live="polite">{LIVE_WORDS[state]}</span>
      <span class="live-dot" />
    </button>
  );
}

const THEMES: Record<Theme, { next: Theme; icon: IconName; label: string }> = {
  system: { next: "light", icon: "system", label: "Colours as the system has them; change to light" },
  light: { next: "dark", icon: "sun", label: "Light colours; change to dark" },
  dark: { next: "system", icon: "moon", label: "Dark colours; change to the system's" },
};

function ThemeSwitch() {
  const { next, icon, label } = THEMES[theme.value];
  return (
    <button type="button" class="ghost small" aria-label={label} title={label} onClick={() => (theme.value = next)}>
      <Icon name={icon} />
    </button>
  );
}

function Who() {
  const who = session.value;
  if (!who) return null;
  const rights = can("admin") ? "everything" : who.scopes.join(", ") || "nothing";
  return (
    <div class="who" title={`${who.name}: may ${rights}${who.addon_id ? ` of addon ${who.addon_id}` : ""}`}>
      <span class="who-name">{who.kind === "open" ? "no sign-in needed" : who.name}</span>
      <span class="muted">
        {can("admin") ? "admin" : can("cancel") || can("submit") ? who.scopes.join(", ") : "read-only"}
        {who.addon_id && ` · ${who.addon_id}`}
        {who.version && ` · ${who.version}`}
      </span>
    </div>
  );
}

/** The screen that the address names, with the values of its pattern. */
export function findScreen(at: string) {
  for (const one of screens) {
    const values = match(one.pattern, at);
    if (values) return { screen: one, values };
  }
  return null;
}
